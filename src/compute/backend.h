// The ggml backend that computes: loaded at run time, set to a number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "compute/tensor_store.h"

namespace bevy {

// Loads ggml's backend libraries once per process and silences ggml's own log. Any thread.
void load_backends();

// The CPU backend with `threads` workers. kUnsupported when no CPU backend is installed.
Result<GgmlPtr<ggml_backend>> open_cpu_backend(uint32_t threads);

// The CPU backend's device, for questions before anything is opened. Null: none is installed.
ggml_backend_dev_t cpu_device();

}  // namespace bevy
