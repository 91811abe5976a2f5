#include "cli/options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

namespace bevy {
namespace {

// Nothing: refused.
std::optional<RunOptions> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "bevy");
    RunOptions options;
    CLI::App app;
    declare_run_options(app, options);
    std::vector<std::string> arguments =
        expand_short_names(static_cast<int>(words.size()), words.data());
    std::ranges::reverse(arguments);
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError&) {
        return std::nullopt;
    }
    return options;
}

TEST(RunOptions, DefaultsAreThoseOfTheFields) {
    const auto options = parse({"-m", "x.gguf"});
    ASSERT_TRUE(options.has_value());
    EXPECT_EQ(options->session.parallel, RunOptions().session.parallel);
    EXPECT_EQ(options->sampling.top_k, SamplingParams().top_k);
    EXPECT_EQ(options->session.expert_cache.kind, CacheSize::Kind::kRest);
}

TEST(RunOptions, TakesLlamaServersNames) {
    const auto options = parse({"-m",
                                "x.gguf",
                                "-np",
                                "8",
                                "-ctk",
                                "q8_0",
                                "-ctv",
                                "f32",
                                "-ub",
                                "128",
                                "-c",
                                "2048",
                                "-n",
                                "-1",
                                "-s",
                                "7",
                                "-t",
                                "3",
                                "--temp",
                                "-1",
                                "--memory",
                                "8GiB",
                                "--expert-cache",
                                "40%",
                                "--io",
                                "pread",
                                "--direct-io",
                                "off",
                                "--repeat-last-n",
                                "-1"});
    ASSERT_TRUE(options.has_value());
    EXPECT_EQ(options->session.parallel, 8u);
    EXPECT_EQ(options->session.cache_type_k, "q8_0");
    EXPECT_EQ(options->session.cache_type_v, "f32");
    EXPECT_EQ(options->session.ubatch, 128u);
    EXPECT_EQ(options->session.context, 2048u);
    EXPECT_EQ(options->generation.predict, -1);
    EXPECT_EQ(options->sampling.seed, 7u);
    EXPECT_EQ(options->sampling.temperature, -1.0f);
    EXPECT_EQ(options->session.memory_bytes, uint64_t{8} << 30);
    EXPECT_EQ(options->session.expert_cache.kind, CacheSize::Kind::kPercent);
    EXPECT_EQ(options->session.link.io, IoBackend::kPread);
    EXPECT_EQ(options->session.link.direct, DirectIo::kOff);
}

TEST(RunOptions, TakesPoliciesWithAndWithoutPredictors) {
    for (const char* name : {"bevy", "lockstep-overlap", "prefetch-next-gate",
                             "bevy+prefetch-previous-token", "lockstep+prefetch-oracle"}) {
        const auto options = parse({"-m", "x", "--policy", name, "--read-order", "fifo",
                                    "--lookahead", "3", "--prefetch-reads", "4"});
        ASSERT_TRUE(options.has_value()) << name;
        EXPECT_EQ(options->session.policy, name);
        EXPECT_EQ(options->session.read_order, "fifo");
        EXPECT_EQ(options->session.lookahead, 3u);
        EXPECT_EQ(options->session.prefetch_reads, 4u);
    }
    for (const char* name : {"bevy+", "bevy+prefetch-", "prefetch-", "+prefetch-next-gate",
                             "bevy+next-gate", "bevy+prefetch-next-gate+prefetch-next-gate"})
        EXPECT_FALSE(parse({"-m", "x", "--policy", name}).has_value()) << name;
}

TEST(RunOptions, KeepsPromptsAsTheyAre) {
    const auto options =
        parse({"-m", "x", "-p", "-np", "-p", "two words", "--stop", "a", "--stop", "-ub"});
    ASSERT_TRUE(options.has_value());
    EXPECT_EQ(options->generation.prompts, (std::vector<std::string>{"-np", "two words"}));
    EXPECT_EQ(options->generation.stop, (std::vector<std::string>{"a", "-ub"}));
}

TEST(RunOptions, RefusesWhatIsOutOfRange) {
    const std::vector<std::vector<const char*>> cases = {{"-np", "0"},
                                                         {"-np", "x"},
                                                         {"--top-p", "1.01"},
                                                         {"--top-p", "nan"},
                                                         {"--temp", "inf"},
                                                         {"--memory", "0"},
                                                         {"--memory", "x"},
                                                         {"--expert-cache", "101x"},
                                                         {"--policy", "?"},
                                                         {"--eviction", "?"},
                                                         {"--io", "?"},
                                                         {"--direct-io", "?"},
                                                         {"-ctk", "q2_K"},
                                                         {"-n", "-2"},
                                                         {"-s", "-1"},
                                                         {"-s", "4294967296"},
                                                         {"-v", "-q"},
                                                         {"--reads", "0"},
                                                         {"-c", "-1"},
                                                         {"surplus"},
                                                         {"--read-order", "?"},
                                                         {"--lookahead", "0"},
                                                         {"--prefetch-reads", "0"}};
    for (std::vector<const char*> words : cases) {
        const std::string shown = words.front();
        words.insert(words.begin(), {"-m", "x"});
        EXPECT_FALSE(parse(words).has_value()) << shown;
    }
    EXPECT_FALSE(parse({"-p", "no model"}).has_value());
}

}  // namespace
}  // namespace bevy
