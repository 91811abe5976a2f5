#include "compute/tensor_store.h"

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

TensorStore::TensorStore(size_t tensors_max) {
    ggml_init_params params{};
    params.mem_size = ggml_tensor_overhead() * (tensors_max + 1);
    params.no_alloc = true;
    context_.reset(ggml_init(params));
    BEVY_ASSERT(context_ != nullptr);
}

uint64_t TensorStore::bytes(ggml_backend_buffer_type_t type) const {
    return ggml_backend_alloc_ctx_tensors_from_buft_size(context_.get(), type);
}

Status TensorStore::allocate(ggml_backend_buffer_type_t type, const std::string& what) {
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), type));
    if (!buffer_)
        return fail(ErrorCode::kBudget,
                    "no memory for " + what + " (" + format_bytes(bytes(type)) + ")",
                    "free memory, or choose a smaller context, fewer sequences or a smaller model");
    return {};
}

void TensorStore::pretend() {
    // Page 1 is never mapped, so a touch by mistake is a crash rather than a wrong number.
    void* nowhere = reinterpret_cast<void*>(uintptr_t{4096});
    for (ggml_tensor* tensor = ggml_get_first_tensor(context_.get()); tensor != nullptr;
         tensor = ggml_get_next_tensor(context_.get(), tensor))
        tensor->data = nowhere;
}

}  // namespace bevy
