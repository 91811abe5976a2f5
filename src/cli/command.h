// The commands of the bevy program, and what they share: exit codes and how errors look.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "cli/bench_options.h"
#include "cli/calibrate_options.h"
#include "cli/make_model_options.h"
#include "cli/options.h"
#include "cli/serve_options.h"
#include "cli/sim_options.h"

namespace bevy {

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;

// "bevy: error: message", and the hint on a line of its own, to standard error.
void print_error(const Error& error);
// The same, for a mistake in the command line.
void print_usage_error(std::string_view message, std::string_view hint);
// "bevy: notice: message" to standard error.
void print_notice(std::string_view message);

// kExitUsage for what the user said wrong, else kExitFailure.
int exit_code_of(const Error& error);
// Prints the error; returns its exit code.
int fail_with(const Error& error);

// Each returns the exit code of the process.
int run_command(const RunOptions& options);
int inspect_command(const InspectOptions& options);
int make_model_command(const MakeModelOptions& options);
// The kinds of models that it writes, and the check of a replay's output.
int random_model_command(const RandomModelOptions& options);
int replay_model_command(const ReplayModelOptions& options);
int verify_replay_command(const VerifyReplayOptions& options);
int inflate_model_command(const InflateModelOptions& options);
int sim_command(const SimOptions& options);
int bench_command(const BenchOptions& options);
int calibrate_command(const CalibrateOptions& options);

int serve_command(ServeOptions& options);

// The whole program. The caller's main() does nothing else.
int run_cli(int argc, const char* const* argv);

}  // namespace bevy
