// The promise: what a request gets does not depend on the schedule, nor on guesses. The same
// requests, greedy and sampled with seeds, run on the demo model under many policies,
// concurrencies, cache sizes and ways of reading, with reads that come late and out of order, and
// every byte must be the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/session.h"
#include "core/config.h"
#include "storage/faulty_link.h"
#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr uint32_t kRequests = 16;
constexpr uint32_t kTokens = 20;
constexpr uint32_t kChunk = 32;

// Collects one request's tokens; end-of-text does not end it, so that all are equally long.
class Collector final : public TokenSink {
public:
    bool on_token(TokenId token) override {
        tokens.push_back(token);
        return true;
    }
    void on_finish(FinishReason reason, const RequestTimings& timings,
                   std::optional<Error> error) override {
        reused = timings.tokens_reused;
        std::lock_guard lock(mutex_);
        text = error ? error->text() : finish_reason_name(reason);
        done_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return !text.empty(); });
    }

    std::vector<TokenId> tokens;
    uint32_t reused = 0;
    std::string text;

private:
    std::mutex mutex_;
    std::condition_variable done_;
};

// Short ones, and one of several chunks in four.
std::string prompt(uint32_t i) {
    std::string text = "Once there was a little fox named Pip who lived near house number " +
                       std::to_string(i) + ".";
    if (i % 4 == 3) {
        for (uint32_t j = 0; j < 8; j++)
            text += " Every morning he ate cheese and counted to " + std::to_string(i * j) + ".";
    }
    return text;
}

struct RunSetup {
    std::string model = BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf";
    std::string policy = "bevy";
    uint32_t parallel = kRequests;
    uint64_t cache_percent = 100;  // 0: the minimum, as many slots as a token uses experts
    IoBackend io = IoBackend::kUring;
    uint64_t seed = 0;  // of the read delays; 0: none
    uint32_t lookahead = 1;
    bool reuse = false;  // the second round begins where the first one's prompts lie

    std::string text() const {
        return policy + ", lookahead " + std::to_string(lookahead) + ", -np " +
               std::to_string(parallel) + ", cache " + std::to_string(cache_percent) + " %, " +
               (io == IoBackend::kUring ? "uring" : "pread") + ", delays " + std::to_string(seed) +
               (reuse ? ", reuse" : "");
    }
};

using Outputs = std::vector<std::vector<TokenId>>;

SessionOptions session_options(const RunSetup& setup) {
    SessionOptions options;
    options.model = setup.model;
    options.parallel = setup.parallel;
    options.context = 512 * setup.parallel;
    options.threads = 1;
    options.ubatch = kChunk;
    options.memory_bytes = 512 * kMiB;
    options.policy = setup.policy;
    options.lookahead = setup.lookahead;
    options.link.io = setup.io;
    options.expert_cache = {CacheSize::Kind::kPercent, setup.cache_percent * 100};
    if (setup.cache_percent == 0)  // 4 of 192 experts, rounded up
        options.expert_cache = {CacheSize::Kind::kPercent, 200};
    return options;
}

// The outputs of all requests, first greedy, then with temperature 1.
Outputs run(const RunSetup& setup) {
    SessionEvents events;
    if (setup.seed != 0) {
        events.decorate_link = [&](std::unique_ptr<Link> link) {
            return make_faulty_link(
                std::move(link),
                {.seed = setup.seed, .hold_polls_max = 3, .delay_max = microseconds(100)});
        };
    }
    auto session = Session::open(session_options(setup), events);
    if (!session) {
        ADD_FAILURE() << setup.text() << ": " << session.error().text();
        return {};
    }
    if (setup.cache_percent == 0 && setup.model.ends_with("tiny-moe-Q8_0.gguf")) {
        EXPECT_EQ((*session)->plan().slots, 4u) << "the cache is not the smallest possible";
    }
    Outputs outputs;
    uint32_t reused = 0;
    for (float temperature : {0.0f, 1.0f}) {
        std::vector<Collector> collectors(kRequests);
        for (uint32_t i = 0; i < kRequests; i++) {
            const LlamaVocabulary& vocabulary = (*session)->vocabulary();
            SamplingParams sampling;
            sampling.temperature = temperature;
            sampling.seed = 100 + i;
            GenerationRequest request;
            request.prompt = vocabulary.encode(prompt(i), true, false);
            request.max_tokens = kTokens;
            request.sampler =
                make_sampler(vocabulary, sampling, (*session)->context(), request.prompt).value();
            request.sink = &collectors[i];
            request.reuse_prompt = setup.reuse;
            auto submitted = (*session)->engine().submit(std::move(request));
            EXPECT_TRUE(submitted) << (submitted ? "" : submitted.error().text());
        }
        for (Collector& collector : collectors) {
            collector.wait();
            EXPECT_EQ(collector.text, "length") << setup.text();
            outputs.push_back(collector.tokens);
            reused += collector.reused;
        }
    }
    if (!setup.reuse) {
        EXPECT_EQ(reused, 0u);
    } else if (setup.parallel == kRequests) {  // with fewer sequences others may come in between
        EXPECT_GT(reused, 4 * kChunk) << setup.text();
    }
    EXPECT_TRUE((*session)->close());
    return outputs;
}

struct Case {
    std::string policy;
    uint32_t parallel;
    bool both_readers = false;  // with each cache size; else they alternate
};

class Exactness : public testing::TestWithParam<Case> {};

TEST_P(Exactness, OutputsDoNotDependOnTheSchedule) {
    const Outputs reference = run({});
    ASSERT_EQ(reference.size(), 2 * kRequests);
    EXPECT_NE(reference[0], reference[kRequests]) << "sampling has no effect";
    const Case& c = GetParam();
    uint64_t seed = 1;
    std::array readers = {IoBackend::kPread, IoBackend::kUring};
    for (uint64_t cache : {100, 50, 10, 0}) {
        std::ranges::reverse(readers);  // whoever gets one only gets the other one next time
        for (IoBackend io : std::span(readers).first(c.both_readers ? 2 : 1)) {
            RunSetup setup{.policy = c.policy,
                           .parallel = c.parallel,
                           .cache_percent = cache,
                           .io = io,
                           .seed = seed,
                           .lookahead = 1 + static_cast<uint32_t>(seed % 3),
                           .reuse = seed % 2 == 0};
            seed++;
            EXPECT_EQ(run(setup), reference) << setup.text();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    PoliciesAndConcurrency, Exactness,
    testing::Values(Case{"bevy", 1, true}, Case{"bevy", 3, true}, Case{"bevy", 16, true},
                    Case{"lockstep", 1}, Case{"lockstep", 3}, Case{"lockstep", 16},
                    Case{"lockstep-overlap", 16}, Case{"bevy-request", 16},
                    Case{"prefetch-next-gate", 16}, Case{"bevy+prefetch-previous-token", 16},
                    Case{"bevy+prefetch-next-gate", 3}, Case{std::string(kDefaultPolicy), 5}),
    [](const auto& c) {
        std::string name = c.param.policy + "_np_" + std::to_string(c.param.parallel);
        std::ranges::replace_if(name, [](char letter) { return !std::isalnum(letter); }, '_');
        return name;
    });

// Random models whose experts need what the demo model's don't: other kernels from eight columns
// on, a bounce buffer because their size is no multiple of a disk block, biases, sinks, a sliding
// window.
struct ModelKind {
    const char* architecture;
    const char* type;
    uint32_t expert_ff;
};

class ExactnessOfKinds : public testing::TestWithParam<ModelKind> {};

TEST_P(ExactnessOfKinds, OutputsDoNotDependOnTheSchedule) {
    RandomModelOptions make;
    make.architecture = GetParam().architecture;
    make.type = GetParam().type;
    make.expert_ff = GetParam().expert_ff;
    make.layers = 3;
    make.experts = 12;
    make.used = 3;
    make.output.path =
        testing::TempDir() + "bevy-exactness-" + std::to_string(::getpid()) + ".gguf";
    make.output.force = true;
    ASSERT_EQ(random_model_command(make), 0);
    const Outputs reference = run({.model = make.output.path});
    ASSERT_EQ(reference.size(), 2 * kRequests);
    for (const RunSetup& setup : {
             RunSetup{make.output.path, "bevy", 16, 10, IoBackend::kPread, 1, 1, true},
             RunSetup{make.output.path, "bevy+prefetch-next-gate", 5, 50, IoBackend::kUring, 2, 2,
                      true},
             RunSetup{make.output.path, "lockstep", 16, 10, IoBackend::kUring, 3, 1, true},
             RunSetup{make.output.path, "lockstep", 1, 50, IoBackend::kPread, 0},
         })
        EXPECT_EQ(run(setup), reference) << setup.text();
    std::remove(make.output.path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExactnessOfKinds,
                         testing::Values(ModelKind{"qwen3moe", "q4_K", 256},
                                         ModelKind{"gpt-oss", "mxfp4", 96}),
                         [](const auto& kind) {
                             return kind.index == 0 ? "Qwen3moeQ4K" : "GptOssMxfp4";
                         });

}  // namespace
}  // namespace bevy
