#include "compute/resident_weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "base/units.h"

namespace bevy {

namespace {

std::string dims_text(const std::vector<int64_t>& dims) {
    std::string text = "[";
    for (size_t i = 0; i < dims.size(); i++)
        text += (i ? ", " : "") + std::to_string(dims[i]);
    return text + "]";
}

// GGUF drops trailing ones; so do we before comparing.
std::vector<int64_t> without_trailing_ones(std::vector<int64_t> dims) {
    while (dims.size() > 1 && dims.back() == 1)
        dims.pop_back();
    return dims;
}

std::string place_of(const ModelFile& file, const TensorInfo& info) {
    return "tensor '" + info.name + "' of " + file.paths()[info.file];
}

// Whether the device multiplies by (or, for an embedding, gathers rows of) a matrix of this type.
bool device_computes(ggml_backend_dev_t device, ggml_type type, int64_t in, int64_t out,
                     TensorRole role) {
    TensorStore store(8);
    ggml_context* ctx = store.context();
    ggml_tensor* op = nullptr;
    if (role == TensorRole::kExpert) {
        ggml_tensor* matrix = ggml_new_tensor_3d(ctx, type, in, out, 2);
        ggml_tensor* x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, in, 1, 2);
        op = ggml_mul_mat_id(ctx, matrix, x, ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, 2));
    } else if (role == TensorRole::kEmbedding) {
        ggml_tensor* matrix = ggml_new_tensor_2d(ctx, type, in, out);
        op = ggml_get_rows(ctx, matrix, ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 2));
    } else {
        ggml_tensor* matrix = ggml_new_tensor_2d(ctx, type, in, out);
        op = ggml_mul_mat(ctx, matrix, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, in, 2));
    }
    return ggml_backend_dev_supports_op(device, op);
}

Status check_tensor(const ModelFile& file, const TensorSpec& spec, const TensorInfo& info,
                    ggml_backend_dev_t device) {
    if (without_trailing_ones(info.dims) != without_trailing_ones(spec.dims))
        return fail(ErrorCode::kCorruptFile,
                    place_of(file, info) + " has the dimensions " + dims_text(info.dims) +
                        ", but the file's metadata call for " + dims_text(spec.dims));
    bool vector = spec.role == TensorRole::kNorm || spec.role == TensorRole::kVector;
    if (vector && info.type != GGML_TYPE_F32)
        return fail(ErrorCode::kUnsupported,
                    place_of(file, info) + " has type " + tensor_type_name(info.type) +
                        ", but Bevy reads it as F32 only",
                    "convert the model again; llama.cpp's converter keeps this tensor in F32");
    int64_t out = spec.dims.size() > 1 ? spec.dims[1] : 1;
    if (!vector &&
        !device_computes(device, static_cast<ggml_type>(info.type), spec.dims[0], out, spec.role))
        return fail(ErrorCode::kUnsupported,
                    place_of(file, info) + " has type " + tensor_type_name(info.type) +
                        ", which this machine's ggml backend can't compute",
                    "use another quantisation of the model, for example Q4_K_M or Q8_0");
    return {};
}

// A file opened for reading, closed at the end of its scope.
class InputFile {
public:
    explicit InputFile(const std::string& path)
        : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~InputFile() {
        if (descriptor_ >= 0)
            ::close(descriptor_);
    }
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    Status read(void* data, uint64_t bytes, uint64_t offset) const {
        if (descriptor_ < 0)
            return fail(ErrorCode::kIo, "can't open " + path_, "was the file moved?");
        auto* out = static_cast<char*>(data);
        while (bytes > 0) {
            ssize_t n = ::pread(descriptor_, out, bytes, static_cast<off_t>(offset));
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return fail(ErrorCode::kIo, "can't read " + path_ + ": " + std::strerror(errno));
            if (n == 0)
                return fail(ErrorCode::kCorruptFile,
                            path_ + " ends before offset " + std::to_string(offset + bytes));
            out += n;
            offset += static_cast<uint64_t>(n);
            bytes -= static_cast<uint64_t>(n);
        }
        return {};
    }

private:
    std::string path_;
    int descriptor_;
};

}  // namespace

ggml_tensor* ResidentWeights::find_in(const std::vector<Named>& list, std::string_view name) {
    for (const Named& named : list) {
        if (named.name == name)
            return named.tensor;
    }
    return nullptr;
}

Status ResidentWeights::add_expert(const ModelFile& file, const TensorSpec& spec,
                                   const TensorInfo& info, ggml_backend_dev_t device) {
    if (Status ok = check_tensor(file, spec, info, device); !ok)
        return ok;
    auto block = static_cast<uint32_t>(spec.layer);
    if (moe_blocks_.empty() || moe_blocks_.back().block != block)
        moe_blocks_.push_back({block, {}});
    moe_blocks_.back().slices.push_back(
        {static_cast<ggml_type>(info.type), spec.dims[0], spec.dims[1]});
    return {};
}

Status ResidentWeights::add(const ModelFile& file, const TensorSpec& spec,
                            ggml_backend_dev_t device) {
    const TensorInfo* info = file.find(spec.name);
    if (!info && spec.optional)
        return {};
    if (!info)
        return fail(ErrorCode::kCorruptFile,
                    "tensor '" + spec.name + "' is missing from " + file.paths()[0],
                    "the file is incomplete, or of another variant of this architecture");
    if (spec.role == TensorRole::kExpert)
        return add_expert(file, spec, *info, device);
    if (Status ok = check_tensor(file, spec, *info, device); !ok)
        return ok;
    auto type = static_cast<ggml_type>(info->type);
    int64_t dims[GGML_MAX_DIMS] = {1, 1, 1, 1};
    std::copy(spec.dims.begin(), spec.dims.end(), dims);
    ggml_tensor* tensor = ggml_new_tensor(store_.context(), type, GGML_MAX_DIMS, dims);
    ggml_set_name(tensor, spec.name.c_str());
    if (spec.layer < 0) {
        model_.push_back({spec.name, tensor, info});
    } else {
        size_t prefix = ("blk." + std::to_string(spec.layer) + ".").size();
        blocks_[static_cast<size_t>(spec.layer)].push_back(
            {spec.name.substr(prefix), tensor, info});
    }
    return {};
}

Result<ResidentWeights> ResidentWeights::describe(const ModelFile& file,
                                                  const Architecture& architecture,
                                                  const ModelShape& shape,
                                                  ggml_backend_dev_t device) {
    std::vector<TensorSpec> specs = architecture.tensors(shape);
    ResidentWeights weights(specs.size());
    weights.blocks_.resize(shape.layers);
    std::unordered_set<std::string> known;
    for (const TensorSpec& spec : specs) {
        if (Status ok = weights.add(file, spec, device); !ok)
            return std::unexpected(ok.error());
        known.insert(spec.name);
    }
    for (const TensorInfo& info : file.tensors()) {
        if (!known.contains(info.name))
            return fail(ErrorCode::kUnsupported,
                        place_of(file, info) + " is not known to the architecture '" +
                            std::string(architecture.name) + "'",
                        "the file is of a variant that Bevy does not support yet");
    }
    return weights;
}

Status ResidentWeights::load(const ModelFile& file, ggml_backend_buffer_type_t type,
                             const Progress& progress) {
    if (Status ok = store_.allocate(type, "the model's resident weights"); !ok)
        return ok;
    ggml_backend_buffer_set_usage(store_.buffer(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    std::vector<Named> all = model_;
    for (const std::vector<Named>& block : blocks_)
        all.insert(all.end(), block.begin(), block.end());
    std::ranges::sort(all, {},
                      [](const Named& n) { return std::pair(n.info->file, n.info->offset); });
    uint64_t total = 0;
    for (const Named& named : all)
        total += named.info->bytes;

    constexpr uint64_t kChunkBytes = 8 * kMiB;
    bool in_place = ggml_backend_buffer_is_host(store_.buffer());
    std::vector<char> staging(in_place ? 0 : kChunkBytes);
    uint64_t done = 0;
    for (size_t i = 0; i < all.size();) {
        const uint32_t file_index = all[i].info->file;
        InputFile input(file.paths()[file_index]);
        for (; i < all.size() && all[i].info->file == file_index; i++) {
            const TensorInfo& info = *all[i].info;
            for (uint64_t at = 0; at < info.bytes; at += kChunkBytes) {
                uint64_t length = std::min(kChunkBytes, info.bytes - at);
                char* target =
                    in_place ? static_cast<char*>(all[i].tensor->data) + at : staging.data();
                if (Status ok = input.read(target, length, info.offset + at); !ok)
                    return ok;
                if (!in_place)
                    ggml_backend_tensor_set(all[i].tensor, target, at, length);
                done += length;
                if (progress)
                    progress(done, total);
            }
        }
    }
    return {};
}

uint64_t ResidentWeights::block_bytes(uint32_t block) const {
    uint64_t bytes = 0;
    for (const Named& named : blocks_[block])
        bytes += ggml_nbytes(named.tensor);
    return bytes;
}

uint64_t ResidentWeights::tensor_bytes(std::string_view name) const {
    const ggml_tensor* tensor = find(name);
    return tensor ? ggml_nbytes(tensor) : 0;
}

}  // namespace bevy
