// Probability of reuse: evict the expert that is least likely to be used again soon.
//
// With a known future one would evict what is used again last. What is known instead: the next
// visit of a layer by each running request, and how likely that request is to use an expert then.
// Three signals say so, and their mean, with the third counted twice, is the probability:
//
// - the recent rate: how often this request used the expert in its last few tokens;
// - the mean: how often it did since it began. Texts differ more than their parts do, so a request
//   keeps its own. It starts as the average request, and its prompt teaches it;
// - the followers: which experts usually come a token after those that it uses just now
//   (token_transitions.h). This is the only signal that knows more than "as before".
//
// An expert is used again if any request does: 1 - product(1 - p) over the running requests
// (probability.h). A sum would not do: it grows with every request that uses an expert a little,
// and finds an expert that is wanted for certain no better than two that may be.
//
// Then comes the distance. Layers are visited in a cycle, so an expert of a layer that a request
// reaches next is worth more than one of the layer that it has just left: the probability counts
// 2^-(layers to go / layers), averaged over the running requests. In lockstep this is what evicts
// what was just computed; LRU would evict what comes next.
//
// A request that ends takes its share out at once: what only it needed becomes worthless.
//
// The three weights and the half per cycle were found by replaying recorded routes of gpt-oss-20b
// (24 layers of 32 experts, 224 requests).
//
// A visit costs about 2 * experts_used * experts_per_layer additions. Memory besides the table of
// followers: 10 bytes per request, layer and expert.
#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "core/eviction/probability.h"
#include "core/eviction/registry.h"
#include "core/eviction/token_transitions.h"

namespace bevy {

namespace {

constexpr uint32_t kRecentShift = 2;  // forgets within about 4 tokens
constexpr uint32_t kPriorShift = 10;  // within about 1024 tokens of all requests
// Where changes are so small, more digits are kept: the prior is in 1 / (kProbabilityOne << 10).
constexpr uint32_t kPriorDigits = 10;
constexpr uint32_t kPriorVisits = 8;  // the average request counts as so many visits
constexpr uint32_t kVisitsMax = 512;  // then all counts are halved, so that long texts may drift
// A chunk of the prompt counts as at most so many visits: the reply may be about something else.
constexpr uint32_t kChunkVisitsMax = 64;

class Reuse final : public EvictionPolicy {
public:
    explicit Reuse(const EvictionShape& shape);

    void on_start(SeqIndex seq) override;
    void on_end(SeqIndex seq) override;
    void on_reveal(const Reveal& reveal) override;
    ExpertId choose(const EvictionCandidates& candidates) override;

private:
    // What is known of a running request. Tables have a row of experts per layer, probabilities
    // are in 1 / kProbabilityOne.
    struct Request {
        uint32_t next_layer = 0;
        std::vector<uint32_t> recent;
        std::vector<uint16_t> uses;            // in `visits`
        std::vector<uint32_t> bits;            // its part of bits_
        std::vector<uint16_t> visits;          // per layer, at most kVisitsMax
        std::vector<uint16_t> previous;        // experts_used per layer: what its last token used
        std::vector<uint16_t> previous_count;  // per layer; 0: unknown
    };

    size_t first_of(LayerIndex layer) const {
        return size_t{layer.value} * shape_.experts_per_layer;
    }
    uint32_t prior(size_t expert) const { return prior_[expert] >> kPriorDigits; }
    void approach(uint32_t layer, bool on);
    void note_token(Request& request, const Reveal& reveal);
    void note_chunk(Request& request, const Reveal& reveal);
    void count_visits(Request& request, LayerIndex layer, uint32_t visits);
    void expect(Request& request, const Reveal& reveal);
    void set(Request& request, size_t expert, uint32_t probability);

    EvictionShape shape_;
    std::vector<Request> requests_;  // by SeqIndex
    std::vector<uint32_t> prior_;    // rate of the average request
    TokenTransitions transitions_;
    std::vector<uint64_t> bits_;     // per expert: sum of -log2(1 - p) of all running requests
    std::vector<uint32_t> chances_;  // per expert: 1 - 2^-bits, in 1 / kFineProbabilityOne
    std::vector<uint32_t> layer_of_;
    std::vector<uint32_t> weights_;    // by layers to go, in 1 / kProbabilityOne
    std::vector<uint64_t> nearness_;   // per layer: sum of the weights of all running requests
    std::vector<uint32_t> followers_;  // reused by expect()
};

Reuse::Reuse(const EvictionShape& shape)
    : shape_(shape),
      requests_(shape.sequences),
      prior_(size_t{shape.layers} * shape.experts_per_layer,
             (kProbabilityOne * shape.experts_used / shape.experts_per_layer) << kPriorDigits),
      transitions_(shape),
      bits_(prior_.size()),
      chances_(prior_.size()),
      layer_of_(prior_.size()),
      weights_(shape.layers),
      nearness_(shape.layers),
      followers_(shape.experts_per_layer) {
    for (size_t i = 0; i < layer_of_.size(); i++)
        layer_of_[i] = static_cast<uint32_t>(i / shape.experts_per_layer);
    for (uint32_t layers = 0; layers < shape.layers; layers++)
        weights_[layers] = power_of_half(uint64_t{layers} * kBit / shape.layers) >> 14;
    for (Request& request : requests_) {
        request.recent.resize(prior_.size());
        request.uses.resize(prior_.size());
        request.bits.resize(prior_.size());
        request.visits.resize(shape.layers);
        request.previous.resize(size_t{shape.layers} * shape.experts_used);
        request.previous_count.resize(shape.layers);
    }
}

void Reuse::on_start(SeqIndex seq) {
    Request& request = requests_[seq.value];
    request.next_layer = 0;
    std::ranges::fill(request.uses, uint16_t{0});
    std::ranges::fill(request.visits, uint16_t{0});
    std::ranges::fill(request.previous_count, uint16_t{0});
    for (size_t i = 0; i < prior_.size(); i++) {
        request.recent[i] = prior(i);
        set(request, i, prior(i));
    }
    approach(0, true);
}

void Reuse::on_end(SeqIndex seq) {
    Request& request = requests_[seq.value];
    for (size_t i = 0; i < prior_.size(); i++)
        set(request, i, 0);
    approach(request.next_layer, false);
}

// Books that a request is on its way to `layer`, or no longer.
void Reuse::approach(uint32_t layer, bool on) {
    for (uint32_t i = 0; i < shape_.layers; i++) {
        uint32_t weight = weights_[i >= layer ? i - layer : i + shape_.layers - layer];
        nearness_[i] += on ? weight : -uint64_t{weight};
    }
}

void Reuse::on_reveal(const Reveal& reveal) {
    Request& request = requests_[reveal.seq.value];
    approach(request.next_layer, false);
    request.next_layer = reveal.layer.value + 1 == shape_.layers ? 0 : reveal.layer.value + 1;
    approach(request.next_layer, true);
    if (reveal.tokens == 1)
        note_token(request, reveal);
    else
        note_chunk(request, reveal);
    expect(request, reveal);
}

void Reuse::note_token(Request& request, const Reveal& reveal) {
    size_t first = first_of(reveal.layer);
    uint16_t* previous = request.previous.data() + size_t{reveal.layer.value} * shape_.experts_used;
    uint16_t& previous_count = request.previous_count[reveal.layer.value];
    transitions_.learn(reveal.layer, {previous, previous_count}, reveal.used);
    BEVY_ASSERT(reveal.used.size() <= shape_.experts_used);
    previous_count = static_cast<uint16_t>(reveal.used.size());
    for (const ExpertDemand& demand : reveal.used)
        *previous++ = static_cast<uint16_t>(demand.expert.value);

    count_visits(request, reveal.layer, 1);
    for (size_t i = first; i < first + shape_.experts_per_layer; i++) {
        prior_[i] -= prior_[i] >> kPriorShift;
        request.recent[i] -= request.recent[i] >> kRecentShift;
    }
    for (const ExpertDemand& demand : reveal.used) {
        prior_[first + demand.expert.value] += (kProbabilityOne << kPriorDigits) >> kPriorShift;
        request.recent[first + demand.expert.value] += kProbabilityOne >> kRecentShift;
        request.uses[first + demand.expert.value]++;
    }
}

// The order of the tokens in a chunk is not known: it says how often, not what follows what.
void Reuse::note_chunk(Request& request, const Reveal& reveal) {
    size_t first = first_of(reveal.layer);
    request.previous_count[reveal.layer.value] = 0;
    uint32_t visits = std::min(reveal.tokens, kChunkVisitsMax);
    count_visits(request, reveal.layer, visits);
    for (size_t i = first; i < first + shape_.experts_per_layer; i++) {
        prior_[i] -= prior_[i] >> kPriorShift;
        request.recent[i] = 0;
    }
    for (const ExpertDemand& demand : reveal.used) {
        size_t i = first + demand.expert.value;
        auto share = static_cast<uint32_t>(uint64_t{demand.rows} * kProbabilityOne / reveal.tokens);
        prior_[i] += (share << kPriorDigits) >> kPriorShift;
        request.recent[i] = share;
        request.uses[i] =
            static_cast<uint16_t>(request.uses[i] + uint64_t{demand.rows} * visits / reveal.tokens);
    }
}

void Reuse::count_visits(Request& request, LayerIndex layer, uint32_t visits) {
    uint16_t& counted = request.visits[layer.value];
    if (counted + visits > kVisitsMax) {
        counted /= 2;
        size_t first = first_of(layer);
        for (size_t i = first; i < first + shape_.experts_per_layer; i++)
            request.uses[i] /= 2;
    }
    counted = static_cast<uint16_t>(counted + visits);
}

// How likely the request is to use each expert of the layer at its next visit.
void Reuse::expect(Request& request, const Reveal& reveal) {
    size_t first = first_of(reveal.layer);
    std::ranges::fill(followers_, 0u);
    // 32-bit fixed-point reciprocals, so that the loop has no division.
    uint64_t per_visit = (uint64_t{1} << 32) / (request.visits[reveal.layer.value] + kPriorVisits);
    uint64_t per_expert = (uint64_t{1} << 32) / reveal.used.size();
    bool token = reveal.tokens == 1;
    if (token)
        transitions_.add_followers(reveal.layer, reveal.used, followers_);
    for (uint32_t e = 0; e < shape_.experts_per_layer; e++) {
        size_t i = first + e;
        uint64_t uses = uint64_t{request.uses[i]} * kProbabilityOne + kPriorVisits * prior(i);
        auto mean = static_cast<uint32_t>((uses * per_visit) >> 32);
        auto follower = static_cast<uint32_t>((followers_[e] * per_expert) >> 32);
        set(request, i, (request.recent[i] + mean + 2 * (token ? follower : mean)) / 4);
    }
}

void Reuse::set(Request& request, size_t expert, uint32_t probability) {
    uint32_t bits = complement_bits(probability);
    bits_[expert] += uint64_t{bits} - request.bits[expert];
    request.bits[expert] = bits;
    chances_[expert] = kFineProbabilityOne - power_of_half(bits_[expert]);
}

ExpertId Reuse::choose(const EvictionCandidates& candidates) {
    ExpertId chosen = candidates.experts().front();
    uint64_t least = ~uint64_t{0};
    for (ExpertId expert : candidates.experts()) {
        uint64_t score = chances_[expert.value] * nearness_[layer_of_[expert.value]];
        if (score < least) {
            least = score;
            chosen = expert;
        }
    }
    return chosen;
}

}  // namespace

std::unique_ptr<EvictionPolicy> make_reuse_eviction(const EvictionShape& shape) {
    return std::make_unique<Reuse>(shape);
}

}  // namespace bevy
