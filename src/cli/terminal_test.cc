#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "cli/run_view.h"

namespace bevy {
namespace {

TEST(Terminal, ControlCharactersDoNotReachIt) {
    EXPECT_EQ(terminal_safe("a\x1b[31mb\r\n\tc\x7f"), "a\xEF\xBF\xBD[31mb\n    c\xEF\xBF\xBD");
    EXPECT_EQ(terminal_safe("\xC2\x9B"
                            "x"),
              "\xEF\xBF\xBDx");  // the one-byte form of ESC [
    EXPECT_EQ(terminal_safe("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
              "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Terminal, MeasuresAndCutsByColumns) {
    EXPECT_EQ(display_width("abc"), 3u);
    EXPECT_EQ(display_width("\xC3\xA9\xE6\x97\xA5\xE6\x9C\xAC\xF0\x9F\x98\x80"), 7u);
    EXPECT_EQ(display_width("e\xCC\x81"), 1u);
    EXPECT_EQ(fit("abcdef", 6), "abcdef");
    EXPECT_EQ(fit("abcdef", 5), "abcd\xE2\x80\xA6");
    EXPECT_EQ(fit("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", 4), "\xE6\x97\xA5\xE2\x80\xA6");
    EXPECT_EQ(fit("abc", 0), "");
}

TEST(Terminal, ShowsTheLastLines) {
    EXPECT_EQ(last_lines("abcdef", 3, 5), (std::vector<std::string>{"abc", "def"}));
    EXPECT_EQ(last_lines("a\nb\nc\n", 10, 2), (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(last_lines("", 10, 2), (std::vector<std::string>{""}));
    const std::vector<std::string> lines = last_lines(std::string(100'000, 'x') + "end", 10, 3);
    EXPECT_EQ(lines.size(), 3u);
    EXPECT_TRUE(lines.back().ends_with("end"));
}

TEST(Terminal, DrawsABar) {
    EXPECT_EQ(progress_bar(0.5, 12), "[#####.....]");
    EXPECT_EQ(progress_bar(7.0, 6), "[####]");
    EXPECT_EQ(progress_bar(-1.0, 6), "[....]");
}

TEST(RunView, NamesWhatARequestDoes) {
    RequestProgress progress;
    EXPECT_EQ(state_text(progress), "queued");
    progress.phase = RequestPhase::kComputing;
    progress.tokens_prompt = 200;
    progress.position = 50;
    EXPECT_EQ(state_text(progress), "prefill 25 %");
    progress.prefill = false;
    progress.phase = RequestPhase::kWaiting;
    progress.missing_experts = 1;
    EXPECT_EQ(state_text(progress), "decoding, waiting for 1 expert");
}

}  // namespace
}  // namespace bevy
