#include "text/llama_sampler_chain.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "text/llama_log.h"

namespace bevy {
namespace {

// Below this, dividing by the temperature could overflow; the result is the greedy choice anyway.
constexpr float kTemperatureGreedyMax = 1e-5f;
// Logits are cut to this, so that no later step of the chain meets an infinity minus an infinity.
constexpr float kLogitMax = 1e30f;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
// exp(-80) is the smallest probability that still has a logarithm after normalising.
constexpr float kLogitGapMax = 80.0f;
constexpr size_t kGrammarBytesMax = 1 << 20;
constexpr int kGrammarNestingMax = 256;

struct SamplerDeleter {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

// One buffer for all samplers of a thread: a vocabulary of 200,000 tokens takes 2.4 MB.
std::vector<llama_token_data>& candidate_buffer() {
    thread_local std::vector<llama_token_data> buffer;
    return buffer;
}

// Drops candidates whose probability is zero in a float. The typical sampler computes p * log(p),
// which is not a number for them, and sorts by it.
void drop_impossible(llama_sampler*, llama_token_data_array* candidates) {
    float best = kImpossible;
    for (size_t i = 0; i < candidates->size; ++i)
        best = std::max(best, candidates->data[i].logit);
    llama_token_data* end = std::remove_if(
        candidates->data, candidates->data + candidates->size,
        [&](const llama_token_data& c) { return !(c.logit >= best - kLogitGapMax); });
    candidates->size = static_cast<size_t>(end - candidates->data);
}

const char* drop_impossible_name(const llama_sampler*) {
    return "drop-impossible";
}
llama_sampler* clone_drop_impossible(const llama_sampler*);

llama_sampler_i drop_impossible_interface = {
    .name = drop_impossible_name,
    .accept = nullptr,
    .apply = drop_impossible,
    .reset = nullptr,
    .clone = clone_drop_impossible,
    .free = nullptr,
};

llama_sampler* clone_drop_impossible(const llama_sampler*) {
    return llama_sampler_init(&drop_impossible_interface, nullptr);
}

bool has_penalties(const SamplingParams& p) {
    return p.repeat_last_n != 0 &&
           (p.repeat_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f);
}

bool has_dry(const SamplingParams& p) {
    return p.dry_multiplier != 0.0f && p.dry_penalty_last_n != 0 && p.dry_base >= 1.0f;
}

int32_t last_n(int32_t n, uint32_t context_tokens) {
    const auto context = static_cast<int32_t>(std::min<uint32_t>(context_tokens, 1u << 30));
    return n < 0 ? context : std::min(n, context);
}

// The depth of parentheses outside of literals, which libllama's parser turns into recursion.
int grammar_nesting(const std::string& grammar) {
    int depth = 0;
    int deepest = 0;
    char closing = '\0';  // of the literal, class or comment that we are in
    for (size_t i = 0; i < grammar.size(); ++i) {
        const char c = grammar[i];
        if (closing != '\0') {
            if (c == '\\' && closing != '\n')
                ++i;
            else if (c == closing)
                closing = '\0';
        } else if (c == '"') {
            closing = '"';
        } else if (c == '[') {
            closing = ']';
        } else if (c == '#') {
            closing = '\n';
        } else if (c == '(') {
            deepest = std::max(deepest, ++depth);
        } else if (c == ')') {
            --depth;
        }
    }
    return deepest;
}

class ChainSampler final : public Sampler {
public:
    ChainSampler(const LlamaVocabulary& vocabulary, const SamplingParams& params,
                 uint32_t context_tokens, SamplerPtr grammar)
        : vocabulary_(vocabulary),
          grammar_(std::move(grammar)),
          biases_(params.logit_bias),
          n_probs_(params.n_probs) {
        if (params.ignore_end_of_generation)
            masked_.assign_range(vocabulary.end_of_generation_tokens());
        int32_t suppressed_count = 0;
        const llama_token* suppressed =
            llama_vocab_get_suppress_tokens(vocabulary.handle(), &suppressed_count);
        for (int32_t i = 0; suppressed != nullptr && i < suppressed_count; ++i)
            masked_.push_back(suppressed[i]);
        std::erase_if(masked_, [&](TokenId token) {
            return token < 0 || token >= static_cast<TokenId>(vocabulary.vocabulary_size());
        });
        std::ranges::sort(masked_);
        std::erase_if(biases_, [&](const LogitBias& bias) {
            return bias.token < 0 ||
                   bias.token >= static_cast<TokenId>(vocabulary.vocabulary_size());
        });
        build_chain(params, context_tokens);
    }

    void remember(TokenId token) { llama_sampler_accept(chain_.get(), token); }

    TokenId sample(std::span<const float> logits) override {
        TokenId token = direct_argmax_ ? argmax(logits) : draw(logits, false);
        // Checking one token against the grammar is cheap, masking the vocabulary is not: so choose
        // first, and choose again from what the grammar allows only if need be.
        if (grammar_ && token >= 0 && !grammar_allows(token))
            token = draw(logits, true);
        if (token >= 0) {
            remember(token);
            if (grammar_)
                llama_sampler_accept(grammar_.get(), token);
        } else {
            token = end_of_text();
        }
        if (n_probs_)
            measure(logits, token);
        return token;
    }

    const TokenProbabilities* probabilities() const override {
        return n_probs_ ? &probabilities_ : nullptr;
    }

private:
    // Fills probabilities_: the logits' softmax at the token and at the most likely ones.
    void measure(std::span<const float> logits, TokenId token) {
        const auto logit = [&](size_t i) {
            return std::isnan(logits[i]) ? kImpossible : std::min(logits[i], kLogitMax);
        };
        float best = kImpossible;
        for (size_t i = 0; i < logits.size(); ++i)
            best = std::max(best, logit(i));
        double sum = 0;
        for (size_t i = 0; i < logits.size(); ++i)
            sum += std::exp(static_cast<double>(logit(i)) - best);
        const double log_sum = std::log(sum) + best;
        const auto log_probability = [&](TokenId t) {
            const float of = logit(static_cast<size_t>(t));
            // No number in JSON is minus infinity.
            return of > kImpossible ? static_cast<float>(of - log_sum) : -kLogitMax;
        };
        probabilities_.chosen = {token, log_probability(token)};
        std::vector<TokenId> order(logits.size());
        for (size_t i = 0; i < order.size(); ++i)
            order[i] = static_cast<TokenId>(i);
        const size_t count = std::min<size_t>(*n_probs_, order.size());
        const auto end = order.begin() + static_cast<ptrdiff_t>(count);
        std::partial_sort(order.begin(), end, order.end(), [&](TokenId a, TokenId b) {
            const float left = logit(static_cast<size_t>(a));
            const float right = logit(static_cast<size_t>(b));
            return left != right ? left > right : a < b;
        });
        probabilities_.top.clear();
        for (auto it = order.begin(); it != end; ++it)
            probabilities_.top.push_back({*it, log_probability(*it)});
    }

    void add(llama_sampler* sampler) {
        if (sampler != nullptr)
            llama_sampler_chain_add(chain_.get(), sampler);
    }

    void build_chain(const SamplingParams& p, uint32_t context_tokens) {
        chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
        const llama_vocab* vocab = vocabulary_.handle();
        const bool greedy = p.temperature <= kTemperatureGreedyMax;
        if (has_penalties(p))
            add(llama_sampler_init_penalties(static_cast<int32_t>(vocabulary_.vocabulary_size()),
                                             last_n(p.repeat_last_n, context_tokens),
                                             p.repeat_penalty, p.frequency_penalty,
                                             p.presence_penalty));
        if (has_dry(p)) {
            std::vector<const char*> breakers;
            for (const std::string& breaker : p.dry_sequence_breakers)
                breakers.push_back(breaker.c_str());
            add(llama_sampler_init_dry(vocab, p.dry_multiplier, p.dry_base, p.dry_allowed_length,
                                       last_n(p.dry_penalty_last_n, context_tokens),
                                       breakers.data(), breakers.size()));
        }
        direct_argmax_ = greedy && llama_sampler_chain_n(chain_.get()) == 0 && biases_.empty();
        // These can drop the most likely token, the others can't: for a greedy choice only these
        // count.
        const bool drops_best = p.typical_p < 1.0f || p.xtc_probability > 0.0f;
        direct_argmax_ = direct_argmax_ && !drops_best;
        if (!greedy || drops_best)
            add_truncation(p);
        if (greedy) {
            add(llama_sampler_init_greedy());
        } else {
            add(llama_sampler_init_temp(p.temperature));
            add(llama_sampler_init_dist(p.seed));
        }
    }

    void add_truncation(const SamplingParams& p) {
        if (p.top_n_sigma > 0.0f)
            add(llama_sampler_init_top_n_sigma(p.top_n_sigma));
        if (p.top_k > 0)
            add(llama_sampler_init_top_k(p.top_k));
        if (p.typical_p < 1.0f) {
            add(llama_sampler_init(&drop_impossible_interface, nullptr));
            add(llama_sampler_init_typical(p.typical_p, 1));
        }
        if (p.top_p < 1.0f)
            add(llama_sampler_init_top_p(p.top_p, 1));
        if (p.min_p > 0.0f)
            add(llama_sampler_init_min_p(p.min_p, 1));
        if (p.xtc_probability > 0.0f)
            add(llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, 1, p.seed));
    }

    bool is_masked(TokenId token) const { return std::ranges::binary_search(masked_, token); }

    // -1: nothing is possible.
    TokenId argmax(std::span<const float> logits) const {
        TokenId best = -1;
        float best_logit = kImpossible;
        for (size_t i = 0; i < logits.size(); ++i) {
            if (logits[i] > best_logit &&
                (masked_.empty() || !is_masked(static_cast<TokenId>(i)))) {
                best_logit = logits[i];
                best = static_cast<TokenId>(i);
            }
        }
        return best;
    }

    // -1: nothing is possible.
    TokenId draw(std::span<const float> logits, bool mask_by_grammar) {
        std::vector<llama_token_data>& buffer = candidate_buffer();
        buffer.resize(logits.size());
        for (size_t i = 0; i < logits.size(); ++i) {
            const float logit = std::isnan(logits[i]) ? kImpossible : logits[i];
            buffer[i] = {static_cast<llama_token>(i), std::min(logit, kLogitMax), 0.0f};
        }
        for (const LogitBias& bias : biases_) {
            if (static_cast<size_t>(bias.token) < buffer.size()) {
                float& logit = buffer[static_cast<size_t>(bias.token)].logit;
                logit = std::min(logit + bias.bias, kLogitMax);
            }
        }
        for (const TokenId token : masked_) {
            if (static_cast<size_t>(token) < buffer.size())
                buffer[static_cast<size_t>(token)].logit = kImpossible;
        }
        llama_token_data_array candidates = {buffer.data(), buffer.size(), -1, false};
        if (mask_by_grammar)
            llama_sampler_apply(grammar_.get(), &candidates);
        bool possible = false;
        for (size_t i = 0; i < candidates.size; ++i) {
            float& logit = candidates.data[i].logit;
            if (logit > kImpossible) {
                logit = std::max(logit, -kLogitMax);
                possible = true;
            }
        }
        if (!possible)
            return -1;
        llama_sampler_apply(chain_.get(), &candidates);
        if (candidates.selected < 0 || std::cmp_greater_equal(candidates.selected, candidates.size))
            return -1;
        return candidates.data[candidates.selected].id;
    }

    bool grammar_allows(TokenId token) {
        llama_token_data single = {token, 0.0f, 0.0f};
        llama_token_data_array candidates = {&single, 1, -1, false};
        llama_sampler_apply(grammar_.get(), &candidates);
        return candidates.size == 1 && single.logit > kImpossible;
    }

    TokenId end_of_text() const {
        const std::span<const TokenId> ends = vocabulary_.end_of_generation_tokens();
        return ends.empty() ? 0 : ends.front();
    }

    const LlamaVocabulary& vocabulary_;
    SamplerPtr chain_;
    SamplerPtr grammar_;           // null: none
    std::vector<TokenId> masked_;  // never chosen; ascending
    std::vector<LogitBias> biases_;
    std::optional<uint32_t> n_probs_;
    TokenProbabilities probabilities_;  // if n_probs_
    bool direct_argmax_ = false;        // greedy, and nothing changes the order of the logits
};

Result<SamplerPtr> make_grammar(const LlamaVocabulary& vocabulary, const std::string& text) {
    const auto refuse = [](const std::string& cause) {
        return fail(ErrorCode::kInvalidArgument, "grammar: " + cause,
                    "write the grammar in GBNF with a rule named root");
    };
    if (text.size() > kGrammarBytesMax)
        return refuse("longer than 1 MiB");
    if (text.find('\0') != std::string::npos)
        return refuse("contains a NUL character");
    if (grammar_nesting(text) > kGrammarNestingMax)
        return refuse("parentheses nested deeper than 256");
    capture_llama_log();
    take_llama_error();
    try {
        SamplerPtr grammar(llama_sampler_init_grammar(vocabulary.handle(), text.c_str(), "root"));
        if (grammar)
            return grammar;
    } catch (const std::exception& e) {
        return refuse(e.what());
    }
    const std::string cause = take_llama_error();
    return refuse(cause.empty() ? "it does not parse" : cause);
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_sampler(const LlamaVocabulary& vocabulary,
                                              const SamplingParams& params, uint32_t context_tokens,
                                              std::span<const TokenId> history) {
    if (Status status = validate(params); !status)
        return std::unexpected(status.error());
    SamplerPtr grammar;
    if (!params.grammar.empty()) {
        Result<SamplerPtr> made = make_grammar(vocabulary, params.grammar);
        if (!made)
            return std::unexpected(made.error());
        grammar = std::move(*made);
    }
    auto sampler =
        std::make_unique<ChainSampler>(vocabulary, params, context_tokens, std::move(grammar));
    for (const TokenId token : history)
        sampler->remember(token);
    return sampler;
}

}  // namespace bevy
