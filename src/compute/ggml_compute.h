// Compute on ggml's CPU backend: resident weights, attention memory and activations in its own
// buffers, experts in the caller's slots, one thread that runs the steps.
//
// All memory is taken by open(); memory_need() says beforehand how much that will be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/slot_layout.h"
#include "compute/arch/arch.h"
#include "compute/compute.h"
#include "model/model_file.h"

namespace bevy {

struct ComputeOptions {
    uint32_t sequences = 1;
    uint32_t context_per_sequence = 4096;  // tokens
    uint32_t chunk_tokens = 256;           // most tokens of one pass
    uint32_t prefill_lanes = 1;            // passes of more than one token that may run at once
    uint32_t threads = 1;
    std::string type_k = "f16";
    std::string type_v = "f16";
    uint32_t guessed_layers = 0;  // see SeqResult::guesses; 0 costs nothing
};

// Slots in host memory: `slots` times layout.slot_bytes from `base` on, which is aligned to 32
// bytes. The memory outlives the GgmlCompute; a slot's bytes are read only by steps that name it.
struct SlotMemory {
    void* base = nullptr;
    uint32_t slots = 0;
    const SlotLayout* layout = nullptr;
};

// Bytes. What open() and all steps take at most, slots themselves aside.
struct ComputeMemory {
    uint64_t resident = 0;       // weights that are not routed experts
    uint64_t kv = 0;             // attention memory of all sequences
    uint64_t activations = 0;    // rows, masks, logits
    uint64_t graph = 0;          // intermediate tensors of a step, graph bookkeeping
    uint64_t work = 0;           // scratch of ggml's threads
    uint64_t work_per_slot = 0;  // the part of it that grows with the number of slots

    uint64_t total(uint32_t slots) const {
        return resident + kv + activations + graph + work + work_per_slot * slots;
    }
};

class GgmlCompute final : public Compute {
public:
    using Waker = std::function<void()>;
    using Progress = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

    // Errors of both: a file that does not fit its architecture, unknown cache types, types that
    // the backend can't compute. Reads no weights.
    static Result<ComputeMemory> memory_need(const ModelFile& file,
                                             const Architecture& architecture,
                                             const ModelShape& shape,
                                             const ComputeOptions& options);
    static Result<ComputeShape> compute_shape(const ModelFile& file,
                                              const Architecture& architecture,
                                              const ModelShape& shape, uint32_t guessed_layers = 0);

    // Loads the resident weights and starts the compute thread. `waker` is called from that thread
    // when a step finishes; `clock` outlives the result.
    static Result<std::unique_ptr<GgmlCompute>> open(const ModelFile& file,
                                                     const Architecture& architecture,
                                                     const ModelShape& shape,
                                                     const ComputeOptions& options,
                                                     const SlotMemory& slots, Waker waker,
                                                     const Clock& clock, const Progress& progress);
    ~GgmlCompute() override;

    void start(ComputeStep step) override;
    std::optional<StepResult> poll() override;
    void abandon(SeqIndex seq) override;
    std::span<const float> logits(SeqIndex seq) const override;

private:
    class Impl;
    explicit GgmlCompute(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bevy
