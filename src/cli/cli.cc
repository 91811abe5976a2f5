#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>

#include "cli/command.h"
#include "cli/interrupt.h"

namespace bevy {
namespace {

constexpr const char* kVersion = "bevy " BEVY_VERSION;

void print_line(const char* kind, std::string_view message, std::string_view hint) {
    std::fprintf(stderr, "bevy: %s: %.*s\n", kind, static_cast<int>(message.size()),
                 message.data());
    if (!hint.empty())
        std::fprintf(stderr, "  hint: %.*s\n", static_cast<int>(hint.size()), hint.data());
}

// CLI11 writes several lines for some mistakes.
std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

// Where a refused value comes from, if it is not on the command line.
std::string source_hint(const std::string& message, const std::vector<OutsideSetting>& outside) {
    for (const OutsideSetting& setting : outside) {
        const std::string name = setting.argument.substr(0, setting.argument.find('='));
        if (message.contains(name + ":"))
            return name + " comes from " + setting.source + "; ";
    }
    return {};
}

struct Commands {
    RunOptions run;
    InspectOptions inspect;
    MakeModelOptions make_model;
    SimOptions sim;
    BenchOptions bench;
    CalibrateOptions calibrate;
    ServeOptions serve;
};

int dispatch(const CLI::App& app, Commands& commands) {
    if (app.got_subcommand("run"))
        return run_command(commands.run);
    if (app.got_subcommand("inspect"))
        return inspect_command(commands.inspect);
    if (app.got_subcommand("sim"))
        return sim_command(commands.sim);
    if (app.got_subcommand("bench"))
        return bench_command(commands.bench);
    if (app.got_subcommand("calibrate"))
        return calibrate_command(commands.calibrate);
    if (app.got_subcommand("serve"))
        return serve_command(commands.serve);
    return make_model_command(commands.make_model);
}

}  // namespace

int exit_code_of(const Error& error) {
    const bool usage =
        error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kUnsupported;
    return usage ? kExitUsage : kExitFailure;
}

int fail_with(const Error& error) {
    print_error(error);
    return exit_code_of(error);
}

void print_error(const Error& error) {
    print_line("error", error.message, error.hint);
}

void print_usage_error(std::string_view message, std::string_view hint) {
    print_line("error", message, hint);
}

void print_notice(std::string_view message) {
    print_line("notice", message, {});
}

int run_cli(int argc, const char* const* argv) {
    install_interrupt_handler();
    CLI::App app("Runs mixture-of-experts language models that are larger than memory.", "bevy");
    app.set_version_flag("--version", kVersion);
    app.require_subcommand(1);
    app.get_formatter()->column_width(36);
    Commands commands;
    declare_run_options(
        *app.add_subcommand("run", "generate text for one or many prompts, or chat"), commands.run);
    CLI::App* serve = app.add_subcommand("serve", "an HTTP server for clients of OpenAI's API");
    declare_serve_options(*serve, commands.serve);
    declare_inspect_options(
        *app.add_subcommand("inspect", "what a model needs, and how fast it can be here"),
        commands.inspect);
    declare_bench_options(
        *app.add_subcommand("bench", "measure how fast settings are on this machine"),
        commands.bench);
    declare_calibrate_options(
        *app.add_subcommand("calibrate", "this machine and a model as bevy sim sees them"),
        commands.calibrate);
    declare_sim_options(
        *app.add_subcommand("sim", "compare policies on simulated machines, with real routes"),
        commands.sim);
    declare_make_model_options(*app.add_subcommand("make-model", "write a model file for tests"),
                               commands.make_model);

    std::vector<std::string> arguments = expand_short_names(argc, argv);
    if (!arguments.empty() && arguments.front() == "help") {
        // "bevy help run" is "bevy run --help".
        arguments.erase(arguments.begin());
        arguments.emplace_back("--help");
    }
    std::vector<OutsideSetting> outside;
    if (!arguments.empty() && arguments.front() == "serve") {
        Result<std::vector<OutsideSetting>> settings =
            outside_settings(*serve, arguments, [](const char* name) { return std::getenv(name); });
        if (!settings) {
            print_error(settings.error());
            return kExitUsage;
        }
        outside = std::move(*settings);
        for (size_t i = 0; i < outside.size(); ++i)
            arguments.insert(arguments.begin() + 1 + static_cast<ptrdiff_t>(i),
                             outside[i].argument);
    }
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    try {
        app.parse(arguments);
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        std::string command = "bevy";
        for (const CLI::App* sub = &app; !sub->get_subcommands().empty();) {
            sub = sub->get_subcommands().front();
            command += " " + sub->get_name();
        }
        print_usage_error(first_line(error.what()),
                          source_hint(error.what(), outside) + "see " + command + " --help");
        return kExitUsage;
    }
    try {
        return dispatch(app, commands);
    } catch (const std::exception& error) {
        // No folder of ours throws; this is the machine's word, most likely "out of memory".
        print_error({ErrorCode::kIo, error.what(), "free memory, or give a smaller --memory"});
        return kExitFailure;
    }
}

}  // namespace bevy
