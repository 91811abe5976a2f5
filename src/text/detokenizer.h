// Pieces of tokens to text that can be shown: complete UTF-8 only, ending before a stop string.
//
// The text does not depend on how its bytes are cut into pieces. An incomplete UTF-8 sequence is
// held back until it is complete; bytes that can't be part of UTF-8 become U+FFFD, one for each
// sequence that breaks off (as the Unicode standard recommends). Text that may turn out to be the
// start of a stop string is held back too. The first stop string to be complete ends the text; of
// several that end at the same place, the longest. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bevy {

// Bytes to valid UTF-8, incrementally.
class Utf8Repair {
public:
    // Appends to `text` what is now complete.
    void push(std::string_view bytes, std::string& text);
    // Appends what is left: U+FFFD for an incomplete sequence.
    void finish(std::string& text);

private:
    std::string partial_;      // a sequence that has begun
    uint32_t missing_ = 0;     // bytes that it still needs
    uint8_t next_low_ = 0x80;  // allowed range of its next byte
    uint8_t next_high_ = 0xBF;
};

class Detokenizer {
public:
    // Empty stop strings are ignored.
    explicit Detokenizer(std::span<const std::string> stop_strings = {});

    // Takes the bytes of the next token and returns the text that is now certain. After a stop
    // string everything is ignored.
    std::string push(std::string_view bytes);
    // The rest, when no more tokens come. Afterwards the object is as new, unless stopped().
    std::string finish();
    // A stop string was found; it and all that follows is not part of the text.
    bool stopped() const { return stopped_; }
    // The stop string that was found; empty before.
    const std::string& stop_text() const { return stop_text_; }

private:
    // Knuth-Morris-Pratt: how much of `text` the end of the output matches.
    struct Stop {
        std::string text;
        std::vector<uint32_t> fallback;  // of each matched length: the next shorter match
        uint32_t matched = 0;

        explicit Stop(std::string stop_text);
        bool advance(char byte);  // true: complete
    };
    std::string release(std::string_view text);

    Utf8Repair repair_;
    std::vector<Stop> stops_;
    std::string held_;
    bool stopped_ = false;
    std::string stop_text_;
};

}  // namespace bevy
