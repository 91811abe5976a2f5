// Options whose values are lists ("8,16") or have a parser of ours, for commands that compare:
// every combination of the lists is a run.
//
// Included by the files that declare options only.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/memory_plan.h"

namespace bevy {

// An option with a parser of ours, whose error text the user sees.
void parsed_option(CLI::App& app, const char* group, const std::string& flags, const char* type,
                   const std::string& help, const std::string& shown_default,
                   std::function<Status(const std::string&)> parse);

// The same for a list: `parse_one` adds what one item says to the field.
template <class Item>
void list(CLI::App& app, const char* group, const std::string& flags, const char* type,
          const std::string& help, const std::string& shown_default, std::vector<Item>& field,
          Status (*parse_one)(std::string_view, std::vector<Item>&)) {
    parsed_option(app, group, flags, type, help, shown_default,
                  [&field, parse_one](const std::string& text) -> Status {
                      field.clear();
                      for (size_t begin = 0; begin <= text.size();) {
                          const size_t end = std::min(text.find(',', begin), text.size());
                          const std::string_view item =
                              std::string_view(text).substr(begin, end - begin);
                          if (Status status = parse_one(item, field); !status)
                              return status;
                          begin = end + 1;
                      }
                      return {};
                  });
}

// A whole number from `low` to `high`.
Result<uint64_t> parse_number(std::string_view text, uint64_t low, uint64_t high);

// For list(): a name, not empty; requests at once; memory for experts, as a share or a size.
Status add_name(std::string_view text, std::vector<std::string>& names);
Status add_parallel(std::string_view text, std::vector<uint32_t>& field);
Status add_cache(std::string_view text, std::vector<CacheSize>& field);

// "a, b, c"
std::string joined(const std::vector<std::string>& names);

}  // namespace bevy
