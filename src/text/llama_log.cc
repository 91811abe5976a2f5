#include "text/llama_log.h"

#include <llama.h>

#include <mutex>
#include <utility>

namespace bevy {
namespace {

constexpr size_t kMessageBytesMax = 500;

thread_local std::string first_error;

void on_llama_log(ggml_log_level level, const char* text, void*) {
    if (level != GGML_LOG_LEVEL_ERROR || !first_error.empty() || text == nullptr)
        return;
    first_error.assign(text);
    while (!first_error.empty() && first_error.back() == '\n')
        first_error.pop_back();
    if (first_error.size() > kMessageBytesMax)
        first_error.resize(kMessageBytesMax);
}

}  // namespace

void capture_llama_log() {
    static std::once_flag once;
    std::call_once(once, [] { llama_log_set(on_llama_log, nullptr); });
}

std::string take_llama_error() {
    return std::exchange(first_error, {});
}

}  // namespace bevy
