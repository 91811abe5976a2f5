// What usually follows: for each expert of a layer, how often each expert of a later layer, or of
// an early layer of the next token, was chosen after it; counted over all requests and slowly
// forgotten.
#include "core/predictor/registry.h"

namespace bevy {

namespace {

class Transition final : public Predictor {
public:
    explicit Transition(const PredictorShape& shape)
        : shape_(shape),
          counts_(size_t{shape.lookahead} * shape.layers * shape.experts_per_layer *
                  shape.experts_per_layer),
          recent_(size_t{shape.sequences} * (shape.lookahead + 1)),
          scores_(shape.experts_per_layer) {}

    void on_end(SeqIndex seq) override {
        for (uint32_t i = 0; i <= shape_.lookahead; i++)
            entry(seq, i).used.clear();
    }
    void on_reveal(const Reveal& reveal) override {
        for (uint32_t i = shape_.lookahead; i > 0; i--)
            std::swap(entry(reveal.seq, i), entry(reveal.seq, i - 1));
        Entry& now = entry(reveal.seq, 0);
        now.layer = reveal.layer;
        now.used.clear();
        for (const ExpertDemand& demand : reveal.used)
            now.used.push_back(demand.expert);
        for (uint32_t ahead = 1; ahead <= shape_.lookahead; ahead++) {
            const Entry& before = entry(reveal.seq, ahead);
            // A pass without logits leaves out the last layer.
            if ((before.layer.value + ahead) % shape_.layers != now.layer.value)
                continue;
            for (ExpertIndex from : before.used)
                learn(row(ahead, before.layer, from), now.used);
        }
    }
    void predict(const Question& question, std::vector<ExpertIndex>& out) override {
        const Entry& now = entry(question.seq, 0);
        std::ranges::fill(scores_, 0);
        for (ExpertIndex from : now.used) {
            std::span<const uint16_t> counts = row(question.ahead, now.layer, from);
            for (uint32_t e = 0; e < counts.size(); e++)
                scores_[e] += counts[e];
        }
        append_largest(scores_, shape_.experts_used, out);
    }

private:
    struct Entry {
        LayerIndex layer;
        std::vector<ExpertIndex> used;
    };
    // The layer that `seq` revealed `back` reveals ago.
    Entry& entry(SeqIndex seq, uint32_t back) {
        return recent_[size_t{seq.value} * (shape_.lookahead + 1) + back];
    }
    std::span<uint16_t> row(uint32_t ahead, LayerIndex layer, ExpertIndex from) {
        uint32_t experts = shape_.experts_per_layer;
        size_t index = (size_t{ahead - 1} * shape_.layers + layer.value) * experts + from.value;
        return std::span(counts_).subspan(index * experts, experts);
    }
    // A running mean in units of 2^-16 that forgets within 64 visits.
    static void learn(std::span<uint16_t> counts, std::span<const ExpertIndex> used) {
        for (uint16_t& count : counts)
            count = static_cast<uint16_t>(count - (count >> 6));
        for (ExpertIndex e : used)
            counts[e.value] = static_cast<uint16_t>(counts[e.value] + 1023);
    }

    PredictorShape shape_;
    std::vector<uint16_t> counts_;
    std::vector<Entry> recent_;
    std::vector<uint64_t> scores_;
};

}  // namespace

std::unique_ptr<Predictor> make_transition_predictor(const PredictorShape& shape) {
    return std::make_unique<Transition>(shape);
}

}  // namespace bevy
