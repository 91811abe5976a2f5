#include "sim/route_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/generated_routes.h"
#include "sim/sim_model.h"

namespace bevy {
namespace {

// Token t of request r uses expert t at layer 0 and expert 100 + r at layer 1.
RouteTrace counting_trace(std::initializer_list<uint8_t> lengths) {
    RouteTrace trace{.layers = 2, .experts = 256, .top_k = 1};
    for (const uint8_t tokens : lengths) {
        RouteTrace::Request request{.tokens = tokens};
        for (uint8_t token = 0; token < tokens; token++) {
            request.bytes.push_back(token);
            request.bytes.push_back(static_cast<uint8_t>(100 + trace.requests.size()));
        }
        trace.requests.push_back(std::move(request));
    }
    return trace;
}

TEST(RouteSource, GivesEveryRequestThatIsLongEnoughInTurn) {
    const RouteTrace trace = counting_trace({10, 5, 20, 30});
    const RouteSource source = RouteSource::create(trace, {.drop_tokens = 5}).value();
    std::multiset<uint32_t> lengths;
    for (uint64_t i = 0; i < 6; i++) {
        const RequestRoutes routes = source.request(i);
        lengths.insert(routes.tokens);
        EXPECT_EQ(routes.route(0, 0)[0], 5);
        EXPECT_EQ(routes.route(2, 0)[0], 7);
        EXPECT_EQ(routes.route(0, 1)[0], routes.route(3, 1)[0]);
    }
    EXPECT_EQ(lengths, (std::multiset<uint32_t>{5, 5, 15, 15, 25, 25}));
}

TEST(RouteSource, TheSeedDecidesTheOrder) {
    const RouteTrace trace = counting_trace({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const auto lengths = [&](uint64_t seed) {
        const RouteSource source = RouteSource::create(trace, {.seed = seed}).value();
        std::vector<uint32_t> all;
        for (uint64_t i = 0; i < 12; i++)
            all.push_back(source.request(i).tokens);
        return all;
    };
    EXPECT_EQ(lengths(1), lengths(1));
    EXPECT_NE(lengths(1), lengths(2));
}

TEST(RouteSource, StaggeredRequestsBeginInTheMiddleButNeverAtTheEnd) {
    const RouteTrace trace = counting_trace({40, 40, 40, 40});
    std::set<uint32_t> lengths;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const RouteSource source =
            RouteSource::create(trace, {.drop_tokens = 8, .staggered = 3, .seed = seed}).value();
        for (uint64_t i = 0; i < 3; i++) {
            const RequestRoutes routes = source.request(i);
            lengths.insert(routes.tokens);
            EXPECT_EQ(routes.route(0, 0)[0], 40 - routes.tokens);
            EXPECT_EQ(routes.route(routes.tokens - 1, 0)[0], 39);
        }
        EXPECT_EQ(source.request(3).tokens, 32u);
        EXPECT_EQ(source.request(4).tokens, 32u);  // the first one's next turn is a whole one
    }
    EXPECT_GT(lengths.size(), 10u);
    EXPECT_GE(*lengths.begin(), 1u);
}

TEST(RouteSource, RefusesToLeaveOutEverything) {
    const RouteTrace trace = counting_trace({4, 5});
    const Result<RouteSource> source = RouteSource::create(trace, {.drop_tokens = 5});
    ASSERT_FALSE(source);
    EXPECT_TRUE(source.error().message.contains("5 tokens")) << source.error().message;
}

TEST(GeneratedRoutes, AreAValidTraceOfTheAskedSizes) {
    const RouteTrace trace = generate_routes({.layers = 3,
                                              .experts = 256,
                                              .top_k = 8,
                                              .statistics = {1000, 1000, 1000, 500},
                                              .requests = 5,
                                              .tokens_min = 3,
                                              .tokens_max = 6});
    const Status valid = check_route_trace(trace, "generated");
    EXPECT_TRUE(valid) << valid.error().text();
    EXPECT_EQ(trace.requests.size(), 5u);
    for (const RouteTrace::Request& request : trace.requests) {
        EXPECT_GE(request.tokens, 3u);
        EXPECT_LE(request.tokens, 6u);
    }
}

// Golden: the same bits with every compiler, at every level of optimisation.
TEST(GeneratedRoutes, ASeedMeansTheSameRoutesEverywhere) {
    const RouteTrace trace = generate_routes({.layers = 4,
                                              .experts = 32,
                                              .top_k = 4,
                                              .statistics = {1100, 1250, 1250, 500},
                                              .requests = 3,
                                              .tokens_min = 20,
                                              .tokens_max = 50,
                                              .seed = 7});
    uint64_t hash = 0;
    for (const RouteTrace::Request& request : trace.requests) {
        hash = sim_mix(hash, request.tokens);
        for (const uint8_t expert : request.bytes)
            hash = sim_mix(hash, expert);
    }
    EXPECT_EQ(hash, 14027424507792423761u);
}

TEST(GeneratedRoutes, WithoutAnyPreferenceAllExpertsAreAlike) {
    const RouteTrace trace = generate_routes({.layers = 1,
                                              .experts = 16,
                                              .top_k = 4,
                                              .requests = 4,
                                              .tokens_min = 2000,
                                              .tokens_max = 2000});
    std::vector<uint32_t> uses(16);
    for (const RouteTrace::Request& request : trace.requests) {
        for (const uint8_t expert : request.bytes)
            uses[expert]++;
    }
    // 2000 expected each, with a standard deviation of 39.
    for (const uint32_t n : uses)
        EXPECT_NEAR(n, 2000, 160);
}

}  // namespace
}  // namespace bevy
