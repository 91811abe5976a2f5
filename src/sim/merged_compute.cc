#include "sim/merged_compute.h"

#include <algorithm>
#include <bitset>
#include <vector>

namespace bevy {

namespace {

// Where one of the requests that run is.
struct Cursor {
    RequestRoutes routes;
    uint32_t token = 0;
};

Duration round_cost(const std::vector<Cursor>& cursors, const StepCosts& costs, uint32_t layers) {
    const auto rows = static_cast<uint32_t>(cursors.size());
    Duration cost = costs.of({.stage = 0, .rows = rows, .advances = true}).total();
    for (uint32_t layer = 0; layer < layers; layer++) {
        std::bitset<RouteTrace::kExpertsMax> experts;
        for (const Cursor& cursor : cursors) {
            for (const uint8_t expert : cursor.routes.route(cursor.token, layer))
                experts.set(expert);
        }
        cost += costs
                    .of({.stage = layer + 1,
                         .experts = static_cast<uint32_t>(experts.count()),
                         .pairs = rows * cursors.front().routes.top_k,
                         .rows = rows,
                         .advances = true})
                    .total();
    }
    return cost;
}

}  // namespace

Duration merged_compute_per_token(const MergedComputeOptions& options, const RouteSource& source,
                                  const StepCosts& costs) {
    uint64_t next = 0;
    const auto take = [&] {
        Cursor cursor{.routes = source.request(next++)};
        if (options.request_tokens_max > 0)
            cursor.routes.tokens = std::min(cursor.routes.tokens, options.request_tokens_max);
        return cursor;
    };
    std::vector<Cursor> cursors;
    for (uint32_t i = 0; i < options.parallel; i++)
        cursors.push_back(take());
    const uint64_t first = options.tokens_skipped / options.parallel;
    const uint64_t rounds = std::max<uint64_t>(options.tokens / options.parallel, 1);
    Duration cost;
    for (uint64_t round = 0; round < first + rounds; round++) {
        if (round >= first)
            cost += round_cost(cursors, costs, source.trace().layers);
        for (Cursor& cursor : cursors) {
            if (++cursor.token == cursor.routes.tokens)
                cursor = take();
        }
    }
    return {cost.ns / static_cast<int64_t>(rounds * options.parallel)};
}

}  // namespace bevy
