#include "compute/ggml_compute.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/assert.h"
#include "compute/step_runner.h"

namespace bevy {

// The compute thread and its hand-over. A step belongs to the thread from start() until its result
// is there; `state_` is the only thing both threads touch meanwhile.
class GgmlCompute::Impl {
public:
    Impl(std::unique_ptr<StepRunner> runner, Waker waker)
        : runner_(std::move(runner)), waker_(std::move(waker)), thread_([this] { work(); }) {}

    ~Impl() {
        {
            std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        started_.notify_one();
        thread_.join();
    }

    void start(ComputeStep step) {
        {
            std::lock_guard lock(mutex_);
            BEVY_ASSERT(state_ == State::kIdle);
            for (SeqIndex seq : abandoned_)
                runner_->abandon(seq);
            abandoned_.clear();
            step_ = std::move(step);
            state_ = State::kStarted;
        }
        started_.notify_one();
    }

    std::optional<StepResult> poll() {
        std::lock_guard lock(mutex_);
        if (state_ != State::kDone)
            return std::nullopt;
        state_ = State::kIdle;
        return std::move(result_);
    }

    // Engine thread only; takes effect while no step runs.
    void abandon(SeqIndex seq) { abandoned_.push_back(seq); }

    std::span<const float> logits(SeqIndex seq) const { return runner_->logits(seq); }

private:
    enum class State : uint8_t { kIdle, kStarted, kDone };

    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            started_.wait(lock, [&] { return stopping_ || state_ == State::kStarted; });
            if (stopping_)
                return;
            lock.unlock();
            StepResult result = runner_->run(step_);
            lock.lock();
            result_ = std::move(result);
            state_ = State::kDone;
            lock.unlock();
            if (waker_)
                waker_();
            lock.lock();
        }
    }

    std::unique_ptr<StepRunner> runner_;
    Waker waker_;
    std::mutex mutex_;
    std::condition_variable started_;
    State state_ = State::kIdle;
    bool stopping_ = false;
    ComputeStep step_;
    StepResult result_;
    std::vector<SeqIndex> abandoned_;
    std::thread thread_;
};

Result<ComputeMemory> GgmlCompute::memory_need(const ModelFile& file,
                                               const Architecture& architecture,
                                               const ModelShape& shape,
                                               const ComputeOptions& options) {
    auto runner = StepRunner::plan(file, architecture, shape, options, SlotLayout{}, 1);
    if (!runner)
        return std::unexpected(runner.error());
    return (*runner)->measure();
}

Result<ComputeShape> GgmlCompute::compute_shape(const ModelFile& file,
                                                const Architecture& architecture,
                                                const ModelShape& shape, uint32_t guessed_layers) {
    auto runner =
        StepRunner::plan(file, architecture, shape, {.context_per_sequence = 16}, SlotLayout{}, 1);
    if (!runner)
        return std::unexpected(runner.error());
    const StepTensors tensors = (*runner)->tensors();
    const ResidentWeights& weights = tensors.weights;
    ComputeShape result;
    result.moe_layers = tensors.moe_layers();
    result.experts_per_layer = shape.experts;
    result.experts_used = shape.experts_used;
    result.last_layer_is_moe = tensors.last_layer_is_moe();
    result.guessed_layers = guessed_layers;
    for (uint32_t stage = 0; stage <= result.moe_layers; stage++) {
        uint64_t bytes = 0;
        for (uint32_t block = tensors.first_block(stage); block < tensors.last_block(stage);
             block++)
            bytes += weights.block_bytes(block);
        if (stage == result.moe_layers) {
            uint64_t head = weights.tensor_bytes("output.weight");
            bytes += head ? head : weights.tensor_bytes("token_embd.weight");
        }
        result.dense_bytes.push_back(bytes);
    }
    return result;
}

Result<std::unique_ptr<GgmlCompute>> GgmlCompute::open(
    const ModelFile& file, const Architecture& architecture, const ModelShape& shape,
    const ComputeOptions& options, const SlotMemory& slots, Waker waker, const Clock& clock,
    const Progress& progress) {
    BEVY_ASSERT(slots.base != nullptr && slots.layout != nullptr && slots.slots > 0);
    auto runner = StepRunner::plan(file, architecture, shape, options, *slots.layout, slots.slots);
    if (!runner)
        return std::unexpected(runner.error());
    if (Status ok = (*runner)->load(file, slots.base, clock, progress); !ok)
        return std::unexpected(ok.error());
    auto impl = std::make_unique<Impl>(std::move(*runner), std::move(waker));
    return std::unique_ptr<GgmlCompute>(new GgmlCompute(std::move(impl)));
}

GgmlCompute::GgmlCompute(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgmlCompute::~GgmlCompute() = default;

void GgmlCompute::start(ComputeStep step) {
    impl_->start(std::move(step));
}

std::optional<StepResult> GgmlCompute::poll() {
    return impl_->poll();
}

void GgmlCompute::abandon(SeqIndex seq) {
    impl_->abandon(seq);
}

std::span<const float> GgmlCompute::logits(SeqIndex seq) const {
    return impl_->logits(seq);
}

}  // namespace bevy
