// How a core is made from the names and limits of its configuration.
#include <string>

#include "base/registry.h"
#include "core/core.h"
#include "core/eviction/registry.h"
#include "core/policy/registry.h"
#include "core/prefetcher.h"
#include "core/read_order/registry.h"
#include "core/state.h"

namespace bevy {

namespace {

std::string number(uint64_t n) {
    return std::to_string(n);
}

Status check(const CoreConfig& c) {
    if (c.moe_layers == 0 || c.experts_per_layer == 0 || c.experts_used == 0 ||
        c.experts_used > c.experts_per_layer) {
        return fail(ErrorCode::kInvalidArgument, "a model with " + number(c.moe_layers) +
                                                     " MoE layers, " + number(c.experts_per_layer) +
                                                     " experts and " + number(c.experts_used) +
                                                     " experts per token can't be scheduled");
    }
    if (c.sequences == 0 || c.reads_inflight_max == 0 || c.chunk_tokens == 0 ||
        c.prefill_sequences == 0) {
        return fail(
            ErrorCode::kInvalidArgument,
            "concurrent requests, reads in flight, chunk length and prefill lanes must be at "
            "least 1");
    }
    if (c.slots < c.experts_used) {
        return fail(ErrorCode::kBudget,
                    "the expert cache has " + number(c.slots) + " slots, but a token needs " +
                        number(c.experts_used) + " experts at each layer",
                    "raise --memory or --expert-cache");
    }
    if (c.dense_bytes.size() != size_t{c.moe_layers} + 1) {
        return fail(ErrorCode::kInvalidArgument, "dense costs are given for " +
                                                     number(c.dense_bytes.size()) + " of " +
                                                     number(c.moe_layers + 1) + " stages");
    }
    return {};
}

Status check_predictor(const CoreConfig& c, const PredictorRow& row) {
    std::string name = "predictor '" + std::string(row.name) + "'";
    if (c.lookahead == 0 || c.lookahead > c.moe_layers || c.prefetch_reads_max == 0) {
        return fail(ErrorCode::kInvalidArgument,
                    name + " can't look " + number(c.lookahead) + " layers ahead with " +
                        number(c.prefetch_reads_max) + " reads",
                    "look 1 to " + number(c.moe_layers) + " layers ahead, with at least 1 read");
    }
    if (row.needs_truth && !c.guesses_are_true) {
        return fail(ErrorCode::kUnsupported,
                    name + " knows the future, which only a simulation has", "see bevy sim");
    }
    if (row.needs_guesses && c.guessed_layers < c.lookahead) {
        return fail(ErrorCode::kUnsupported, name + " looks " + number(c.lookahead) +
                                                 " layers ahead, but the compute backend guesses " +
                                                 number(c.guessed_layers));
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Core>> Core::create(const CoreConfig& config) {
    return create(config, {});
}

Result<std::unique_ptr<Core>> Core::create(const CoreConfig& config, CoreParts parts) {
    if (Status status = check(config); !status)
        return std::unexpected(status.error());
    auto policy = parse_policy_name(config.policy);
    if (!policy)
        return std::unexpected(policy.error());
    auto order = registry_find(read_orders(), "read order", config.read_order);
    if (!order)
        return std::unexpected(order.error());
    if (!parts.eviction) {
        auto eviction = registry_find(eviction_policies(), "eviction policy", config.eviction);
        if (!eviction)
            return std::unexpected(eviction.error());
        parts.eviction = (*eviction)->make({.layers = config.moe_layers,
                                            .experts_per_layer = config.experts_per_layer,
                                            .experts_used = config.experts_used,
                                            .sequences = config.sequences,
                                            .slots = config.slots});
    }
    auto planner = std::make_unique<FetchPlanner>(config.sequences, (*order)->make());
    std::unique_ptr<Core> core(new Core(config, std::move(planner)));
    core->eviction_ = std::move(parts.eviction);
    core->policy_ = policy->schedule->make();
    if (const PredictorRow* row = policy->predictor) {
        if (Status status = check_predictor(config, *row); !status)
            return std::unexpected(status.error());
        core->prefetcher_ =
            std::make_unique<Prefetcher>(config,
                                         row->make({.layers = config.moe_layers,
                                                    .experts_per_layer = config.experts_per_layer,
                                                    .experts_used = config.experts_used,
                                                    .sequences = config.sequences,
                                                    .lookahead = config.lookahead}),
                                         policy->prefetch_requests_max);
    }
    return core;
}

}  // namespace bevy
