#include "text/grammar_rules.h"

#include <array>
#include <format>
#include <set>

namespace bevy {
namespace {

struct Rule {
    const char* name;
    const char* body;
};

// What every grammar may use; only those that are needed go in.
constexpr std::array<Rule, 18> kShared = {{
    {"ws", R"(( " " | "\n" [ \t]{0,20} )?)"},
    {"thoughts", R"([^<]*)"},
    {"char", R"([^"\\\x7F\x00-\x1F] | "\\" ( ["\\bfnrt/] | "u" [0-9a-fA-F]{4} ))"},
    {"string", R"("\"" char* "\"")"},
    {"integer", R"("-"? ( "0" | [1-9] [0-9]{0,17} ))"},
    {"number", R"(integer ( "." [0-9]{1,17} )? ( [eE] [-+]? [0-9]{1,3} )?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"value", R"(object | array | string | number | boolean | null)"},
    {"object", R"("{" ws ( pair ( ws "," ws pair )* ws )? "}")"},
    {"pair", R"(string ws ":" ws value)"},
    {"array", R"("[" ws ( value ( ws "," ws value )* ws )? "]")"},
    {"date", R"([0-9]{4} "-" ( "0" [1-9] | "1" [0-2] ) "-" ( "0" [1-9] | [12] [0-9] | "3" [01] ))"},
    {"time", R"(clock ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" | [-+] clock ))"},
    {"clock", R"(( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9])"},
    {"date-time", R"(date "T" time)"},
    {"hex4", R"([0-9a-fA-F]{4})"},
    {"uuid", R"(hex4 hex4 "-" hex4 "-" hex4 "-" hex4 "-" hex4 hex4 hex4)"},
}};

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

// Also where it is part of a literal: a rule too many does no harm.
bool mentions(const std::string& grammar, const std::string& name) {
    for (size_t at = grammar.find(name); at != std::string::npos; at = grammar.find(name, at + 1)) {
        const size_t end = at + name.size();
        if ((at == 0 || !is_name_character(grammar[at - 1])) &&
            (end == grammar.size() || !is_name_character(grammar[end])))
            return true;
    }
    return false;
}

}  // namespace

std::string GrammarRules::text() const {
    std::string grammar;
    for (const auto& [name, body] : rules_)
        grammar += name + " ::= " + body + "\n";
    // Those that are named somewhere, and those that they name in turn.
    std::set<std::string> added;
    for (bool any = true; any;) {
        any = false;
        for (const Rule& rule : kShared) {
            if (added.contains(rule.name) || !mentions(grammar, rule.name))
                continue;
            added.insert(rule.name);
            grammar += std::string(rule.name) + " ::= " + rule.body + "\n";
            any = true;
        }
    }
    return grammar;
}

std::string grammar_literal(std::string_view text) {
    std::string literal = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            literal += std::string("\\") + c;
        else if (c == '\n')
            literal += "\\n";
        else if (c == '\r')
            literal += "\\r";
        else if (c == '\t')
            literal += "\\t";
        else if (static_cast<unsigned char>(c) < 0x20)
            literal += std::format("\\x{:02X}", static_cast<unsigned>(c));
        else
            literal += c;
    }
    return literal + "\"";
}

}  // namespace bevy
