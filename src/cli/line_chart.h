// Small line charts as SVG: no script, no font files, no background, and colours that can be read
// on light and on dark paper. Lines are labelled where they end.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bevy {

struct ChartLine {
    std::string label;
    std::vector<std::pair<double, double>> points;  // (x, y), ascending in x
};

struct LineChart {
    std::string title;
    std::string x_label;
    std::string y_label;
    bool x_logarithmic = false;  // then x must be above 0
    std::vector<ChartLine> lines;
};

// The charts side by side, all lines of the same label in the same colour.
std::string draw_line_charts(const std::vector<LineChart>& charts);

}  // namespace bevy
