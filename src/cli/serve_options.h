// What the user can say to `bevy serve`: on the command line, in the environment, in a file.
//
// Names are llama-server's where it has the same, those of its environment included
// (LLAMA_ARG_...); Bevy's own variables begin with BEVY_. The command line wins over the
// environment, and the environment over the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options.h"
#include "server/server_options.h"

namespace bevy {

struct ServeOptions {
    SessionOptions session;
    ServerOptions server;  // its lists of keys and names are filled by complete()
    std::string api_keys;  // separated by commas
    std::string api_key_file;
    std::string aliases;  // separated by commas
    std::string chat_template;
    std::string chat_template_file;
    std::string reasoning_format = "auto";
    std::string config_file;
    uint32_t drain_seconds = 30;
    OutputOptions output;
};

// Declares the options; parsing fills the struct, which must outlive `app`.
void declare_serve_options(CLI::App& app, ServeOptions& options);

// A setting that does not come from the command line, and where it comes from.
struct OutsideSetting {
    std::string argument;  // "--port=8081"
    std::string source;    // "LLAMA_ARG_PORT", "the file serve.toml"
};

// What the environment and the file of --config say about options that `arguments` do not give.
// `environment` gives a variable's value, or null. Errors: a file that can't be read or understood,
// or that has an unknown key.
Result<std::vector<OutsideSetting>> outside_settings(
    const CLI::App& app, const std::vector<std::string>& arguments,
    const std::function<const char*(const char*)>& environment);

// Reads the files that options name, and takes lists apart. Errors: kNotFound, kInvalidArgument.
Status complete(ServeOptions& options);

}  // namespace bevy
