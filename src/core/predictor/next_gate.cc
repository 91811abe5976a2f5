// The next layers' routers, applied to the hidden state that the current layer's router saw: since
// a layer changes the residual stream only a little, they often choose as they will choose then.
// Used by most prefetching systems (as in Pre-gated MoE, AdapMoE and others). The compute backend
// does the arithmetic; this file only remembers its answer.
#include "base/assert.h"
#include "core/predictor/registry.h"

namespace bevy {

namespace {

class NextGate final : public Predictor {
public:
    explicit NextGate(const PredictorShape& shape) : used_(shape.experts_used) {}

    void on_reveal(const Reveal& reveal) override {
        guesses_.assign(reveal.guesses.begin(), reveal.guesses.end());
    }
    void predict(const Question& question, std::vector<ExpertIndex>& out) override {
        size_t first = size_t{question.ahead - 1} * used_;
        for (size_t i = first; i < first + used_ && i < guesses_.size(); i++)
            out.push_back(guesses_[i]);
    }

private:
    uint32_t used_;
    std::vector<ExpertIndex> guesses_;  // of the last reveal
};

}  // namespace

std::unique_ptr<Predictor> make_next_gate_predictor(const PredictorShape& shape) {
    return std::make_unique<NextGate>(shape);
}

}  // namespace bevy
