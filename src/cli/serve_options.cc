#include "cli/serve_options.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "cli/option_declarations.h"

namespace bevy {
namespace {

using namespace option_group;

constexpr const char* kServer = "Server";
constexpr const char* kAccess = "Access";
constexpr const char* kChat = "Chat";

struct Variable {
    const char* name;
    const char* option;
};

constexpr std::array kVariables = {
    Variable{"LLAMA_ARG_MODEL", "--model"},
    Variable{"LLAMA_ARG_THREADS", "--threads"},
    Variable{"LLAMA_ARG_N_PARALLEL", "--parallel"},
    Variable{"LLAMA_ARG_CTX_SIZE", "--ctx-size"},
    Variable{"LLAMA_ARG_BATCH", "--batch-size"},
    Variable{"LLAMA_ARG_UBATCH", "--ubatch-size"},
    Variable{"LLAMA_ARG_CACHE_TYPE_K", "--cache-type-k"},
    Variable{"LLAMA_ARG_CACHE_TYPE_V", "--cache-type-v"},
    Variable{"LLAMA_ARG_N_PREDICT", "--predict"},
    Variable{"LLAMA_ARG_TEMPERATURE", "--temp"},
    Variable{"LLAMA_ARG_TOP_K", "--top-k"},
    Variable{"LLAMA_ARG_TOP_P", "--top-p"},
    Variable{"LLAMA_ARG_MIN_P", "--min-p"},
    Variable{"LLAMA_ARG_REPEAT_PENALTY", "--repeat-penalty"},
    Variable{"LLAMA_ARG_PRESENCE_PENALTY", "--presence-penalty"},
    Variable{"LLAMA_ARG_FREQUENCY_PENALTY", "--frequency-penalty"},
    Variable{"LLAMA_ARG_HOST", "--host"},
    Variable{"LLAMA_ARG_PORT", "--port"},
    Variable{"LLAMA_ARG_ALIAS", "--alias"},
    Variable{"LLAMA_ARG_THREADS_HTTP", "--threads-http"},
    Variable{"LLAMA_ARG_TIMEOUT", "--timeout"},
    Variable{"LLAMA_ARG_SSE_PING_INTERVAL", "--sse-ping-interval"},
    Variable{"LLAMA_ARG_ENDPOINT_METRICS", "--metrics"},
    Variable{"LLAMA_ARG_ENDPOINT_SLOTS", "--slots"},
    Variable{"LLAMA_ARG_UI", "--webui"},
    Variable{"LLAMA_ARG_CORS_ORIGINS", "--cors-origins"},
    Variable{"LLAMA_API_KEY", "--api-key"},
    Variable{"LLAMA_ARG_API_KEY_FILE", "--api-key-file"},
    Variable{"LLAMA_ARG_SSL_KEY_FILE", "--ssl-key-file"},
    Variable{"LLAMA_ARG_SSL_CERT_FILE", "--ssl-cert-file"},
    Variable{"LLAMA_ARG_CHAT_TEMPLATE", "--chat-template"},
    Variable{"LLAMA_ARG_CHAT_TEMPLATE_FILE", "--chat-template-file"},
    Variable{"LLAMA_ARG_THINK", "--reasoning-format"},
    Variable{"BEVY_MEMORY", "--memory"},
    Variable{"BEVY_EXPERT_CACHE", "--expert-cache"},
    Variable{"BEVY_POLICY", "--policy"},
    Variable{"BEVY_EVICTION", "--eviction"},
    Variable{"BEVY_IO", "--io"},
    Variable{"BEVY_DIRECT_IO", "--direct-io"},
    Variable{"BEVY_READS", "--reads"},
    Variable{"BEVY_QUEUE", "--queue"},
    Variable{"BEVY_DRAIN_SECONDS", "--drain-seconds"},
    Variable{"BEVY_CONFIG", "--config"},
};

void declare_server(CLI::App& app, ServeOptions& o) {
    option(app, kServer, "--host", o.server.host,
           "address to listen on, or the path of a Unix socket that ends in .sock")
        ->type_name("ADDRESS");
    number(app, kServer, "--port", o.server.port, uint16_t{0}, uint16_t{65535},
           "port to listen on; 0: a free one");
    app.add_option("-a,--alias", o.aliases, "names of the model, separated by commas")
        ->group(kServer)
        ->type_name("NAMES");
    number(app, kServer, "--queue", o.server.queue_max, 0u, 256u,
           "requests that may wait for their turn; more get status 503");
    number(app, kServer, "--threads-http", o.server.connections_max, 0u, 4096u,
           "connections at once; 0: as many as the queue needs and 64 more");
    number(app, kServer, "--timeout", o.server.timeout_s, 1u, 86400u,
           "seconds for a stuck read or write (short: -to)");
    number(app, kServer, "--sse-ping-interval", o.server.ping_s, 0u, 86400u,
           "seconds between comments in a stream that has nothing to say; 0: none");
    number(app, kServer, "--drain-seconds", o.drain_seconds, 0u, 86400u,
           "how long running requests may take when the server is asked to end");
    app.add_flag("--metrics,!--no-metrics", o.server.metrics, "numbers for Prometheus at /metrics")
        ->group(kServer);
    app.add_flag("--slots,!--no-slots", o.server.slots, "what runs at /slots (on by default)")
        ->group(kServer);
    app.add_flag("--webui,!--no-webui", o.server.web_ui, "the page at / (on by default)")
        ->group(kServer);
    app.add_option("--config", o.config_file, "TOML file with options by their long names")
        ->group(kServer)
        ->type_name("FILE");
}

void declare_access(CLI::App& app, ServeOptions& o) {
    app.add_option("--api-key", o.api_keys, "keys of which clients need one, separated by commas")
        ->group(kAccess)
        ->type_name("KEYS");
    app.add_option("--api-key-file", o.api_key_file,
                   "file with one key per line; # begins a comment")
        ->group(kAccess)
        ->type_name("FILE");
    app.add_option("--ssl-key-file", o.server.ssl_key_file, "private key for TLS (PEM)")
        ->group(kAccess)
        ->type_name("FILE");
    app.add_option("--ssl-cert-file", o.server.ssl_certificate_file, "certificate for TLS (PEM)")
        ->group(kAccess)
        ->type_name("FILE");
    option(app, kAccess, "--cors-origins", o.server.cors_origins,
           "origins of web pages that may use the server: *, localhost, or a list")
        ->type_name("ORIGINS");
}

void declare_chat(CLI::App& app, ServeOptions& o) {
    CLI::Option* text = app.add_option("--chat-template", o.chat_template,
                                       "Jinja template in place of the model's own")
                            ->group(kChat)
                            ->type_name("TEXT");
    app.add_option("--chat-template-file", o.chat_template_file, "the same, from a file")
        ->group(kChat)
        ->type_name("FILE")
        ->excludes(text);
    option(app, kChat, "--reasoning-format", o.reasoning_format,
           "thoughts apart from the answer (auto) or within it (none)")
        ->check(CLI::IsMember({"auto", "deepseek", "none"}));
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        if (end > begin)
            parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

Result<std::string> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file.is_open() || file.bad())
        return fail(ErrorCode::kNotFound, "can't read '" + path + "': " + std::strerror(errno),
                    "check the path and its permissions");
    return text;
}

// The long names of options that the arguments give, whatever they are called there.
std::set<std::string> given_options(const CLI::App& app,
                                    const std::vector<std::string>& arguments) {
    std::set<std::string> given;
    for (const std::string& argument : arguments) {
        if (argument == "--")
            break;
        if (argument.size() < 2 || argument[0] != '-')
            continue;
        const std::string name = argument.starts_with("--") ? argument.substr(0, argument.find('='))
                                                            : argument.substr(0, 2);
        const CLI::Option* option = app.get_option_no_throw(name);
        if (option != nullptr)
            given.insert(option->get_lnames().front());
    }
    return given;
}

// The value of an option that may be written "--name value" or "--name=value".
std::string value_of(const std::vector<std::string>& arguments, const std::string& name) {
    std::string value;
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == name && i + 1 < arguments.size())
            value = arguments[i + 1];
        else if (arguments[i].starts_with(name + "="))
            value = arguments[i].substr(name.size() + 1);
    }
    return value;
}

Result<std::vector<CLI::ConfigItem>> read_config(const std::string& path) {
    std::ifstream file(path);
    if (!file)
        return fail(ErrorCode::kNotFound, "can't read '" + path + "': " + std::strerror(errno),
                    "give a TOML file with --config");
    try {
        return CLI::ConfigTOML().from_config(file);
    } catch (const std::exception& e) {
        return fail(ErrorCode::kInvalidArgument, "can't understand '" + path + "': " + e.what(),
                    "write one 'name = value' per line");
    }
}

}  // namespace

void declare_serve_options(CLI::App& app, ServeOptions& o) {
    // As llama-server's; the commands that end by themselves have a smaller one.
    o.server.defaults.predict = -1;
    declare_model(app, o.session);
    declare_session(app, o.session);
    number(app, kGeneration, "-n,--predict,--n-predict", o.server.defaults.predict, -1,
           static_cast<int32_t>(kTokensMax),
           "tokens to generate where a request says nothing; -1: to the context");
    declare_server(app, o);
    declare_access(app, o);
    declare_chat(app, o);
    declare_sampling(app, o.server.defaults.sampling);
    declare_storage(app, o.session);
    app.add_option("--trace", o.session.trace, "write a timeline for Perfetto or chrome://tracing")
        ->group(kOutput)
        ->type_name("FILE");
    CLI::Option* verbose =
        app.add_flag("-v,--verbose", o.output.verbose, "show plan and requests")->group(kOutput);
    app.add_flag("-q,--quiet", o.output.quiet, "errors only")->group(kOutput)->excludes(verbose);
}

Result<std::vector<OutsideSetting>> outside_settings(
    const CLI::App& app, const std::vector<std::string>& arguments,
    const std::function<const char*(const char*)>& environment) {
    std::vector<OutsideSetting> settings;
    std::set<std::string> given = given_options(app, arguments);
    std::string config = value_of(arguments, "--config");
    for (const Variable& variable : kVariables) {
        const char* value = environment(variable.name);
        const std::string name = std::string(variable.option).substr(2);
        if (value == nullptr || *value == '\0' || given.contains(name))
            continue;
        given.insert(name);
        if (name == "config")
            config = value;
        settings.push_back({std::string(variable.option) + "=" + value, variable.name});
    }
    if (config.empty())
        return settings;
    Result<std::vector<CLI::ConfigItem>> items = read_config(config);
    if (!items)
        return std::unexpected(items.error());
    for (const CLI::ConfigItem& item : *items) {
        const CLI::Option* option = app.get_option_no_throw("--" + item.name);
        if (option == nullptr || !item.parents.empty() || item.name == "config")
            return fail(ErrorCode::kInvalidArgument,
                        "'" + config + "' sets '" + item.fullname() + "', which is no option",
                        "see bevy serve --help for the names");
        const std::string& name = option->get_lnames().front();
        if (given.contains(name))
            continue;
        std::string value;
        for (const std::string& input : item.inputs)
            value += (value.empty() ? "" : ",") + input;
        settings.push_back({"--" + item.name + "=" + value, "the file " + config});
    }
    return settings;
}

Status complete(ServeOptions& o) {
    o.server.api_keys = split(o.api_keys);
    o.server.aliases = split(o.aliases);
    if (o.reasoning_format == "none")
        o.server.defaults.reasoning = ReasoningFormat::kInline;
    if (!o.chat_template_file.empty()) {
        Result<std::string> text = read_file(o.chat_template_file);
        if (!text)
            return std::unexpected(text.error());
        o.chat_template = std::move(*text);
    }
    if (!o.api_key_file.empty()) {
        Result<std::string> text = read_file(o.api_key_file);
        if (!text)
            return std::unexpected(text.error());
        std::string_view rest = *text;
        while (!rest.empty()) {
            const size_t end = std::min(rest.find('\n'), rest.size());
            std::string line(rest.substr(0, end));
            if (line.ends_with('\r'))
                line.pop_back();
            if (!line.empty() && !line.starts_with('#'))
                o.server.api_keys.push_back(std::move(line));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        // A server that was to be closed must not be open because its list is empty.
        if (o.server.api_keys.empty())
            return fail(ErrorCode::kInvalidArgument, "no key in '" + o.api_key_file + "'",
                        "write one key per line");
    }
    return validate(o.server.defaults.sampling);
}

}  // namespace bevy
