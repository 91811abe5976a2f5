// A constexpr table of named variants: one row per policy, architecture or backend. The rows feed
// the choices of the command line, its help, and the error text for a name that is not there.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace bevy {

// "a, b, c" from the rows' names. Row needs a member `name` convertible to std::string_view.
template <class Row>
std::string registry_names(std::span<const Row> rows) {
    std::string names;
    for (const Row& row : rows) {
        if (!names.empty())
            names += ", ";
        names += std::string_view(row.name);
    }
    return names;
}

// The row called `name`, or kUnsupported: "unknown <kind> 'x'; supported: a, b, c".
template <class Row>
Result<const Row*> registry_find(std::span<const Row> rows, std::string_view kind,
                                 std::string_view name) {
    for (const Row& row : rows) {
        if (std::string_view(row.name) == name)
            return &row;
    }
    return fail(ErrorCode::kUnsupported,
                "unknown " + std::string(kind) + " '" + std::string(name) + "'",
                "supported: " + registry_names(rows));
}

}  // namespace bevy
