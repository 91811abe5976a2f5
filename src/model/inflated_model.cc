#include "model/inflated_model.h"

#include <fcntl.h>
#include <ggml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <format>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/units.h"
#include "model/gguf_header.h"
#include "model/header_reader.h"
#include "model/model_file.h"
#include "model/tensor_types.h"

namespace bevy {

namespace {

constexpr uint64_t kChunkBytes = 4 * kMiB;
constexpr std::string_view kKeyExpertFf = "{arch}.expert_feed_forward_length";
constexpr std::string_view kKeyInflatedFrom = "bevy.inflated_from";

// Tensors of routed experts, and which of their dimensions is the width.
struct ExpertTensor {
    std::string_view suffix;
    size_t width_dim;
    uint32_t parts = 1;        // matrices that share the dimension: gate, then up
    bool holds_units = false;  // a row or a number per unit; else a column per unit
};

constexpr std::array<ExpertTensor, 7> kExpertTensors = {{
    {"ffn_gate_exps.weight", 1, 1, true},
    {"ffn_up_exps.weight", 1, 1, true},
    {"ffn_gate_up_exps.weight", 1, 2, true},
    {"ffn_gate_exps.bias", 0, 1, true},
    {"ffn_up_exps.bias", 0, 1, true},
    {"ffn_gate_up_exps.bias", 0, 2, true},
    {"ffn_down_exps.weight", 0, 1, false},
}};

const ExpertTensor* expert_tensor(std::string_view name) {
    for (const ExpertTensor& tensor : kExpertTensors) {
        if (name.ends_with(tensor.suffix) &&
            name.substr(0, name.size() - tensor.suffix.size()).ends_with('.'))
            return &tensor;
    }
    return nullptr;
}

// Whether a block of zero bytes is a block of zeros; ggml knows.
bool is_zero_when_empty(const TensorType& type) {
    const ggml_to_float_t decode = ggml_get_type_traits(static_cast<ggml_type>(type.id))->to_float;
    if (type.id == GGML_TYPE_F32)
        return true;
    if (!decode)
        return false;
    const std::vector<std::byte> block(type.block_bytes);
    std::vector<float> weights(static_cast<size_t>(type.block_weights), 1.0f);
    decode(block.data(), weights.data(), type.block_weights);
    return std::ranges::all_of(weights, [](float weight) { return weight == 0.0f; });
}

// How the bytes of a tensor become those of the new one: so many times, copy `kept` bytes, then
// add `added` bytes.
struct CopyPlan {
    std::vector<int64_t> dims;
    uint64_t times = 1;
    uint64_t kept = 0;
    uint64_t added = 0;
    bool repeats = false;  // what is added are the kept bytes once more; else zeros
};

class InflationJob {
public:
    InflationJob(const InflatedModelSpec& spec, const ModelFile& model, const GgufHeader& header,
                 const std::string& architecture)
        : spec_(spec),
          model_(model),
          header_(header),
          writer_({.path = spec.path, .architecture = architecture, .overwrite = spec.overwrite}) {}

    Result<WrittenModel> run() {
        Status done = plan();
        if (done)
            done = open_source();
        if (done)
            done = write_head();
        for (size_t i = 0; done && i < plans_.size(); ++i)
            done = write_tensor(model_.tensors()[i], plans_[i]);
        if (done)
            done = writer_.finish();
        if (!done)
            return std::unexpected(done.error());
        return WrittenModel{writer_.paths(), writer_.data_bytes()};
    }

private:
    // The width of the experts, from the first down matrix; then how to copy each tensor.
    Status plan() {
        const auto down = std::ranges::find_if(model_.tensors(), [](const TensorInfo& tensor) {
            const ExpertTensor* kind = expert_tensor(tensor.name);
            return kind && !kind->holds_units;
        });
        if (down == model_.tensors().end())
            return fail(ErrorCode::kUnsupported, "'" + spec_.model + "' has no routed experts",
                        "name a mixture-of-experts model");
        width_ = down->dims[0];
        if (spec_.expert_ff <= width_)
            return fail(ErrorCode::kInvalidArgument,
                        std::format("the experts of '{}' are {} wide already", spec_.model, width_),
                        std::format("give an --expert-ff above {}", width_));
        for (const TensorInfo& tensor : model_.tensors()) {
            Result<CopyPlan> plan = plan_tensor(tensor);
            if (!plan)
                return std::unexpected(plan.error());
            plans_.push_back(std::move(*plan));
        }
        return {};
    }

    Result<CopyPlan> plan_tensor(const TensorInfo& tensor) const {
        const ExpertTensor* kind = expert_tensor(tensor.name);
        CopyPlan plan{.dims = tensor.dims, .kept = tensor.bytes};
        if (!kind)
            return plan;
        const TensorType type = *find_tensor_type(tensor.type);
        const int64_t parts = kind->parts;
        if (tensor.dims.size() <= kind->width_dim || tensor.dims[kind->width_dim] != parts * width_)
            return fail(ErrorCode::kCorruptFile,
                        std::format("tensor '{}' of '{}' does not have the width {} of the first "
                                    "experts",
                                    tensor.name, spec_.model, width_),
                        "only models whose experts are all of one width can be inflated");
        plan.dims[kind->width_dim] = parts * spec_.expert_ff;
        if (kind->width_dim == 0) {
            if (Status fits = check_type(tensor, type); !fits)
                return std::unexpected(fits.error());
            plan.kept = type.row_bytes(width_);
            plan.added = type.row_bytes(spec_.expert_ff) - plan.kept;
        } else {
            const uint64_t row = type.row_bytes(tensor.dims[0]);
            plan.kept = row * static_cast<uint64_t>(width_);
            plan.added = row * spec_.expert_ff - plan.kept;
        }
        plan.times = tensor.bytes / plan.kept;
        plan.repeats = kind->holds_units;
        return plan;
    }

    // Whether rows of `type` can be made longer. The present ones are whole blocks, or ModelFile
    // had refused the file.
    Status check_type(const TensorInfo& tensor, const TensorType& type) const {
        const std::string name = tensor_type_name(type.id);
        if (!is_zero_when_empty(type))
            return fail(ErrorCode::kUnsupported,
                        std::format("tensor '{}' is {}, which can't be padded with zeros",
                                    tensor.name, name),
                        "get the model in another quantisation");
        if (spec_.expert_ff % type.block_weights != 0)
            return fail(
                ErrorCode::kInvalidArgument,
                std::format("{} is not a multiple of {}, as tensor '{}' of type {} needs it",
                            spec_.expert_ff, type.block_weights, tensor.name, name),
                std::format("give --expert-ff {}",
                            round_up(spec_.expert_ff, static_cast<uint64_t>(type.block_weights))));
        return {};
    }

    Status open_source() {
        source_ = FileHandle(::open(spec_.model.c_str(), O_RDONLY | O_CLOEXEC));
        return source_.fd() >= 0 ? Status() : fail_read(errno);
    }

    std::unexpected<Error> fail_read(int error_number) const {
        return fail(
            ErrorCode::kIo,
            "can't read '" + spec_.model + "': " + std::generic_category().message(error_number),
            "check the disk and the file system");
    }

    Status read(uint64_t offset, std::span<std::byte> out) const {
        while (!out.empty()) {
            const ssize_t got =
                ::pread(source_.fd(), out.data(), out.size(), static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return fail_read(got < 0 ? errno : EIO);
            offset += static_cast<uint64_t>(got);
            out = out.subspan(static_cast<size_t>(got));
        }
        return {};
    }

    // All keys as they are, but for the width.
    Status write_head() {
        const std::string architecture = *model_.metadata().str(kGgufKeyArchitecture);
        const std::string width_key =
            architecture + std::string(kKeyExpertFf.substr(kKeyExpertFf.find('.')));
        for (const GgufKeyBytes& key : header_.key_bytes) {
            if (key.name == kGgufKeyArchitecture || key.name == kGgufKeyAlignment ||
                key.name == width_key)
                continue;
            std::string encoded(static_cast<size_t>(key.bytes), '\0');
            if (Status copied = read(key.offset, std::as_writable_bytes(std::span(encoded)));
                !copied)
                return copied;
            writer_.set_encoded(key.name, encoded);
        }
        writer_.set_u32(width_key, spec_.expert_ff);
        if (!model_.metadata().has(kKeyInflatedFrom))
            writer_.set_u32(kKeyInflatedFrom, static_cast<uint32_t>(width_));
        for (size_t i = 0; i < plans_.size(); ++i) {
            const TensorInfo& tensor = model_.tensors()[i];
            if (Status added = writer_.add_tensor(tensor.name, tensor.type, plans_[i].dims); !added)
                return added;
        }
        return writer_.begin_data();
    }

    Status write_tensor(const TensorInfo& tensor, const CopyPlan& plan) {
        // Whole groups of short rows are read at once; a long piece that is only copied need not
        // be held.
        const uint64_t piece =
            plan.repeats || plan.added > 0 ? plan.kept : std::min(plan.kept, kChunkBytes);
        const uint64_t run = std::max<uint64_t>(1, kChunkBytes / piece) * piece;
        uint64_t offset = tensor.offset;
        const uint64_t end = tensor.offset + plan.times * plan.kept;
        while (offset < end) {
            kept_.resize(static_cast<size_t>(std::min(run, end - offset)));
            if (Status got = read(offset, kept_); !got)
                return got;
            offset += kept_.size();
            if (Status written = plan.added == 0 ? write(kept_) : write_wider(plan, piece);
                !written)
                return written;
        }
        return {};
    }

    Status write_wider(const CopyPlan& plan, uint64_t piece) {
        for (std::span<const std::byte> rest(kept_); !rest.empty(); rest = rest.subspan(piece)) {
            const std::span<const std::byte> kept = rest.first(piece);
            if (Status written = write(kept); !written)
                return written;
            if (Status added =
                    add(plan.repeats ? kept : std::span<const std::byte>(zeros_), plan.added);
                !added)
                return added;
        }
        return {};
    }

    // `bytes` of the pattern, again and again.
    Status add(std::span<const std::byte> pattern, uint64_t bytes) {
        while (bytes > 0) {
            const auto run = static_cast<size_t>(std::min<uint64_t>(bytes, pattern.size()));
            if (Status written = write(pattern.first(run)); !written)
                return written;
            bytes -= run;
        }
        return {};
    }

    Status write(std::span<const std::byte> bytes) {
        if (Status written = writer_.write(bytes); !written)
            return written;
        bytes_done_ += bytes.size();
        // Once per chunk is often enough, and pieces may be rows.
        if (bytes_done_ < bytes_reported_ + kChunkBytes && bytes_done_ < writer_.data_bytes())
            return {};
        bytes_reported_ = bytes_done_;
        if (spec_.on_progress && !spec_.on_progress(bytes_done_, writer_.data_bytes()))
            return fail(ErrorCode::kCancelled, "writing '" + spec_.path + "' was given up");
        return {};
    }

    const InflatedModelSpec& spec_;
    const ModelFile& model_;
    const GgufHeader& header_;
    GgufWriter writer_;
    FileHandle source_;
    int64_t width_ = 0;            // of the experts now
    std::vector<CopyPlan> plans_;  // as the model's tensors
    std::vector<std::byte> kept_;
    std::vector<std::byte> zeros_ = std::vector<std::byte>(kChunkBytes);
    uint64_t bytes_done_ = 0;
    uint64_t bytes_reported_ = 0;
};

}  // namespace

Result<WrittenModel> write_inflated_model(const InflatedModelSpec& spec) {
    const Result<ModelFile> model = ModelFile::open(spec.model);
    if (!model)
        return std::unexpected(model.error());
    if (model->paths().size() > 1)
        return fail(ErrorCode::kUnsupported,
                    "'" + spec.model + "' is one of " + std::to_string(model->paths().size()) +
                        " files of a split model",
                    "merge them first: llama-gguf-split --merge");
    const Result<std::string> architecture = model->metadata().str(kGgufKeyArchitecture);
    if (!architecture)
        return std::unexpected(architecture.error());
    const Result<GgufHeader> header = read_gguf_header(spec.model);
    if (!header)
        return std::unexpected(header.error());
    return InflationJob(spec, *model, *header, *architecture).run();
}

}  // namespace bevy
