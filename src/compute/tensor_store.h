// A set of tensors that live as long as the store, in one buffer of the backend.
//
// Usage: create tensors in context(), then allocate() once. pretend() instead gives every tensor an
// address that must not be touched: enough to build and measure graphs before any memory is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace bevy {

struct GgmlDeleter {
    void operator()(ggml_context* context) const { ggml_free(context); }
    void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
    void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
    void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
};
template <class T>
using GgmlPtr = std::unique_ptr<T, GgmlDeleter>;

class TensorStore {
public:
    // `tensors_max` tensors, views included, may be created in context().
    explicit TensorStore(size_t tensors_max);

    ggml_context* context() const { return context_.get(); }
    // What allocate() takes.
    uint64_t bytes(ggml_backend_buffer_type_t type) const;
    // kBudget, naming `what`, when the backend has no memory for it.
    Status allocate(ggml_backend_buffer_type_t type, const std::string& what);
    void pretend();
    ggml_backend_buffer_t buffer() const { return buffer_.get(); }

private:
    GgmlPtr<ggml_context> context_;
    GgmlPtr<ggml_backend_buffer> buffer_;
};

}  // namespace bevy
