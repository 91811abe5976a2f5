// What things cost, learned from what they did cost: time per weight byte of a step, time between
// arrivals while the link is busy, and how much of its time the link has to spare. Integers; used
// only to bound how long a group waits for a joiner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace bevy {

class CostModel {
public:
    CostModel(std::vector<uint64_t> dense_bytes, uint64_t expert_bytes)
        : dense_bytes_(std::move(dense_bytes)), expert_bytes_(expert_bytes) {}

    void on_step(uint32_t stage, uint32_t distinct_experts, bool dense, Duration duration) {
        steps_++;
        uint64_t bytes = distinct_experts * expert_bytes_ + (dense ? dense_bytes_[stage] : 0);
        if (bytes < kBytesMin || duration.ns <= 0)
            return;  // a launch, not a stream of weights: says nothing about the rate
        blend(picoseconds_per_byte_, duration.ns * 1000 / static_cast<int64_t>(bytes));
    }
    // `wanted`: meanwhile a read that some request needs was in flight.
    void on_time(Duration passed, bool wanted) {
        link_time_ns_ += passed.ns;
        link_wanted_ns_ += wanted ? passed.ns : 0;
        if (steps_ < kStepsKept)
            return;
        steps_ = 0;
        link_time_ns_ /= 2;
        link_wanted_ns_ /= 2;
    }
    // `interval`: time since the previous arrival, or since the read was started if that was later.
    void on_read(Duration interval) { blend(read_interval_ns_, interval.ns); }

    // What one more launch of the dense part of `stage` costs. Zero while nothing is known.
    Duration dense(uint32_t stage) const {
        return {static_cast<int64_t>(dense_bytes_[stage]) / 1024 * picoseconds_per_byte_ * 1024 /
                1000};
    }
    // What computing that many distinct experts takes.
    Duration experts(uint32_t distinct) const {
        return {static_cast<int64_t>(distinct * expert_bytes_) / 1024 * picoseconds_per_byte_ *
                1024 / 1000};
    }
    // Between two arrivals while demand reads are queued. Zero while nothing is known.
    Duration read_interval() const { return {read_interval_ns_}; }
    // `d` times the share of recent time in which no read that somebody needs was in flight.
    Duration spare(Duration d) const {
        return {link_time_ns_ == 0 ? d.ns : d.ns / kParts * spare_parts()};
    }
    // `d` times twice that share, or `d` if that is less.
    Duration spare_twice(Duration d) const {
        return {link_time_ns_ == 0 ? d.ns : d.ns / kParts * std::min(kParts, 2 * spare_parts())};
    }

private:
    static constexpr int64_t kParts = 1024;
    int64_t spare_parts() const {
        return (link_time_ns_ - link_wanted_ns_) / std::max<int64_t>(link_time_ns_ / kParts, 1);
    }

    static constexpr uint32_t kStepsKept = 256;  // about the age of half of what is known
    static constexpr uint64_t kBytesMin = 4096;

    // Mean that forgets within about eight samples; the first sample is taken as it is.
    static void blend(int64_t& mean, int64_t sample) {
        mean = mean == 0 ? sample : mean + (sample - mean) / 8;
    }

    std::vector<uint64_t> dense_bytes_;
    uint64_t expert_bytes_;
    int64_t picoseconds_per_byte_ = 0;
    int64_t read_interval_ns_ = 0;
    int64_t link_time_ns_ = 0;
    int64_t link_wanted_ns_ = 0;
    uint32_t steps_ = 0;
};

}  // namespace bevy
