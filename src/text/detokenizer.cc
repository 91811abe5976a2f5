#include "text/detokenizer.h"

#include <algorithm>

namespace bevy {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Repair::push(std::string_view bytes, std::string& text) {
    for (const char c : bytes) {
        const auto byte = static_cast<uint8_t>(c);
        if (missing_ > 0) {
            if (byte >= next_low_ && byte <= next_high_) {
                partial_ += c;
                next_low_ = 0x80;
                next_high_ = 0xBF;
                if (--missing_ == 0) {
                    text += partial_;
                    partial_.clear();
                }
                continue;
            }
            finish(text);  // the sequence breaks off; this byte starts afresh
        }
        if (byte < 0x80) {
            text += c;
        } else if (byte >= 0xC2 && byte <= 0xF4) {
            partial_ = c;
            missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
            // No overlong forms, no surrogates, nothing above U+10FFFF.
            next_low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
            next_high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
        } else {
            text += kReplacement;
        }
    }
}

void Utf8Repair::finish(std::string& text) {
    if (missing_ > 0)
        text += kReplacement;
    partial_.clear();
    missing_ = 0;
    next_low_ = 0x80;
    next_high_ = 0xBF;
}

Detokenizer::Stop::Stop(std::string stop_text) : text(std::move(stop_text)) {
    fallback.assign(text.size() + 1, 0);
    uint32_t length = 0;
    for (size_t i = 1; i < text.size(); ++i) {
        while (length > 0 && text[i] != text[length])
            length = fallback[length];
        if (text[i] == text[length])
            ++length;
        fallback[i + 1] = length;
    }
}

bool Detokenizer::Stop::advance(char byte) {
    while (matched > 0 && text[matched] != byte)
        matched = fallback[matched];
    if (text[matched] == byte)
        ++matched;
    return matched == text.size();
}

Detokenizer::Detokenizer(std::span<const std::string> stop_strings) {
    for (const std::string& stop_string : stop_strings) {
        // Compared with repaired text, so it has to be repaired in the same way.
        std::string repaired;
        Utf8Repair repair;
        repair.push(stop_string, repaired);
        repair.finish(repaired);
        if (!repaired.empty())
            stops_.emplace_back(std::move(repaired));
    }
}

std::string Detokenizer::release(std::string_view text) {
    std::string certain;
    for (const char byte : text) {
        held_ += byte;
        size_t stop_bytes = 0;
        size_t matched_max = 0;
        for (Stop& stop : stops_) {
            if (stop.advance(byte))
                stop_bytes = std::max(stop_bytes, stop.text.size());
            else
                matched_max = std::max<size_t>(matched_max, stop.matched);
        }
        if (stop_bytes > 0) {
            stopped_ = true;
            certain.append(held_, 0, held_.size() - stop_bytes);
            stop_text_ = held_.substr(held_.size() - stop_bytes);
            held_.clear();
            return certain;
        }
        const size_t free_bytes = held_.size() - matched_max;
        certain.append(held_, 0, free_bytes);
        held_.erase(0, free_bytes);
    }
    return certain;
}

std::string Detokenizer::push(std::string_view bytes) {
    if (stopped_)
        return {};
    std::string text;
    repair_.push(bytes, text);
    return release(text);
}

std::string Detokenizer::finish() {
    if (stopped_)
        return {};
    std::string text;
    repair_.finish(text);
    std::string certain = release(text);
    certain += held_;  // empty when a stop string was just completed
    held_.clear();
    for (Stop& stop : stops_)
        stop.matched = 0;
    return certain;
}

}  // namespace bevy
