#include "sim/step_cost.h"

namespace bevy {

namespace {

Duration scaled(Duration cost, uint32_t per_mille) {
    return {cost.ns * per_mille / 1000};
}

Duration time_of(uint64_t bytes, uint64_t bytes_per_second) {
    __extension__ using Wide = unsigned __int128;
    return {static_cast<int64_t>(Wide{bytes} * 1'000'000'000 / bytes_per_second)};
}

}  // namespace

StepCosts::StepCosts(const HardwareProfile& hardware, const ModelProfile& model)
    : memory_bytes_per_second_(hardware.memory_bytes_per_second),
      expert_bytes_(model.expert_bytes),
      dense_bytes_(model.layers + 1, model.layer_bytes),
      launch_(hardware.launch),
      pair_(scaled(hardware.pair, model.pair_per_mille)),
      layer_(scaled(hardware.layer, model.layer_per_mille)),
      head_(scaled(hardware.head, model.head_per_mille)),
      transfer_(time_of(model.expert_bytes, hardware.link_bytes_per_second)) {
    dense_bytes_.front() += model.entry_bytes;
    dense_bytes_.back() = model.head_bytes;
}

StepCost StepCosts::of(const StepWork& work) const {
    uint64_t bytes = work.experts * expert_bytes_;
    Duration processor = launch_ + pair_ * work.pairs;
    if (work.advances) {
        bytes += dense_bytes_[work.stage];
        processor += (work.stage + 1 == dense_bytes_.size() ? head_ : layer_) * work.rows;
    }
    return {.processor = processor, .memory = time_of(bytes, memory_bytes_per_second_)};
}

}  // namespace bevy
