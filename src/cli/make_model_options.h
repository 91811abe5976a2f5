// What the user can say to bevy make-model: which kind of model file, and how it is to be.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace bevy {

struct ModelOutputOptions {
    std::string path;
    bool force = false;
};

struct RandomModelOptions {
    std::string architecture = "qwen3moe";
    uint32_t layers = 4;
    uint32_t experts = 32;
    uint32_t used = 4;
    uint32_t embedding = 256;
    uint32_t heads = 4;
    uint32_t heads_kv = 2;
    uint32_t head_size = 64;
    uint32_t expert_ff = 256;
    uint32_t vocabulary = 512;
    uint32_t context = 4096;
    std::string type = "q8_0";
    std::string type_down;  // empty: as `type`
    uint64_t seed = 1;
    ModelOutputOptions output;
};

struct ReplayModelOptions {
    std::string shape = "custom";
    std::string trace;  // path of recorded routes; empty: generated ones
    bool generated = false;
    uint32_t requests = 16;
    uint32_t steps = 100;
    uint32_t skip = 0;
    // 0: as many as the trace has, or the chains need. type_down is not used.
    RandomModelOptions model = {.layers = 0, .experts = 0, .used = 0, .vocabulary = 0};
};

struct VerifyReplayOptions {
    std::string model;
    std::string input = "-";  // "-": standard input
};

struct InflateModelOptions {
    std::string model;
    uint32_t expert_ff = 0;
    ModelOutputOptions output;
};

struct MakeModelOptions {
    enum class Kind : uint8_t { kRandom, kInflate, kReplay, kVerifyReplay };
    Kind kind = Kind::kRandom;
    RandomModelOptions random;
    InflateModelOptions inflate;
    ReplayModelOptions replay;
    VerifyReplayOptions verify;
};

// Declares the options; parsing fills the struct, which must outlive `app`.
void declare_make_model_options(CLI::App& app, MakeModelOptions& options);

}  // namespace bevy
