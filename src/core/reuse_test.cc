// Requests that begin like earlier ones: what of their prompts the core lets them skip.
#include <gtest/gtest.h>

#include "core/core_test_driver.h"

namespace bevy {
namespace {

constexpr uint32_t kChunk = 4;

class ReuseTest : public testing::Test {
protected:
    static CoreConfig config(uint32_t sequences) {
        CoreConfig config = small_config();
        config.sequences = sequences;
        config.chunk_tokens = kChunk;
        return config;
    }
    void start(uint32_t sequences) {
        driver_ = std::make_unique<CoreDriver>(config(sequences),
                                               [](RequestId, uint32_t) { return experts({0, 1}); });
    }
    static std::vector<TokenId> tokens(uint32_t count, TokenId first = 0) {
        std::vector<TokenId> result;
        for (uint32_t i = 0; i < count; i++)
            result.push_back(first + static_cast<TokenId>(i));
        return result;
    }
    // Prefill and `more` further tokens, then the end.
    void finish(RequestId id, uint32_t more = 0) {
        driver_->run_until_sampling(id);
        for (uint32_t i = 0; i < more; i++) {
            driver_->sample();
            driver_->run_until_sampling(id);
        }
        driver_->sample(true);
    }
    uint32_t reused(const std::vector<TokenId>& prompt) {
        const RequestId id = driver_->arrive(prompt);
        finish(id);
        return driver_->reused[id];
    }

    std::unique_ptr<CoreDriver> driver_;
};

TEST_F(ReuseTest, TheFirstPassBeginsBehindTheReusedChunks) {
    start(1);
    finish(driver_->arrive(tokens(10)));
    const RequestId id = driver_->arrive(tokens(14));
    driver_->decide();
    EXPECT_EQ(driver_->reused[id], 8u);
    ASSERT_TRUE(driver_->step);
    EXPECT_EQ(driver_->step->passes[0].first_position, 8u);
    EXPECT_EQ(driver_->step->passes[0].tokens, 4u);
    finish(id);
}

TEST_F(ReuseTest, ThePrefixGrowsWithEachTurnOfAConversation) {
    start(1);
    EXPECT_EQ(reused(tokens(9)), 0u);
    EXPECT_EQ(reused(tokens(17)), 8u);
    EXPECT_EQ(reused(tokens(22)), 16u);
    EXPECT_EQ(reused(tokens(23)), 20u);
}

// A part of the prompt that was not computed in one pass of a whole chunk has other bits than a
// chunk would have.
TEST_F(ReuseTest, DecodedTokensAreNotReused) {
    start(1);
    finish(driver_->arrive(tokens(6)), 10);  // 4..5 in a short pass, then one by one
    EXPECT_EQ(reused(tokens(17)), 4u);
}

TEST_F(ReuseTest, ARequestThatAsksForNothingLeavesNothing) {
    start(1);
    EXPECT_EQ(reused(tokens(9)), 0u);
    const RequestId id = driver_->arrive(9);
    finish(id);
    EXPECT_EQ(driver_->reused[id], 0u);
    EXPECT_EQ(reused(tokens(9)), 0u);  // it was overwritten
}

TEST_F(ReuseTest, ACancelledRequestLeavesTheChunksThatItFinished) {
    start(1);
    const RequestId id = driver_->arrive(tokens(12));
    driver_->decide();
    while (driver_->find(id)->position < 4) {
        if (driver_->step)
            driver_->finish_step();
        else
            driver_->finish_read();
        driver_->decide();
    }
    driver_->finish_step();  // the next chunk is under way
    driver_->cancel(id);
    driver_->decide();
    while (driver_->step || !driver_->reads.empty()) {
        if (driver_->step)
            driver_->finish_step();
        else
            driver_->finish_read();
        driver_->decide();
    }
    EXPECT_EQ(reused(tokens(20)), 4u);
}

TEST_F(ReuseTest, NothingIsTakenFromARunningRequest) {
    start(2);
    const RequestId first = driver_->arrive(tokens(9));
    driver_->run_until_sampling(first);
    const RequestId second = driver_->arrive(tokens(9));
    driver_->decide();
    EXPECT_EQ(driver_->reused[second], 0u);
    driver_->cancel(second);
    finish(first);
}

TEST_F(ReuseTest, ConversationsKeepTheirSequences) {
    start(2);
    finish(driver_->arrive(tokens(9)));
    finish(driver_->arrive(tokens(9, 100)));
    for (uint32_t turn = 1; turn <= 4; turn++) {
        EXPECT_EQ(reused(tokens(9 + 8 * turn)), 8 * turn);
        EXPECT_EQ(reused(tokens(9 + 8 * turn, 100)), 8 * turn);
    }
}

}  // namespace
}  // namespace bevy
