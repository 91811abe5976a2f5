// What the kinds of bevy make-model share: options to a random model's spec, and the writing of a
// file with progress, interruption and report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "cli/make_model_options.h"
#include "model/gguf_writer.h"
#include "model/random_model.h"

namespace bevy {

// Bytes done and in all; false gives up.
using WriteProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Errors: kInvalidArgument (sizes that contradict each other, an unknown type), kUnsupported.
Result<RandomModelSpec> random_model_spec(const RandomModelOptions& options);

// The type `name`; `flag` is for the error.
Result<int32_t> type_named(const char* flag, const std::string& name);

// Runs `write` with a progress line, and prints what was written, or the error. Returns the exit
// code.
int write_model(const std::function<Result<WrittenModel>(const WriteProgress&)>& write);

// Prints an error of options that were refused before anything was written; returns the exit code.
int refuse(const Error& error);

}  // namespace bevy
