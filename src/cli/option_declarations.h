// How an option is declared: flags, field, help, group and range in one call, for all commands.
//
// Included by the files that declare options only; everybody else needs cli/options.h.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "base/registry.h"
#include "cli/options.h"

namespace bevy {

namespace option_group {

constexpr const char* kModel = "Model";
constexpr const char* kGeneration = "Generation";
constexpr const char* kSampling = "Sampling";
constexpr const char* kMemory = "Memory and cache";
constexpr const char* kStorage = "Storage";
constexpr const char* kOutput = "Output";

}  // namespace option_group

constexpr uint32_t kTokensMax = 1 << 24;

// A number in [low, high]; unlike CLI11's own check it refuses a NaN.
template <class Number>
CLI::Validator range(Number low, Number high) {
    std::ostringstream name;
    name << low << " .. " << high;
    return CLI::Validator(
        [low, high, label = name.str()](std::string& text) -> std::string {
            Number value{};
            if (!CLI::detail::lexical_cast(text, value))
                return "'" + text + "' is not a number; give one between " + label;
            if (!(value >= low && value <= high))
                return text + " is out of range; give a number between " + label;
            return {};
        },
        name.str());
}

template <class Row>
CLI::Validator one_of(std::span<const Row> rows) {
    return CLI::Validator(
        [rows](std::string& text) -> std::string {
            for (const Row& row : rows) {
                if (row.name == text)
                    return {};
            }
            return "unknown name '" + text + "'; supported: " + registry_names(rows);
        },
        "");  // the help names them
}

template <class Row>
std::string with_choices(std::string help, std::span<const Row> rows) {
    return std::move(help) + ": " + registry_names(rows);
}

// One option: its flags, field, help and group. The default shown is the field's value.
template <class Field>
CLI::Option* option(CLI::App& app, const char* group, const char* flags, Field& field,
                    const std::string& help) {
    return app.add_option(flags, field, help)->group(group)->capture_default_str();
}

// A ranged number; the help shows the range.
template <class Field>
void number(CLI::App& app, const char* group, const char* flags, Field& field, Field low,
            Field high, const std::string& help) {
    option(app, group, flags, field, help)->check(range<Field>(low, high));
}

inline void flag(CLI::App& app, const char* group, const char* flags, bool& field,
                 const char* help) {
    app.add_flag(flags, field, help)->group(group);
}

// A value with a parser of ours, whose error text the user sees.
template <class Parse>
void parsed(CLI::App& app, const char* group, const char* flags, const std::string& help,
            const std::string& shown_default, Parse parse) {
    app.add_option_function<std::string>(
           flags,
           [parse, flags = std::string(flags)](const std::string& text) {
               if (Status status = parse(text); !status)
                   throw CLI::ValidationError(flags, status.error().message +
                                                         (status.error().hint.empty() ? "" : "; ") +
                                                         status.error().hint);
           },
           help)
        ->group(group)
        ->type_name("SIZE")
        ->default_str(shown_default);
}

template <class Row, class Value>
void choice(CLI::App& app, const char* group, const char* flags, Value& field,
            std::span<const Row> rows, const std::string& help) {
    app.add_option_function<std::string>(
           flags,
           [&field, rows](const std::string& text) {
               for (const Row& row : rows) {
                   if (row.name == text)
                       field = row.value;
               }
           },
           with_choices(help, rows))
        ->group(group)
        ->check(one_of(rows))
        ->type_name("NAME")
        ->default_str(std::string(rows.front().name));
}

// What several commands share; see options.cc.
void declare_model(CLI::App& app, SessionOptions& options);
// All of a session but what a sweep varies: policy, eviction, requests at once, cache.
void declare_machine(CLI::App& app, SessionOptions& options);
void declare_session(CLI::App& app, SessionOptions& options);
void declare_storage(CLI::App& app, SessionOptions& options);
void declare_sampling(CLI::App& app, SamplingParams& params);
// The policies that a real run can have, for the help.
std::string policy_help();

}  // namespace bevy
