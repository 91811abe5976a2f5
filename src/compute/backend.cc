#include "compute/backend.h"

#include <mutex>

namespace bevy {

void load_backends() {
    static std::once_flag once;
    std::call_once(once, [] {
        ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        ggml_backend_load_all();
    });
}

ggml_backend_dev_t cpu_device() {
    load_backends();
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

Result<GgmlPtr<ggml_backend>> open_cpu_backend(uint32_t threads) {
    ggml_backend_dev_t device = cpu_device();
    GgmlPtr<ggml_backend> backend(device ? ggml_backend_dev_init(device, nullptr) : nullptr);
    if (!backend)
        return fail(ErrorCode::kUnsupported, "ggml has no CPU backend on this machine",
                    "install the package that holds ggml's CPU backends (Debian: libggml0)");
    auto set_threads =
        reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    if (set_threads)
        set_threads(backend.get(), static_cast<int>(threads));
    return backend;
}

}  // namespace bevy
