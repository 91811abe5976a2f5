// A GBNF grammar in the making: rules with names, and the shared ones that they use.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bevy {

// Shared rules need not be added: ws (optional white space), thoughts (text up to the next "<"),
// char, string, integer, number, boolean, null, value, object, array, date, time, date-time, uuid.
// One thread at a time.
class GrammarRules {
public:
    void add(std::string name, std::string body) {
        rules_.emplace_back(std::move(name), std::move(body));
    }
    size_t size() const { return rules_.size(); }
    // All rules, and the shared ones that are named in them.
    std::string text() const;

private:
    std::vector<std::pair<std::string, std::string>> rules_;
};

// `text` as a literal of GBNF, with its quotes.
std::string grammar_literal(std::string_view text);

}  // namespace bevy
