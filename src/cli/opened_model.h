// A model file as the commands look at it before any weight is read: shape, experts, sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "compute/arch/arch.h"
#include "model/expert_index.h"
#include "model/model_file.h"
#include "model/model_shape.h"
#include "text/llama_vocabulary.h"

namespace bevy {

struct OpenedModel {
    ModelFile file;
    const Architecture* architecture = nullptr;
    ModelShape shape;
    IndexedExperts experts;
    uint64_t resident_bytes = 0;  // tensors that are not routed experts
};

// Opens and checks the file. Errors beyond those of ModelFile: kUnsupported for models without
// experts and for unknown architectures.
Result<OpenedModel> open_model(const std::string& path);

// The model's tokenizer, checked before libllama sees it. Errors: kCorruptFile, kUnsupported.
Result<std::unique_ptr<LlamaVocabulary>> open_vocabulary(const OpenedModel& model);

// The context of each of `parallel` requests, in tokens: its part of `wanted`, or for 0 the
// model's, at most 4096. kBudget when the model was not trained for so much, or when nothing is
// left.
Result<uint32_t> choose_context(const ModelShape& shape, uint32_t wanted, uint32_t parallel);

}  // namespace bevy
