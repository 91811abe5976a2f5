// A grammar for the integers of a range.
#pragma once

#include <cstdint>
#include <string>

namespace bevy {

// GBNF alternatives for all decimal numbers from `low` to `high`, both included, as JSON writes
// them (no leading zeros, no "-0"). REQUIRES: low <= high, both of at most 18 digits.
std::string integer_range_grammar(int64_t low, int64_t high);

}  // namespace bevy
