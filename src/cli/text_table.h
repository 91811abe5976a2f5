// Tables and CSV as the comparing commands print them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bevy {

struct TableColumn {
    std::string name;
    bool left = false;  // aligned
};

// A Markdown table whose columns also line up as plain text. Every row has one cell per column.
std::string markdown_table(const std::vector<TableColumn>& columns,
                           const std::vector<std::vector<std::string>>& rows);

// A head with the names of the first object's fields, and a line per object; all objects have the
// same fields, with plain values. Nothing for no objects.
std::string csv_table(const std::vector<nlohmann::ordered_json>& objects);

}  // namespace bevy
