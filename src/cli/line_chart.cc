#include "cli/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <map>
#include <optional>
#include <string_view>

namespace bevy {
namespace {

// Of one chart, in pixels. Its width is what the labels of the lines need besides.
constexpr double kHeight = 270;
constexpr double kLeft = 56;
constexpr double kRight = 306;  // where the lines end
constexpr double kTop = 44;
constexpr double kBottom = 42;
constexpr double kLetter = 6.7;  // of the font that is most likely there, on average
constexpr double kLabelGap = 13;
constexpr size_t kChartsPerRow = 3;

// Of middling lightness, so that they stand out from white and from black.
constexpr std::array kColours = {"#3b82c4", "#d9702e", "#3f9f5f", "#b05cc6",
                                 "#b8931f", "#c94f4f", "#4a98a8", "#8a7a6a"};

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '&':
                safe += "&amp;";
                break;
            case '<':
                safe += "&lt;";
                break;
            case '>':
                safe += "&gt;";
                break;
            case '"':
                safe += "&quot;";
                break;
            default:
                safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
        }
    }
    return safe;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view attributes = "") {
    return std::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                       anchor, attributes, escaped(text));
}

// The smallest of 1, 2, 5, 10, 20 ... times a power of ten that is not below `value`.
double round_step(double value) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    for (const double factor : {1, 2, 5}) {
        if (value <= factor * power * 1.0000001)
            return factor * power;
    }
    return 10 * power;
}

// Where the values of one chart lie on paper.
class Frame {
public:
    explicit Frame(const LineChart& chart) : logarithmic_(chart.x_logarithmic) {
        double y_max = 0;
        for (const ChartLine& line : chart.lines) {
            for (const auto& [x, y] : line.points) {
                xs_.push_back(x);
                y_max = std::max(y_max, y);
            }
        }
        std::ranges::sort(xs_);
        const auto repeated = std::ranges::unique(xs_);
        xs_.erase(repeated.begin(), repeated.end());
        step_ = y_max > 0 ? round_step(y_max / 5) : 1;
        y_max_ = std::max(std::ceil(y_max / step_), 1.0) * step_;
    }

    double x(double value) const {
        const double low = scaled(xs_.front());
        const double high = scaled(xs_.back());
        const double part = high > low ? (scaled(value) - low) / (high - low) : 0.5;
        return kLeft + part * (kRight - kLeft);
    }
    double y(double value) const {
        return kHeight - kBottom - value / y_max_ * (kHeight - kTop - kBottom);
    }
    bool empty() const { return xs_.empty(); }

    std::string axes(const LineChart& chart) const {
        std::string svg;
        for (double tick = 0; tick <= y_max_ * 1.0001; tick += step_) {
            svg += std::format(
                "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#80868c\" stroke-opacity=\"0.3\"/>\n",
                kLeft, y(tick), kRight);
            svg += text_at(kLeft - 6, y(tick) + 4, "end", std::format("{:.4g}", tick));
        }
        // Each value of x that was measured, as far as their labels do not touch.
        double labelled_to = 0;
        for (const double value : xs_) {
            if (x(value) < labelled_to)
                continue;
            const std::string label = std::format("{:.3g}", value);
            svg += text_at(x(value), kHeight - kBottom + 16, "middle", label);
            labelled_to = x(value) + (kLetter + 1) * static_cast<double>(label.size()) + 4;
        }
        svg += text_at((kLeft + kRight) / 2, kHeight - 8, "middle", chart.x_label);
        svg += text_at(kLeft, 16, "start", chart.title, " font-weight=\"bold\"");
        svg += text_at(kLeft - 6, kTop - 14, "end", chart.y_label);
        return svg;
    }

private:
    double scaled(double value) const { return logarithmic_ ? std::log2(value) : value; }

    bool logarithmic_;
    std::vector<double> xs_;  // ascending, without repetitions
    double step_ = 1;
    double y_max_ = 1;
};

struct Label {
    double y;
    std::string text;
    std::string_view colour;
};

// Moves labels apart, as little as that takes from top to bottom and back.
void spread(std::vector<Label>& labels) {
    std::ranges::stable_sort(labels, {}, &Label::y);
    for (size_t i = 1; i < labels.size(); i++)
        labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLabelGap);
    double limit = kHeight - kBottom;
    for (size_t i = labels.size(); i > 0; i--) {
        labels[i - 1].y = std::min(labels[i - 1].y, limit);
        limit = labels[i - 1].y - kLabelGap;
    }
}

std::string draw(const LineChart& chart, std::map<std::string, std::string_view>& colours) {
    const Frame frame(chart);
    if (frame.empty())
        return {};
    std::string svg = frame.axes(chart);
    std::vector<Label> labels;
    for (const ChartLine& line : chart.lines) {
        if (line.points.empty())
            continue;
        const std::string_view colour =
            colours.try_emplace(line.label, kColours[colours.size() % kColours.size()])
                .first->second;
        std::string path;
        for (const auto& [x, y] : line.points) {
            path +=
                std::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", frame.x(x), frame.y(y));
            svg += std::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
                               frame.x(x), frame.y(y), colour);
        }
        svg += std::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                           path, colour);
        labels.push_back({frame.y(line.points.back().second), line.label, colour});
    }
    spread(labels);
    for (const Label& label : labels)
        svg += text_at(kRight + 8, label.y + 4, "start", label.text,
                       std::format(" fill=\"{}\"", label.colour));
    return svg;
}

// So that the longest title and the longest label of a line fit.
double width_of(const std::vector<LineChart>& charts) {
    double width = kRight + 40;
    for (const LineChart& chart : charts) {
        width = std::max(width, kLeft + 20 + kLetter * static_cast<double>(chart.title.size()));
        for (const ChartLine& line : chart.lines)
            width = std::max(width, kRight + 24 + kLetter * static_cast<double>(line.label.size()));
    }
    return std::ceil(width);
}

}  // namespace

std::string draw_line_charts(const std::vector<LineChart>& charts) {
    const size_t columns = std::clamp<size_t>(charts.size(), 1, kChartsPerRow);
    const double width = width_of(charts);
    const size_t rows = std::max<size_t>((charts.size() + columns - 1) / columns, 1);
    std::string svg = std::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#80868c\">\n",
        static_cast<double>(columns) * width, static_cast<double>(rows) * kHeight);
    std::map<std::string, std::string_view> colours;
    for (size_t i = 0; i < charts.size(); i++) {
        const size_t row = i / columns;
        svg += std::format("<g transform=\"translate({} {})\">\n",
                           static_cast<double>(i % columns) * width,
                           static_cast<double>(row) * kHeight);
        svg += draw(charts[i], colours) + "</g>\n";
    }
    return svg + "</svg>\n";
}

}  // namespace bevy
