// Request-level activation history, in the manner of MoE-Infinity (Xue et al., 2024): each request
// has an expert activation matrix (how often it used which expert at which layer); finished ones
// are kept. For a running request the most similar finished one, by cosine, is looked up once per
// token; the experts that it used most at a layer are expected there. When the history is full, the
// newcomer replaces the matrix that it resembles most, so that what is kept stays diverse.
#include <algorithm>
#include <optional>

#include "core/predictor/registry.h"

namespace bevy {

namespace {

constexpr uint32_t kHistoryMax = 64;

class Frequency final : public Predictor {
public:
    explicit Frequency(const PredictorShape& shape)
        : shape_(shape), running_(shape.sequences), scores_(shape.experts_per_layer) {
        for (Running& r : running_)
            r.matrix.counts.resize(size_t{shape.layers} * shape.experts_per_layer);
        history_.reserve(kHistoryMax);
    }

    void on_end(SeqIndex seq) override {
        Running& ended = running_[seq.value];
        if (ended.matrix.squares > 0)
            keep(ended.matrix);
        std::ranges::fill(ended.matrix.counts, 0);
        ended.matrix.squares = 0;
        ended.similar.reset();
    }
    void on_reveal(const Reveal& reveal) override {
        Running& r = running_[reveal.seq.value];
        if (reveal.layer.value == 0)
            r.similar = most_similar(r.matrix);
        for (const ExpertDemand& demand : reveal.used) {
            uint32_t& count =
                r.matrix.counts[size_t{reveal.layer.value} * shape_.experts_per_layer +
                                demand.expert.value];
            r.matrix.squares += 2 * uint64_t{count} + 1;  // (count + 1)^2 - count^2
            count++;
        }
    }
    void predict(const Question& question, std::vector<ExpertIndex>& out) override {
        const Running& r = running_[question.seq.value];
        // Ahead of its own history a request only has itself to go by.
        const Matrix& matrix = r.similar ? history_[*r.similar] : r.matrix;
        size_t first = size_t{question.target.value} * shape_.experts_per_layer;
        for (uint32_t e = 0; e < shape_.experts_per_layer; e++)
            scores_[e] = matrix.counts[first + e];
        append_largest(scores_, shape_.experts_used, out);
    }

private:
    struct Matrix {
        std::vector<uint32_t> counts;  // by layer and expert
        uint64_t squares = 0;          // sum of the squared counts
    };
    struct Running {
        Matrix matrix;
        std::optional<size_t> similar;  // in history_
    };

    // The index in history_ with the largest cosine: compares dot^2 / squares, since the length of
    // `matrix` is the same for all.
    std::optional<size_t> most_similar(const Matrix& matrix) const {
        std::optional<size_t> best;
        uint64_t best_dot = 0;
        for (size_t i = 0; matrix.squares > 0 && i < history_.size(); i++) {
            uint64_t dot = 0;
            for (size_t x = 0; x < matrix.counts.size(); x++)
                dot += uint64_t{matrix.counts[x]} * history_[i].counts[x];
            if (!best || larger(dot, history_[i].squares, best_dot, history_[*best].squares)) {
                best = i;
                best_dot = dot;
            }
        }
        return best;
    }
    // a^2 / b > c^2 / d, exactly: by the whole part, then by the rest. REQUIRES: b, d > 0, and all
    // below 2^64, as they are with counts below 2^21 at fewer than 2^20 experts.
    static bool larger(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
        __extension__ using Wide = unsigned __int128;
        Wide first = Wide{a} * a / b;
        Wide second = Wide{c} * c / d;
        Wide first_rest = Wide{a} * a % b;
        Wide second_rest = Wide{c} * c % d;
        return first != second ? first > second : first_rest * d > second_rest * b;
    }
    void keep(const Matrix& matrix) {
        if (history_.size() < kHistoryMax) {
            history_.push_back(matrix);
            return;
        }
        history_[*most_similar(matrix)] = matrix;
    }

    PredictorShape shape_;
    std::vector<Matrix> history_;
    std::vector<Running> running_;
    std::vector<uint64_t> scores_;
};

}  // namespace

std::unique_ptr<Predictor> make_frequency_predictor(const PredictorShape& shape) {
    return std::make_unique<Frequency>(shape);
}

}  // namespace bevy
