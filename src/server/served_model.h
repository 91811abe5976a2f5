// A model that is ready to generate, as the server needs it. Whoever opened the model fills this
// in.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_thread.h"
#include "text/chat_template.h"
#include "text/llama_vocabulary.h"

namespace bevy {

// For clients that want to know; nothing depends on it.
struct ModelFacts {
    std::string path;
    std::string type;  // of most of its weights, for example "Q8_0"; may be empty
    uint64_t bytes = 0;
    uint64_t parameters = 0;
    uint32_t context_train = 0;
    uint32_t embedding = 0;
    uint32_t experts = 0;       // of the whole model
    uint32_t expert_slots = 0;  // that fit into the cache
};

// Immutable but for the engine, which any thread may call. Outlives the server's last request.
struct ServedModel {
    ModelFacts facts;
    const LlamaVocabulary* vocabulary = nullptr;
    const ChatTemplate* chat_template = nullptr;
    EngineThread* engine = nullptr;
    uint32_t context = 0;  // tokens of one request, prompt and reply together
    uint32_t parallel = 0;
};

}  // namespace bevy
