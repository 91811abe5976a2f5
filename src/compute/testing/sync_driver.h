// Drives a GgmlCompute without core and engine: runs passes to their end, under a plain schedule or
// a random one, with experts read into slots when they are needed. For tests and measurements only.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/units.h"
#include "compute/ggml_compute.h"

namespace bevy::testing {

class SyncDriver {
public:
    // `slots` 0: one per expert of the model.
    static Result<std::unique_ptr<SyncDriver>> open(const std::string& path,
                                                    const ComputeOptions& options,
                                                    uint32_t slots = 0, uint32_t phases = 1) {
        Result<ModelFile> file = ModelFile::open(path);
        if (!file)
            return std::unexpected(file.error());
        Result<std::string> name = file->metadata().str("general.architecture");
        if (!name)
            return std::unexpected(name.error());
        Result<const Architecture*> architecture = find_architecture(*name);
        if (!architecture)
            return std::unexpected(architecture.error());
        Result<ModelShape> shape = (*architecture)->read_shape(file->metadata());
        if (!shape)
            return std::unexpected(shape.error());
        auto driver = std::unique_ptr<SyncDriver>(
            new SyncDriver(std::move(*file), **architecture, *shape, options));
        if (Status ok = driver->start(slots, phases); !ok)
            return std::unexpected(ok.error());
        return driver;
    }

    ~SyncDriver() {
        compute_.reset();
        for (int descriptor : descriptors_)
            ::close(descriptor);
        std::free(memory_);
    }
    SyncDriver(const SyncDriver&) = delete;
    SyncDriver& operator=(const SyncDriver&) = delete;

    const ModelFile& file() const { return file_; }
    const Architecture& architecture() const { return architecture_; }
    const ModelShape& shape() const { return shape_; }
    const ComputeShape& compute_shape() const { return compute_shape_; }
    const ComputeOptions& options() const { return options_; }
    GgmlCompute& compute() { return *compute_; }
    std::span<const float> logits(uint32_t seq) const { return compute_->logits(SeqIndex(seq)); }
    uint64_t steps() const { return steps_; }
    Duration step_time() const { return step_time_; }

    // Hears, within run() and prefill(), of every sequence that a step has advanced. May be empty.
    std::function<void(uint32_t stage, const SeqResult& result)> on_result;

    // Every pass runs to its end. With `random`: in random groups, each step with a random part of
    // the experts that are wanted.
    void run(std::vector<PassInput> passes, Prng* random = nullptr) {
        std::vector<Running> waiting;
        for (PassInput& pass : passes)
            waiting.push_back({pass.seq, 0, pass.wants_logits, std::move(pass), {}});
        while (!waiting.empty())
            step(waiting, random);
    }

    // The prompt in chunks cut at multiples of chunk_tokens; logits of the last token afterwards.
    void prefill(uint32_t seq, std::span<const TokenId> tokens, Prng* random = nullptr) {
        for (const PassInput& pass : chunks(seq, tokens))
            run({pass}, random);
    }

    std::vector<PassInput> chunks(uint32_t seq, std::span<const TokenId> tokens) const {
        std::vector<PassInput> passes;
        for (size_t at = 0; at < tokens.size();) {
            size_t end =
                std::min(tokens.size(), (at / options_.chunk_tokens + 1) * options_.chunk_tokens);
            passes.push_back({SeqIndex(seq),
                              {tokens.begin() + at, tokens.begin() + end},
                              static_cast<uint32_t>(at),
                              end == tokens.size()});
            at = end;
        }
        return passes;
    }

    static PassInput one_token(uint32_t seq, TokenId token, uint32_t position) {
        return {SeqIndex(seq), {token}, position, true};
    }

    // A step as is; waits for its result.
    StepResult run_step(ComputeStep step) {
        compute_->start(std::move(step));
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [&] { return woken_; });
        woken_ = false;
        std::optional<StepResult> result = compute_->poll();
        BEVY_ASSERT(result.has_value() && !result->error.has_value());
        steps_++;
        step_time_ += result->finished - result->started;
        return std::move(*result);
    }

    // The slot that holds the expert, filled now if it did not; `keep` slots are not evicted.
    SlotIndex slot_of(LayerIndex layer, ExpertIndex expert, const std::vector<bool>& keep,
                      Prng* random) {
        auto key = std::pair(layer.value, expert.value);
        if (auto found = resident_.find(key); found != resident_.end())
            return SlotIndex(found->second);
        std::vector<uint32_t> choices;
        for (uint32_t slot = 0; slot < slots_; slot++) {
            if (!keep[slot] && (random || !holder_[slot]))
                choices.push_back(slot);
        }
        if (choices.empty()) {
            for (uint32_t slot = 0; slot < slots_; slot++) {
                if (!keep[slot])
                    choices.push_back(slot);
            }
        }
        BEVY_ASSERT(!choices.empty());
        uint32_t slot = choices[random ? random->below(choices.size()) : 0];
        if (holder_[slot])
            resident_.erase(*holder_[slot]);
        holder_[slot] = key;
        resident_[key] = slot;
        load(layer, expert, slot);
        return SlotIndex(slot);
    }

    uint32_t slots() const { return slots_; }
    uint64_t slot_memory_bytes() const { return layout_.slot_bytes * slots_; }

private:
    struct Running {
        SeqIndex seq;
        uint32_t stage = 0;
        bool wants_logits = false;
        PassInput input;
        std::vector<ExpertIndex> wanted;  // experts of MoE layer stage - 1 not computed yet
    };

    SyncDriver(ModelFile file, const Architecture& architecture, const ModelShape& shape,
               const ComputeOptions& options)
        : file_(std::move(file)), architecture_(architecture), shape_(shape), options_(options) {}

    Status start(uint32_t slots, uint32_t phases) {
        Result<ComputeShape> shape =
            GgmlCompute::compute_shape(file_, architecture_, shape_, options_.guessed_layers);
        if (!shape)
            return std::unexpected(shape.error());
        compute_shape_ = *shape;
        for (const std::string& path : file_.paths())
            descriptors_.push_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        int32_t last = -1;
        for (const TensorSpec& spec : architecture_.tensors(shape_)) {
            if (spec.role != TensorRole::kExpert)
                continue;
            if (spec.layer != last)
                slices_.emplace_back();
            last = spec.layer;
            slices_.back().push_back(file_.find(spec.name));
        }
        for (const auto& layer : slices_) {
            uint64_t end = 0;
            auto& out = layout_.layers.emplace_back();
            for (const TensorInfo* slice : layer) {
                SlotSlice& place = out.emplace_back();
                place.offsets.clear();
                for (uint32_t phase = 0; phase < phases; phase++)
                    place.offsets.push_back(end + 32 * (phases - 1 - phase));
                end = round_up(place.offsets.front() + slice->bytes / shape_.experts, 32);
            }
            layout_.slot_bytes = std::max(layout_.slot_bytes, round_up(end, 4096));
        }
        slots_ = slots ? slots : shape_.experts * static_cast<uint32_t>(slices_.size());
        memory_ = static_cast<char*>(std::aligned_alloc(4096, layout_.slot_bytes * slots_));
        BEVY_ASSERT(memory_ != nullptr);
        // What was never loaded must not matter: not a number in every type that has one.
        std::fill(memory_, memory_ + layout_.slot_bytes * slots_, static_cast<char>(0xff));
        holder_.resize(slots_);
        auto compute =
            GgmlCompute::open(file_, architecture_, shape_, options_, {memory_, slots_, &layout_},
                              [this] {
                                  std::lock_guard lock(mutex_);
                                  woken_ = true;
                                  finished_.notify_one();
                              },
                              clock_, {});
        if (!compute)
            return std::unexpected(compute.error());
        compute_ = std::move(*compute);
        return {};
    }

    void load(LayerIndex layer, ExpertIndex expert, uint32_t slot) {
        for (size_t i = 0; i < slices_[layer.value].size(); i++) {
            const TensorInfo& info = *slices_[layer.value][i];
            uint64_t bytes = info.bytes / shape_.experts;
            char* target =
                memory_ + slot * layout_.slot_bytes + layout_.layers[layer.value][i].offset(expert);
            ssize_t n = ::pread(descriptors_[info.file], target, bytes,
                                static_cast<off_t>(info.offset + expert.value * bytes));
            BEVY_ASSERT(n == static_cast<ssize_t>(bytes));
        }
    }

    void step(std::vector<Running>& waiting, Prng* random) {
        // The plain schedule keeps everybody together: the least advanced stage first.
        uint32_t stage = std::ranges::min_element(waiting, {}, &Running::stage)->stage;
        if (random)
            stage = waiting[random->below(waiting.size())].stage;
        ComputeStep step;
        step.stage = stage;
        step.wants_guesses = true;
        std::vector<bool> keep(slots_, false);
        uint32_t kept = 0;
        for (Running& running : waiting) {
            if (running.stage != stage || (random && random->chance(1, 3)))
                continue;
            std::vector<ExpertIndex> left;
            for (ExpertIndex expert : running.wanted) {
                if ((random && random->chance(1, 3)) || kept == slots_) {
                    left.push_back(expert);
                    continue;
                }
                SlotIndex slot = slot_of(LayerIndex(stage - 1), expert, keep, random);
                kept += keep[slot.value] ? 0 : 1;
                keep[slot.value] = true;
                step.uses.push_back({running.seq, expert, slot});
            }
            running.wanted = std::move(left);
            if (running.wanted.empty() && !(random && random->chance(1, 4))) {
                step.advancing.push_back(running.seq);
                if (stage == 0)
                    step.passes.push_back(running.input);
            }
        }
        std::ranges::sort(step.uses, {},
                          [](const ExpertUse& use) { return std::pair(use.expert, use.seq); });
        sort_advancing(step);
        if (step.uses.empty() && step.advancing.empty())
            return;
        StepResult result = run_step(step);
        for (const SeqResult& advanced : result.results) {
            auto running = std::ranges::find(waiting, advanced.seq, &Running::seq);
            running->stage++;
            if (on_result)
                on_result(stage, advanced);
            for (const RoutedExpert& routed : advanced.route)
                running->wanted.push_back(routed.expert);
            if (advanced.route.empty())
                waiting.erase(running);
        }
    }

    static void sort_advancing(ComputeStep& step) {
        std::ranges::sort(step.advancing);
        std::ranges::sort(step.passes, {}, &PassInput::seq);
    }

    ModelFile file_;
    const Architecture& architecture_;
    ModelShape shape_;
    ComputeOptions options_;
    ComputeShape compute_shape_;
    std::vector<int> descriptors_;
    std::vector<std::vector<const TensorInfo*>> slices_;
    SlotLayout layout_;
    uint32_t slots_ = 0;
    char* memory_ = nullptr;
    std::vector<std::optional<std::pair<uint32_t, uint32_t>>> holder_;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> resident_;
    SystemClock clock_;
    std::mutex mutex_;
    std::condition_variable finished_;
    bool woken_ = false;
    uint64_t steps_ = 0;
    Duration step_time_;
    std::unique_ptr<GgmlCompute> compute_;
};

}  // namespace bevy::testing
