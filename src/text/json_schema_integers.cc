#include "text/json_schema_integers.h"

#include <algorithm>
#include <format>
#include <vector>

namespace bevy {
namespace {

std::string digit_class(char from, char to) {
    return from == to ? std::format("[{}]", from) : std::format("[{}-{}]", from, to);
}

// Numbers of the same length between the two, digit by digit: those that begin as `low`, those that
// begin as `high`, and those in between, whose further digits are free.
void same_length(const std::string& low, const std::string& high, const std::string& prefix,
                 std::vector<std::string>& alternatives) {
    const size_t length = low.size();
    size_t common = 0;
    while (common < length && low[common] == high[common])
        ++common;
    std::string head = prefix;
    for (size_t i = 0; i < common; ++i)
        head += digit_class(low[i], low[i]) + " ";
    if (common == length) {
        alternatives.push_back(head);
        return;
    }
    const size_t rest = length - common - 1;
    const std::string low_rest = low.substr(common + 1);
    const std::string high_rest = high.substr(common + 1);
    const bool whole_low = low_rest == std::string(rest, '0');
    const bool whole_high = high_rest == std::string(rest, '9');
    const auto from = static_cast<char>(low[common] + (whole_low ? 0 : 1));
    const auto to = static_cast<char>(high[common] - (whole_high ? 0 : 1));
    if (!whole_low)
        same_length(low_rest, std::string(rest, '9'),
                    head + digit_class(low[common], low[common]) + " ", alternatives);
    if (from <= to)
        alternatives.push_back(head + digit_class(from, to) +
                               (rest == 0 ? "" : std::format(" [0-9]{{{}}}", rest)));
    if (!whole_high)
        same_length(std::string(rest, '0'), high_rest,
                    head + digit_class(high[common], high[common]) + " ", alternatives);
}

// REQUIRES: 0 <= low <= high.
void natural_range(int64_t low, int64_t high, const std::string& prefix,
                   std::vector<std::string>& alternatives) {
    const std::string last = std::to_string(high);
    for (std::string first = std::to_string(low); first.size() < last.size();) {
        same_length(first, std::string(first.size(), '9'), prefix, alternatives);
        first = "1" + std::string(first.size(), '0');
        low = std::stoll(first);
    }
    same_length(std::to_string(low), last, prefix, alternatives);
}

}  // namespace

std::string integer_range_grammar(int64_t low, int64_t high) {
    std::vector<std::string> alternatives;
    if (low < 0)
        natural_range(std::max<int64_t>(1, -std::min<int64_t>(high, -1)), -low, "\"-\" ",
                      alternatives);
    if (high >= 0)
        natural_range(std::max<int64_t>(low, 0), high, "", alternatives);
    std::string grammar;
    for (const std::string& alternative : alternatives)
        grammar += (grammar.empty() ? "" : " | ") + alternative;
    return grammar;
}

}  // namespace bevy
