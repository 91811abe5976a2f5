// An expert that can't be read fails the requests that need it, and nobody else; a guess that they
// might need it fails nobody.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "cli/session.h"
#include "storage/faulty_link.h"
#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr uint32_t kRequests = 12;

class Reply final : public TokenSink {
public:
    bool on_token(TokenId token) override {
        tokens.push_back(token);
        return true;
    }
    void on_finish(FinishReason why, const RequestTimings&, std::optional<Error> what) override {
        reason = why;
        error = std::move(what);
        done_.release();
    }
    void wait() { done_.acquire(); }

    std::vector<TokenId> tokens;
    FinishReason reason = FinishReason::kCancelled;
    std::optional<Error> error;

private:
    std::binary_semaphore done_{0};
};

// One-letter prompts and three tokens, so that a request needs few experts.
std::vector<std::unique_ptr<Reply>> run(const std::vector<ExpertId>& failing,
                                        const std::string& policy) {
    SessionOptions options;
    options.model = BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf";
    options.parallel = 4;
    options.threads = 1;
    options.memory_bytes = 512 * kMiB;
    options.policy = policy;
    options.expert_cache = {CacheSize::Kind::kPercent, 2000};
    SessionEvents events;
    events.decorate_link = [&](std::unique_ptr<Link> link) {
        return make_faulty_link(std::move(link), {.failing = failing});
    };
    auto session = Session::open(options, events);
    EXPECT_TRUE(session) << (session ? "" : session.error().text());
    std::vector<std::unique_ptr<Reply>> replies;
    for (uint32_t i = 0; i < kRequests; i++) {
        replies.push_back(std::make_unique<Reply>());
        GenerationRequest request;
        request.prompt = (*session)->vocabulary().encode(std::string(1, static_cast<char>('A' + i)),
                                                         true, false);
        request.max_tokens = 3;
        SamplingParams greedy;
        greedy.temperature = 0;
        request.sampler =
            make_sampler((*session)->vocabulary(), greedy, (*session)->context(), request.prompt)
                .value();
        request.sink = replies.back().get();
        EXPECT_TRUE((*session)->engine().submit(std::move(request)));
    }
    for (auto& reply : replies)
        reply->wait();
    EXPECT_TRUE((*session)->close());
    return replies;
}

class DiskError : public testing::TestWithParam<std::string> {};

TEST_P(DiskError, FailsTheRequestsThatNeedTheExpertAndNoOther) {
    const auto healthy = run({}, "bevy");
    bool both = false;
    // Not every expert is needed by some requests and not by others; take the first that is.
    for (uint32_t expert = 96; expert < 128 && !both; expert++) {
        // Without guesses, exactly those fail that need the expert.
        const auto exact = run({ExpertId(expert)}, "bevy");
        const auto replies = run({ExpertId(expert)}, GetParam());
        uint32_t failed = 0;
        for (uint32_t i = 0; i < kRequests; i++) {
            ASSERT_EQ(healthy[i]->reason, FinishReason::kLength);
            EXPECT_EQ(replies[i]->reason, exact[i]->reason);
            if (replies[i]->reason == FinishReason::kError) {
                failed++;
                ASSERT_TRUE(replies[i]->error);
                EXPECT_EQ(replies[i]->error->code, ErrorCode::kIo);
                EXPECT_NE(replies[i]->error->message.find(std::to_string(expert)),
                          std::string::npos);
            } else {
                EXPECT_EQ(replies[i]->reason, FinishReason::kLength);
                EXPECT_EQ(replies[i]->tokens, healthy[i]->tokens);
            }
        }
        both = failed > 0 && failed < kRequests;
    }
    EXPECT_TRUE(both) << "no expert of this layer divides the requests";
}

INSTANTIATE_TEST_SUITE_P(Policies, DiskError,
                         testing::Values("bevy", "bevy+prefetch-next-gate", "prefetch-transition"),
                         [](const auto& policy) {
                             return "Policy" + std::to_string(policy.index);
                         });

}  // namespace
}  // namespace bevy
