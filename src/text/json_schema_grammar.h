// JSON schemas to GBNF grammars, so that what a model writes follows the schema.
//
// Supported: type (one or several), enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, minimum, maximum and their exclusive kin
// for integers, format (date, time, date-time, uuid), anyOf, oneOf, allOf, and $ref within the
// document. Words that only describe (title, default, ...) are skipped. Everything else is refused
// by name: a schema that can't be kept is not silently weakened.
//
// The grammar may allow less than the schema where that keeps it simple, never more, oneOf
// excepted, which is read as anyOf: properties come in the schema's order, and an object with
// `properties` has no others. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace bevy {

// GBNF that stands before and behind the value; empty: nothing. May use the shared rules of
// text/grammar_rules.h.
struct GrammarFrame {
    std::string before;
    std::string after;
};

// Errors: kInvalidArgument, naming the keyword and where it is.
Result<std::string> json_schema_grammar(std::string_view schema, const GrammarFrame& frame = {});

struct ToolSchema {
    std::string name;
    std::string parameters;  // JSON schema; empty: any object
};

// One call of one of the tools: for each, the frame's `before` and `after` around its arguments,
// where "{name}" stands for the tool's name. `outer` stands around the whole, `separator`, if not
// empty, between one call and the next.
Result<std::string> tool_call_grammar(std::span<const ToolSchema> tools, const GrammarFrame& call,
                                      const GrammarFrame& outer, const std::string& separator);

}  // namespace bevy
