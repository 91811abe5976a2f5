#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/prng.h"

namespace bevy {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

std::string whole(std::string_view bytes, std::vector<std::string> stops = {}) {
    Detokenizer detokenizer(stops);
    std::string text = detokenizer.push(bytes);
    return text + detokenizer.finish();
}

// Code points of valid UTF-8, or nothing. Written differently from the code under test.
std::optional<std::vector<uint32_t>> decode(std::string_view text) {
    std::vector<uint32_t> points;
    for (size_t i = 0; i < text.size();) {
        const auto lead = static_cast<uint8_t>(text[i]);
        const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;
        if (length == 4 && lead >> 3 != 30)
            return std::nullopt;
        if (i + length > text.size())
            return std::nullopt;
        uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
        for (size_t k = 1; k < length; ++k) {
            const auto byte = static_cast<uint8_t>(text[i + k]);
            if (byte >> 6 != 2)
                return std::nullopt;
            point = point << 6 | (byte & 0x3F);
        }
        const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
            return std::nullopt;
        points.push_back(point);
        i += length;
    }
    return points;
}

std::string random_bytes(Prng& prng) {
    // Bytes that often form sequences, whole and broken ones.
    static const std::vector<std::string> parts = {
        "a",    "b",    "ab",   "\xC3\xA9",     "\xC3\x9F", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\x80", "\xC3", "\xE2", "\xF0\x9F\x98", "\xED\xA0", "\xC0\xAF",     "\xF5",
        "\n",   "\xFF"};
    std::string bytes;
    for (uint64_t n = prng.below(12); n > 0; --n)
        bytes += parts[prng.below(parts.size())];
    return bytes;
}

TEST(Detokenizer, PassesValidTextThrough) {
    const std::string text = "plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80 and \xF4\x8F\xBF\xBF";
    EXPECT_EQ(whole(text), text);
}

TEST(Detokenizer, HoldsBackAnIncompleteSequence) {
    Detokenizer detokenizer;
    EXPECT_EQ(detokenizer.push("a\xF0\x9F"), "a");
    EXPECT_EQ(detokenizer.push("\x98"), "");
    EXPECT_EQ(detokenizer.push("\x80!"), "\xF0\x9F\x98\x80!");
    EXPECT_EQ(detokenizer.push("\xE2\x82"), "");
    EXPECT_EQ(detokenizer.finish(), kReplacement);
}

TEST(Detokenizer, ReplacesEachBrokenSequenceOnce) {
    // The examples of the Unicode standard, table 3-8 and 3-11.
    const std::string r = kReplacement;
    EXPECT_EQ(whole("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(whole("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(whole("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
    EXPECT_EQ(whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Detokenizer, AnySplitGivesTheSameValidText) {
    Prng prng(1);
    for (int round = 0; round < 3000; ++round) {
        const std::string bytes = random_bytes(prng);
        const std::vector<std::string> stops =
            prng.chance(1, 2) ? std::vector<std::string>{"ab\n", "\xC3\xA9\xC3\xA9", "aba"}
                              : std::vector<std::string>{};
        const std::string expected = whole(bytes, stops);
        ASSERT_TRUE(decode(expected).has_value()) << "round " << round;
        if (decode(bytes) && stops.empty()) {
            ASSERT_EQ(expected, bytes);
        }
        Detokenizer detokenizer(stops);
        std::string text;
        for (size_t at = 0; at < bytes.size();) {
            const size_t length = 1 + prng.below(std::min<size_t>(bytes.size() - at, 5));
            const std::string part = detokenizer.push(std::string_view(bytes).substr(at, length));
            ASSERT_TRUE(decode(part).has_value()) << "round " << round;
            text += part;
            at += length;
        }
        text += detokenizer.finish();
        ASSERT_EQ(text, expected) << "round " << round;
    }
}

TEST(Detokenizer, StopsLikeASearchOverTheWholeText) {
    Prng prng(2);
    int stopped_count = 0;
    for (int round = 0; round < 3000; ++round) {
        const auto letters = [&](uint64_t length) {
            std::string text;
            for (; length > 0; --length)
                text += static_cast<char>('a' + prng.below(2));
            return text;
        };
        const std::string bytes = letters(prng.below(30));
        std::vector<std::string> stops;
        for (uint64_t n = prng.below(3); n > 0; --n)
            stops.push_back(letters(1 + prng.below(5)));
        std::string expected = bytes;
        bool stopped = false;
        for (size_t end = 1; end <= bytes.size() && !stopped; ++end) {
            for (const std::string& stop : stops) {
                if (std::string_view(bytes).substr(0, end).ends_with(stop)) {
                    stopped = true;
                    const size_t start = end - stop.size();
                    if (start < expected.size())
                        expected.resize(start);
                }
            }
        }
        Detokenizer detokenizer(stops);
        std::string text;
        for (const char c : bytes) {
            text += detokenizer.push({&c, 1});
            ASSERT_TRUE(expected.starts_with(text)) << "delivered part of a stop string";
        }
        text += detokenizer.finish();
        ASSERT_EQ(text, expected) << bytes;
        ASSERT_EQ(detokenizer.stopped(), stopped);
        stopped_count += stopped;
    }
    EXPECT_GT(stopped_count, 300);
}

TEST(Detokenizer, DeliversTextThatOnlyLookedLikeAStop) {
    const std::vector<std::string> stops = {"<|im_end|>"};
    Detokenizer detokenizer(stops);
    EXPECT_EQ(detokenizer.push("x<|im_"), "x");
    EXPECT_EQ(detokenizer.push("start"), "<|im_start");
    EXPECT_EQ(detokenizer.push(" <"), " ");
    EXPECT_EQ(detokenizer.push("|im_end|> more"), "");
    EXPECT_TRUE(detokenizer.stopped());
    EXPECT_EQ(detokenizer.push("ignored"), "");
    EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, IgnoresEmptyStopStrings) {
    const std::vector<std::string> stops = {"", "b"};
    Detokenizer detokenizer(stops);
    EXPECT_EQ(detokenizer.push("aab"), "aa");
    EXPECT_TRUE(detokenizer.stopped());
}

TEST(Detokenizer, FinishDeliversAPartialStop) {
    const std::vector<std::string> stops = {"abc"};
    Detokenizer detokenizer(stops);
    EXPECT_EQ(detokenizer.push("xab"), "x");
    EXPECT_EQ(detokenizer.finish(), "ab");
    EXPECT_FALSE(detokenizer.stopped());
}

TEST(Detokenizer, ARepairedByteMayCompleteAStop) {
    const std::vector<std::string> stops = {kReplacement};
    Detokenizer detokenizer(stops);
    EXPECT_EQ(detokenizer.push("a\xE2"), "a");
    EXPECT_EQ(detokenizer.finish(), "");
    EXPECT_TRUE(detokenizer.stopped());
}

}  // namespace
}  // namespace bevy
