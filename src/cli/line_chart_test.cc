#include "cli/line_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

namespace bevy {
namespace {

LineChart chart(std::vector<ChartLine> lines) {
    return {.title = "a machine", .x_label = "size", .y_label = "speed", .lines = std::move(lines)};
}

// The y of every text that is `label`.
std::vector<double> heights_of(const std::string& svg, const std::string& label) {
    std::vector<double> heights;
    const std::regex pattern("<text x=\"[^\"]*\" y=\"([^\"]*)\"[^>]*>" + label + "</text>");
    for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at)
        heights.push_back(std::stod((*at)[1]));
    return heights;
}

TEST(LineChart, LinesAreLabelledWhereTheyEnd) {
    const std::string svg =
        draw_line_charts({chart({{"fast", {{1, 5}, {2, 9}}}, {"slow", {{1, 2}, {2, 3}}}})});
    EXPECT_TRUE(svg.starts_with("<svg "));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    ASSERT_EQ(heights_of(svg, "fast").size(), 1u);
    ASSERT_EQ(heights_of(svg, "slow").size(), 1u);
    EXPECT_LT(heights_of(svg, "fast")[0], heights_of(svg, "slow")[0]);
    EXPECT_TRUE(svg.contains("a machine") && svg.contains("size") && svg.contains("speed"));
}

TEST(LineChart, LabelsDoNotCoverEachOther) {
    std::vector<ChartLine> lines;
    for (const char* label : {"one", "two", "three", "four"})
        lines.push_back({label, {{1, 10}, {2, 10}}});
    lines.push_back({"zero", {{1, 0}, {2, 0}}});
    lines.push_back({"nought", {{1, 0}, {2, 0}}});
    const std::string svg = draw_line_charts({chart(lines)});
    std::vector<double> heights;
    for (const ChartLine& line : lines)
        heights.push_back(heights_of(svg, line.label).at(0));
    std::ranges::sort(heights);
    for (size_t i = 1; i < heights.size(); i++)
        EXPECT_GE(heights[i] - heights[i - 1], 12);
}

TEST(LineChart, ALabelKeepsItsColourFromChartToChart) {
    const std::string svg = draw_line_charts(
        {chart({{"a", {{1, 1}}}, {"b", {{1, 2}}}}), chart({{"b", {{1, 2}}}, {"a", {{1, 1}}}})});
    const std::regex pattern("fill=\"(#[0-9a-f]*)\">b</text>");
    std::vector<std::string> colours;
    for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at)
        colours.push_back((*at)[1]);
    ASSERT_EQ(colours.size(), 2u);
    EXPECT_EQ(colours[0], colours[1]);
}

TEST(LineChart, TextIsEscaped) {
    LineChart odd = chart({{"<b> & \"c\"", {{1, 1}}}});
    odd.title = "a<b";
    const std::string svg = draw_line_charts({odd});
    EXPECT_TRUE(svg.contains("&lt;b&gt; &amp; &quot;c&quot;"));
    EXPECT_TRUE(svg.contains("a&lt;b"));
    EXPECT_FALSE(svg.contains("a<b"));
}

TEST(LineChart, NothingToDrawIsStillAPicture) {
    for (const std::vector<LineChart>& charts : {std::vector<LineChart>{},
                                                 {chart({})},
                                                 {chart({{"empty", {}}})},
                                                 {chart({{"flat", {{0, 0}}}})}}) {
        const std::string svg = draw_line_charts(charts);
        EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        EXPECT_FALSE(svg.contains("nan") || svg.contains("inf")) << svg;
    }
}

TEST(LineChart, ALogarithmicAxisSpacesDoublingsEvenly) {
    LineChart doubling = chart({{"a", {{1, 1}, {2, 1}, {4, 1}}}});
    doubling.x_logarithmic = true;
    const std::string svg = draw_line_charts({doubling});
    const std::regex pattern("<circle cx=\"([^\"]*)\"");
    std::vector<double> xs;
    for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at)
        xs.push_back(std::stod((*at)[1]));
    ASSERT_EQ(xs.size(), 3u);
    EXPECT_NEAR(xs[1] - xs[0], xs[2] - xs[1], 0.2);
}

}  // namespace
}  // namespace bevy
