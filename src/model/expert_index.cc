#include "model/expert_index.h"

#include <limits>
#include <optional>

#include "base/assert.h"
#include "model/tensor_types.h"

namespace bevy {

namespace {

constexpr std::string_view kHint = "convert the model again or get another GGUF of it";

std::string dims_text(const std::vector<int64_t>& dims) {
    std::string text;
    for (const int64_t dim : dims)
        text += (text.empty() ? "" : " x ") + std::to_string(dim);
    return text;
}

struct Slice {
    ExpertSlice place;
    ExpertSliceInfo info;
};

Result<Slice> index_slice(const ModelFile& model, const std::string& name, uint32_t experts) {
    const TensorInfo* tensor = model.find(name);
    const std::string& path = model.paths().front();
    if (!tensor)
        return fail(ErrorCode::kNotFound, "'" + path + "' has no tensor '" + name + "'",
                    "the model may be of an older or newer layout; " + std::string(kHint));
    // Trailing ones are dropped, so a layer with one expert has two dimensions.
    const size_t rank = tensor->dims.size();
    const int64_t ne1 = rank > 1 ? tensor->dims[1] : 1;
    const int64_t count = rank > 2 ? tensor->dims[2] : 1;
    if (rank > 3 || count != int64_t{experts})
        return fail(ErrorCode::kCorruptFile,
                    "tensor '" + name + "' of '" + path + "' is " + dims_text(tensor->dims) +
                        ", expected " + std::to_string(experts) + " experts as the last dimension",
                    std::string(kHint));
    const std::optional<TensorType> type = find_tensor_type(tensor->type);
    BEVY_ASSERT(type);  // ModelFile has checked types and sizes
    const uint64_t row_bytes = type->row_bytes(tensor->dims[0]);
    const uint64_t expert_bytes = row_bytes * static_cast<uint64_t>(ne1);
    BEVY_ASSERT(expert_bytes * experts == tensor->bytes);
    return Slice{{tensor->file, tensor->offset, expert_bytes},
                 {tensor->type, tensor->dims[0], ne1, row_bytes}};
}

Status check_same_dims(const ModelFile& model, const std::string& first_name,
                       const ExpertSliceInfo& first, const std::string& name,
                       const ExpertSliceInfo& slice) {
    if (first.ne0 == slice.ne0 && first.ne1 == slice.ne1)
        return {};
    return fail(ErrorCode::kCorruptFile,
                "the experts of '" + name + "' in '" + model.paths().front() + "' are " +
                    dims_text({slice.ne0, slice.ne1}) + ", but those of '" + first_name + "' are " +
                    dims_text({first.ne0, first.ne1}),
                std::string(kHint));
}

}  // namespace

Result<IndexedExperts> index_experts(const ModelFile& model,
                                     std::span<const std::vector<std::string>> layer_slices,
                                     uint32_t experts) {
    if (experts == 0 || layer_slices.empty())
        return fail(ErrorCode::kUnsupported,
                    "'" + model.paths().front() + "' has no routed experts",
                    "use a mixture-of-experts model");
    // ExpertId has 32 bits.
    if (layer_slices.size() > std::numeric_limits<uint32_t>::max() / experts)
        return fail(ErrorCode::kCorruptFile,
                    "'" + model.paths().front() + "' says that it has " + std::to_string(experts) +
                        " experts in each of " + std::to_string(layer_slices.size()) + " layers",
                    std::string(kHint));
    IndexedExperts indexed;
    indexed.table.experts_per_layer = experts;
    for (const std::vector<std::string>& names : layer_slices) {
        BEVY_ASSERT(!names.empty() && names.size() == layer_slices[0].size());
        LayerExperts layer;
        std::vector<ExpertSliceInfo> infos;
        for (const std::string& name : names) {
            const Result<Slice> slice = index_slice(model, name, experts);
            if (!slice)
                return std::unexpected(slice.error());
            if (!indexed.slices.empty()) {
                const size_t s = infos.size();
                Status same = check_same_dims(model, layer_slices[0][s], indexed.slices[0][s], name,
                                              slice->info);
                if (!same)
                    return std::unexpected(same.error());
            }
            layer.slices.push_back(slice->place);
            infos.push_back(slice->info);
        }
        indexed.table.layers.push_back(std::move(layer));
        indexed.slices.push_back(std::move(infos));
    }
    return indexed;
}

}  // namespace bevy
