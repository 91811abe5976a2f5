#include "sim/workload.h"

#include "sim/sim_model.h"

namespace bevy {

namespace {

// The beginning of an earlier prompt, so that there is something to reuse.
std::vector<TokenId> draw_beginning(const std::vector<SimClient>& earlier, Prng& prng) {
    const std::vector<TokenId>& prompt = earlier[prng.below(earlier.size())].prompt;
    const uint64_t tokens = prng.chance(1, 2) ? prompt.size() : prng.between(1, prompt.size());
    return {prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(tokens)};
}

SimClient draw_client(const WorkloadOptions& options, Instant arrival,
                      const std::vector<SimClient>& earlier, Prng& prng) {
    SimClient client{.arrival = arrival, .reuse_prompt = prng.chance(3, 4)};
    if (!earlier.empty() && prng.chance(options.reuse_percent, 100))
        client.prompt = draw_beginning(earlier, prng);
    // Mostly short, sometimes as long as it gets: both ends are where mistakes live.
    const uint64_t longest =
        prng.chance(1, 4) ? options.prompt_tokens_max : (options.prompt_tokens_max + 3) / 4;
    const uint64_t tokens = prng.between(1, longest);
    while (client.prompt.size() < tokens)
        client.prompt.push_back(static_cast<TokenId>(prng.below(SimModel::kVocabulary)));
    client.max_tokens = static_cast<uint32_t>(prng.between(1, options.reply_tokens_max));
    if (prng.chance(options.stop_percent, 100))
        client.stop_after = static_cast<uint32_t>(prng.between(1, client.max_tokens));
    if (prng.chance(options.cancel_percent, 100) && arrival < options.cancels_until) {
        const uint64_t room = static_cast<uint64_t>((options.cancels_until - arrival).ns);
        if (prng.chance(1, 4))
            client.cancel_after = static_cast<uint32_t>(prng.between(1, client.max_tokens));
        else
            client.cancel_at = arrival + Duration{static_cast<int64_t>(prng.below(room))};
    }
    return client;
}

}  // namespace

std::vector<SimClient> draw_workload(const WorkloadOptions& options, Prng& prng) {
    std::vector<SimClient> clients;
    Instant arrival;
    for (uint32_t i = 0; i < options.clients; i++) {
        clients.push_back(draw_client(options, arrival, clients, prng));
        const uint64_t gap = static_cast<uint64_t>(options.arrival_gap_max.ns) + 1;
        arrival = arrival + Duration{static_cast<int64_t>(prng.below(gap))};
    }
    return clients;
}

}  // namespace bevy
