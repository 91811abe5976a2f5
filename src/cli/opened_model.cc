#include "cli/opened_model.h"

#include <algorithm>
#include <array>
#include <format>
#include <map>
#include <unordered_map>
#include <utility>
#include <variant>

namespace bevy {
namespace {

constexpr uint32_t kContextDefaultMax = 4096;
constexpr uint32_t kContextMin = 8;  // less holds no prompt and reply

bool has_experts(const ModelFile& file) {
    return std::ranges::any_of(
        file.tensors(), [](const TensorInfo& tensor) { return tensor.name.contains("_exps"); });
}

// libllama aborts when two tokens have the same text; it names empty ones itself.
// Kinds of tokenizers that the supported architectures come with. libllama knows more, of which
// some loop for minutes over a vocabulary that was made for another kind.
constexpr std::array<std::string_view, 2> kTokenizers = {"gpt2", "llama"};

Status check_tokenizer(const ModelFile& file) {
    Result<std::string> kind = file.metadata().str("tokenizer.ggml.model");
    if (!kind)
        return std::unexpected(kind.error());
    if (std::ranges::find(kTokenizers, *kind) == kTokenizers.end())
        return fail(
            ErrorCode::kUnsupported,
            std::format("'{}' has a tokenizer of the kind '{}'", file.paths().front(), *kind),
            "supported: gpt2 (byte pairs), llama (SentencePiece)");
    return {};
}

Status check_tokens(const ModelFile& file) {
    constexpr const char* kTokens = "tokenizer.ggml.tokens";
    const MetadataValue* value = file.metadata().find(kTokens);
    const auto* tokens = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
    if (tokens == nullptr)
        return {};  // libllama refuses it
    std::unordered_map<std::string, size_t> first_with;
    for (size_t i = 0; i < tokens->size(); ++i) {
        // It ends texts at a NUL character.
        const std::string text = (*tokens)[i].c_str();
        const auto [other, added] =
            first_with.emplace(text.empty() ? std::format("[EMPTY_{}]", i) : text, i);
        if (!added)
            return fail(ErrorCode::kCorruptFile,
                        std::format("'{}': {} has the same text for tokens {} and {}",
                                    file.paths().front(), kTokens, other->second, i),
                        "convert the model again or get another GGUF of it");
    }
    return {};
}

}  // namespace

Result<OpenedModel> open_model(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    if (!file)
        return std::unexpected(file.error());
    if (!has_experts(*file))
        return fail(ErrorCode::kUnsupported, "'" + path + "' is a dense model: no experts",
                    "use llama.cpp for it; Bevy is for mixture-of-experts models");
    OpenedModel model;
    model.file = std::move(*file);
    Result<std::string> name = model.file.metadata().str("general.architecture");
    if (!name)
        return std::unexpected(name.error());
    Result<const Architecture*> architecture = find_architecture(*name);
    if (!architecture)
        return std::unexpected(architecture.error());
    model.architecture = *architecture;
    Result<ModelShape> shape = model.architecture->read_shape(model.file.metadata());
    if (!shape)
        return std::unexpected(shape.error());
    model.shape = std::move(*shape);

    std::map<int32_t, std::vector<std::string>> slices_by_layer;
    uint64_t expert_bytes = 0;
    uint64_t all_bytes = 0;
    for (const TensorSpec& spec : model.architecture->tensors(model.shape)) {
        if (spec.role == TensorRole::kExpert)
            slices_by_layer[spec.layer].push_back(spec.name);
    }
    std::vector<std::vector<std::string>> layer_slices;
    for (auto& [layer, slices] : slices_by_layer)
        layer_slices.push_back(std::move(slices));
    Result<IndexedExperts> experts = index_experts(model.file, layer_slices, model.shape.experts);
    if (!experts)
        return std::unexpected(experts.error());
    model.experts = std::move(*experts);
    for (const TensorInfo& tensor : model.file.tensors())
        all_bytes += tensor.bytes;
    expert_bytes = model.experts.table.total_bytes();
    model.resident_bytes = all_bytes - std::min(all_bytes, expert_bytes);
    return model;
}

Result<std::unique_ptr<LlamaVocabulary>> open_vocabulary(const OpenedModel& model) {
    const std::string& path = model.file.paths().front();
    if (Status status = check_tokenizer(model.file); !status)
        return std::unexpected(status.error());
    if (Status status = check_tokens(model.file); !status)
        return std::unexpected(status.error());
    Result<std::unique_ptr<LlamaVocabulary>> vocabulary = LlamaVocabulary::open(path);
    if (vocabulary && (*vocabulary)->vocabulary_size() != model.shape.vocabulary)
        return fail(ErrorCode::kCorruptFile,
                    std::format("'{}' has {} tokens, but rows for {}", path,
                                (*vocabulary)->vocabulary_size(), model.shape.vocabulary),
                    "use another file of this model");
    return vocabulary;
}

Result<uint32_t> choose_context(const ModelShape& shape, uint32_t wanted, uint32_t parallel) {
    if (wanted == 0)
        return std::min(shape.context_train, kContextDefaultMax);
    const uint32_t each = wanted / parallel;
    if (each > shape.context_train)
        return fail(ErrorCode::kBudget,
                    std::format("--ctx-size {} gives each of {} requests {} tokens, more than the "
                                "model's context of {}",
                                wanted, parallel, each, shape.context_train),
                    std::format("give -c {} or less", uint64_t{shape.context_train} * parallel));
    if (each < kContextMin)
        return fail(ErrorCode::kBudget,
                    std::format("--ctx-size {} leaves each of {} requests {} tokens of context",
                                wanted, parallel, each),
                    std::format("give -c {} or more, or a smaller -np", kContextMin * parallel));
    return each;
}

}  // namespace bevy
