#include "cli/text_table.h"

#include <algorithm>

#include "cli/terminal.h"

namespace bevy {
namespace {

std::string padded(const std::string& text, size_t columns, bool left) {
    const std::string blanks(columns - display_width(text), ' ');
    return left ? text + blanks : blanks + text;
}

std::string csv_cell(const nlohmann::ordered_json& value) {
    if (value.is_null())
        return {};
    if (!value.is_string())
        return value.dump();
    std::string text = value.get<std::string>();
    if (text.find_first_of(",\"\n") == std::string::npos)
        return text;
    std::string quoted = "\"";
    for (const char c : text)
        quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
}

}  // namespace

std::string markdown_table(const std::vector<TableColumn>& columns,
                           const std::vector<std::vector<std::string>>& rows) {
    std::string head = "|";
    std::string rule = "|";
    std::vector<size_t> widths;
    for (size_t c = 0; c < columns.size(); c++) {
        size_t width = display_width(columns[c].name);
        for (const std::vector<std::string>& row : rows)
            width = std::max<size_t>(width, display_width(row[c]));
        widths.push_back(width);
        head += " " + padded(columns[c].name, width, columns[c].left) + " |";
        rule += columns[c].left ? ":" + std::string(width + 1, '-') + "|"
                                : std::string(width + 1, '-') + ":|";
    }
    std::string text = head + "\n" + rule + "\n";
    for (const std::vector<std::string>& row : rows) {
        text += "|";
        for (size_t c = 0; c < columns.size(); c++)
            text += " " + padded(row[c], widths[c], columns[c].left) + " |";
        text += "\n";
    }
    return text;
}

std::string csv_table(const std::vector<nlohmann::ordered_json>& objects) {
    std::string text;
    for (const nlohmann::ordered_json& fields : objects) {
        std::string line;
        std::string head;
        for (const auto& [name, value] : fields.items()) {
            head += (head.empty() ? "" : ",") + name;
            line += (name == fields.begin().key() ? "" : ",") + csv_cell(value);
        }
        text += (text.empty() ? head + "\n" : "") + line + "\n";
    }
    return text;
}

}  // namespace bevy
