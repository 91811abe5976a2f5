// A seed drawn out into options. Extremes are drawn more often than a uniform choice would.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/prng.h"
#include "core/eviction/registry.h"
#include "core/policy/registry.h"
#include "core/read_order/registry.h"
#include "sim/swarm.h"

namespace bevy {

namespace {

uint32_t draw(Prng& prng, uint64_t low, uint64_t high) {
    return static_cast<uint32_t>(prng.between(low, high));
}

Duration draw_duration(Prng& prng, Duration max) {
    return {static_cast<int64_t>(prng.below(static_cast<uint64_t>(max.ns) + 1))};
}

uint32_t draw_slots(Prng& prng, uint32_t used, uint32_t all) {
    switch (prng.below(4)) {
        case 0:
            return used;  // the least that can work
        case 1:
            return draw(prng, used, std::min(3 * used, all));  // crowded
        default:
            return draw(prng, used, all);
    }
}

SimModel draw_model(Prng& prng) {
    SimModel model{.layers = draw(prng, 1, 5), .experts_per_layer = draw(prng, 2, 24)};
    model.experts_used = draw(prng, 1, std::min(model.experts_per_layer, 6u));
    model.last_layer_is_moe = prng.chance(3, 4);
    model.working_set = draw(prng, 1, model.experts_per_layer);
    model.favourite_percent = draw(prng, 0, 90);
    return model;
}

void draw_core(CoreConfig& core, const SimModel& model, Prng& prng) {
    core.moe_layers = model.layers;
    core.experts_per_layer = model.experts_per_layer;
    core.experts_used = model.experts_used;
    core.last_layer_is_moe = model.last_layer_is_moe;
    core.slots = draw_slots(prng, model.experts_used, model.layers * model.experts_per_layer);
    core.sequences = draw(prng, 1, 12);
    core.queue_max = draw(prng, 1, 16);
    core.reads_inflight_max = draw(prng, 1, 8);
    core.chunk_tokens = draw(prng, 1, 16);
    core.prefill_sequences = draw(prng, 1, 3);
    core.expert_bytes = prng.between(64 * kKiB, 4 * kMiB);
    for (uint32_t stage = 0; stage <= model.layers; stage++)
        core.dense_bytes.push_back(prng.below(8 * kMiB));
    static const std::vector<std::string> policies = [] {
        std::vector<std::string> names = policy_names();
        for (const std::string& name : policy_names()) {
            if (name.contains("+prefetch-") && !name.ends_with("oracle"))
                names.push_back(name + "@2");
        }
        return names;
    }();
    do {
        core.policy = policies[prng.below(policies.size())];
    } while (core.policy.ends_with("oracle"));  // no simulated router knows the future
    if (prng.chance(1, 2))
        core.policy = schedule_policies()[prng.below(schedule_policies().size())].name;
    core.read_order = read_orders()[prng.below(read_orders().size())].name;
    core.lookahead = draw(prng, 1, std::min(model.layers, 3u));
    core.guessed_layers = core.lookahead;
    core.prefetch_reads_max = draw(prng, 1, 3);
    core.eviction = eviction_policies()[prng.below(eviction_policies().size())].name;
}

}  // namespace

SwarmOptions draw_swarm(uint64_t seed) {
    Prng prng(seed);
    SwarmOptions options{.seed = seed};
    const SimModel model = draw_model(prng);
    draw_core(options.core, model, prng);
    const Instant quiet_from{draw_duration(prng, milliseconds(200)).ns};

    SimLinkOptions& link = options.link;
    link.transfers_inflight_max = options.core.reads_inflight_max + draw(prng, 0, 2);
    link.bytes_per_transfer = options.core.expert_bytes;
    link.bytes_per_second = prng.between(200, 20'000) * 1'000'000;
    link.latency = draw_duration(prng, microseconds(500));
    link.jitter = draw_duration(prng, milliseconds(2));
    link.fail_per_mille = prng.chance(1, 2) ? draw(prng, 1, 50) : 0;
    link.cancel_works_percent = draw(prng, 0, 100);
    link.faults_until = quiet_from;

    SimComputeOptions& compute = options.compute;
    compute.model = model;
    compute.sequences = options.core.sequences;
    compute.chunk_tokens = options.core.chunk_tokens;
    compute.lanes = options.core.prefill_sequences;
    compute.guessed_layers = options.core.guessed_layers;
    compute.expert_bytes = options.core.expert_bytes;
    compute.dense_bytes = options.core.dense_bytes;
    compute.bytes_per_second = prng.between(1'000, 50'000) * 1'000'000;
    compute.launch = draw_duration(prng, microseconds(50));
    compute.row = draw_duration(prng, microseconds(20));
    compute.fail_per_mille = prng.chance(1, 4) ? draw(prng, 1, 10) : 0;
    compute.faults_until = quiet_from;

    WorkloadOptions& workload = options.workload;
    workload.clients = draw(prng, 1, 24);
    workload.arrival_gap_max =
        prng.chance(1, 3) ? Duration{} : draw_duration(prng, milliseconds(20));
    workload.prompt_tokens_max = draw(prng, 1, 40);
    workload.reply_tokens_max = draw(prng, 1, 24);
    workload.reuse_percent = draw(prng, 0, 100);
    workload.stop_percent = draw(prng, 0, 40);
    workload.cancel_percent = prng.chance(1, 2) ? draw(prng, 1, 60) : 0;
    workload.cancels_until = quiet_from;

    // Sometimes the context is so short that replies are cut off by it.
    options.context_per_sequence = workload.prompt_tokens_max + draw(prng, 1, 30);
    options.mailbox_max = draw(prng, 1, 16);
    options.stop_in_the_middle = prng.chance(1, 12);
    return options;
}

std::string SwarmOptions::text() const {
    const SimModel& model = compute.model;
    std::ostringstream out;
    out << "seed " << seed << "\n  model: layers " << model.layers << ", experts "
        << model.experts_per_layer << ", used " << model.experts_used << ", last layer is MoE "
        << model.last_layer_is_moe << ", working set " << model.working_set << " at "
        << model.favourite_percent << " %\n  core: slots " << core.slots << ", sequences "
        << core.sequences << ", queue " << core.queue_max << ", reads in flight "
        << core.reads_inflight_max << ", chunk " << core.chunk_tokens << ", prefill sequences "
        << core.prefill_sequences << ", expert bytes " << core.expert_bytes << ", dense bytes";
    for (uint64_t bytes : core.dense_bytes)
        out << ' ' << bytes;
    out << ", policy " << core.policy << ", eviction " << core.eviction << ", read order "
        << core.read_order << ", lookahead " << core.lookahead << ", prefetch reads "
        << core.prefetch_reads_max << "\n  link: transfers " << link.transfers_inflight_max
        << ", bytes/s " << link.bytes_per_second << ", latency ns " << link.latency.ns
        << ", jitter ns " << link.jitter.ns << ", fail per mille " << link.fail_per_mille
        << ", cancel works % " << link.cancel_works_percent << "\n  compute: bytes/s "
        << compute.bytes_per_second << ", launch ns " << compute.launch.ns << ", row ns "
        << compute.row.ns << ", fail per mille " << compute.fail_per_mille << ", faults until ns "
        << compute.faults_until.ns << "\n  workload: clients " << workload.clients << ", gap ns "
        << workload.arrival_gap_max.ns << ", prompt max " << workload.prompt_tokens_max
        << ", reply max " << workload.reply_tokens_max << ", reuse % " << workload.reuse_percent
        << ", stop % " << workload.stop_percent << ", cancel % " << workload.cancel_percent
        << "\n  engine: context " << context_per_sequence << ", mailbox " << mailbox_max
        << ", stop in the middle " << stop_in_the_middle << '\n';
    return out.str();
}

}  // namespace bevy
