#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/text.h"
#include "cli/scale/scale.h"
#include "draw/canvas.h"
#include "draw/ticks.h"

namespace orrery {
namespace {

using drawing::Canvas;
using drawing::point;

constexpr double margin = 28, left = 110, least_wide = 560, high = 300, bar = 22;

/// Okabe and Ito's colours, which people with any colour vision can distinguish; all information is also in text.
constexpr std::array<const char*, 7> part_colours{"#0072b2", "#e69f00", "#cc79a7", "#56b4e9",
                                                  "#009e73", "#d55e00", "#f0e442"};

std::string style_sheet(size_t parts) {
    std::string css =
        "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:12px;fill:#222}\n"
        ".paper{fill:#fff}\n.title{font-size:20px;font-weight:bold}\n.heading{font-size:14px;font-weight:bold}\n"
        ".fact{fill:#555}\n.small{font-size:11px;fill:#555}\n.end{text-anchor:end;font-size:11px;fill:#555}\n"
        ".middle{text-anchor:middle;font-size:11px;fill:#555}\n.above{text-anchor:middle;font-weight:bold;"
        "paint-order:stroke;stroke:#fff;stroke-width:4px}\n"
        ".inside{text-anchor:middle;font-size:10px;fill:#111}\n"
        ".rule{stroke:#e3e6ea}\n.axis{stroke:#888}\n.ideal{stroke:#888;stroke-dasharray:6 4;fill:none}\n"
        ".target{stroke:#b00020;stroke-dasharray:2 3;fill:none}\n.measured{stroke:#0072b2;stroke-width:2.5;fill:none}\n"
        ".mark{fill:#0072b2}\n.predicted{stroke:#e69f00;stroke-width:2;fill:none}\n.guess{fill:#e69f00}\n";
    for (size_t i = 0; i < parts; ++i)
        css += fmt::format(".p{}{{fill:{};fill-opacity:{}}}\n", i, part_colours[i % part_colours.size()],
                           i < part_colours.size() ? 0.75 : 0.35);
    return css;
}

/// Draws a scale report. Numbers of ranks are equally far apart, since they are usually doubled.
class ScalePicture {
public:
    explicit ScalePicture(const ScaleReport& report) : report_(report) {
        std::set<std::string> names;
        for (const ScaledRun& run : report.runs)
            for (const auto& [name, part] : run.parts) names.insert(name);
        if (names.erase("compute") > 0) names_.emplace_back("compute");
        names_.insert(names_.end(), names.begin(), names.end());
        for (const ScaledRun& run : report.runs)
            wide_ = std::max(wide_, 60 + (drawing::text_width(rate_text(run), 11) + 12) *
                                             static_cast<double>(report.runs.size() - 1));
    }

    std::string svg() {
        canvas_.text(margin, y_ += margin + 18, report_.title, "title");
        canvas_.text(margin, y_ += 20,
                     fmt::format("{}{}{}", report_.simulated ? "simulated; " : "",
                                 report_.strong ? "the same batch at every size" : "the batch grows with the ranks",
                                 report_.baseline_text()),
                     "fact");
        for (const std::string& size : report_.left_out)
            for (const std::string& line :
                 drawing::lines_of("not simulated: " + size.substr(0, size.find('\n')), 12, width() - 2 * margin))
                canvas_.text(margin, y_ += 17, line, "fact");
        throughput();
        parts();
        return canvas_.finish(width(), y_ + margin, report_.title, style_sheet(names_.size()), "");
    }

private:
    static std::string rate_text(const ScaledRun& run) { return short_text(run.throughput) + " " + run.unit() + "/s"; }
    double width() const { return std::max(left + wide_ + 200, drawing::text_width(report_.title, 20) + 2 * margin); }
    double ideal(size_t i) const {
        return report_.runs.front().throughput * static_cast<double>(report_.runs[i].ranks) /
               static_cast<double>(report_.runs.front().ranks);
    }
    double x(size_t i) const {
        const auto gaps = static_cast<double>(std::max<size_t>(1, report_.runs.size() - 1));
        return left + 30 + (wide_ - 60) * static_cast<double>(i) / gaps;
    }

    /// Draws efficiency by number of ranks. The ideal is horizontal, so that losses are visible everywhere.
    void throughput() {
        canvas_.heading(margin, y_ += 34,
                        report_.runs.front().tokens ? "Tokens a second and rank" : "Samples a second and rank");
        const double top = y_ + 24, bottom = top + high;
        double most = 0;
        const auto each = [&](size_t i, double tokens) { return tokens / static_cast<double>(report_.runs[i].ranks); };
        for (size_t i = 0; i < report_.runs.size(); ++i) {
            most = std::max({most, each(i, ideal(i)), each(i, report_.runs[i].throughput)});
            if (i < report_.predicted.size() && report_.predicted[i])
                most = std::max(most, each(i, *report_.predicted[i]));
        }
        most *= 1.12;
        const auto y = [&](double value) { return bottom - high * value / most; };
        const drawing::Ticks ticks = drawing::plain_ticks(most, 6, 0);
        for (int i = 0; i * ticks.step <= most; ++i) {
            const double at = i * ticks.step;
            canvas_.line(left, y(at), left + wide_, y(at), i == 0 ? "axis" : "rule");
            canvas_.text(left - 8, y(at) + 4, ticks.text(at), "end");
        }
        const double level = each(0, ideal(0));
        canvas_.line(left, y(level), left + wide_, y(level), "ideal");
        canvas_.text(left + wide_ + 8, y(level) + 4, "ideal", "small");
        canvas_.line(left, y(level * report_.target), left + wide_, y(level * report_.target), "target");
        const double below = std::max(y(level * report_.target), y(level) + 14);  // so far that the words fit
        canvas_.text(left + wide_ + 8, below + 4, fmt::format("target, {:.0f} %", 100 * report_.target), "small");
        curve("predicted", "guess", y, each,
              [&](size_t i) { return i < report_.predicted.size() ? report_.predicted[i] : std::optional<double>(); });
        curve(report_.simulated ? "predicted" : "measured", report_.simulated ? "guess" : "mark", y, each,
              [&](size_t i) { return std::optional<double>(report_.runs[i].throughput); });
        for (size_t i = 0; i < report_.runs.size(); ++i) {
            canvas_.text(x(i), y(each(i, report_.runs[i].throughput)) - 10,
                         fmt::format("{:.0f} %", 100 * report_.efficiency(i)), "above");
            canvas_.text(x(i), bottom + 18, plural(report_.runs[i].ranks, "rank"), "middle");
            canvas_.text(x(i), bottom + 32, rate_text(report_.runs[i]), "middle");
        }
        y_ = bottom + 44;
    }

    template <class Y, class Each, class Value>
    void curve(const char* look, const char* dot, Y y, Each each, Value value) {
        std::string path;
        for (size_t i = 0; i < report_.runs.size(); ++i)
            if (const auto tokens = value(i)) path += (path.empty() ? "M" : "L") + point(x(i), y(each(i, *tokens)));
        if (path.empty()) return;
        canvas_.path(path, look);
        for (size_t i = 0; i < report_.runs.size(); ++i)
            if (const auto tokens = value(i)) canvas_.dot(x(i), y(each(i, *tokens)), 4, dot);
    }

    void parts() {
        canvas_.heading(margin, y_ += 30,
                        report_.simulated ? "Where the ranks' time goes" : "Where rank 0's time went");
        double at = margin;
        y_ += 12;
        size_t number = 0;
        for (const std::string& name : names_) {
            const double needed = 18 + drawing::text_width(name, 11);
            if (at > margin && at + needed > width() - margin) {
                at = margin;
                y_ += 20;
            }
            canvas_.box(at, y_, 14, 14, fmt::format("p{}", number++));
            canvas_.text(at + 18, y_ + 11, name, "small");
            at += needed + 14;
        }
        y_ += 28;
        for (const ScaledRun& run : report_.runs) {
            canvas_.text(left - 8, y_ + bar / 2 + 4, plural(run.ranks, "rank"), "end");
            double from = left;
            number = 0;
            for (const std::string& name : names_) {
                const auto found = run.parts.find(name);
                const double part = found == run.parts.end() ? 0 : found->second;
                const double width = wide_ * part;
                const std::string words = fmt::format("{:.0f} %", 100 * part);
                if (part > 0)
                    canvas_.box(from, y_, width, bar, fmt::format("p{}", number), fmt::format("{}: {}", name, words));
                if (width > drawing::text_width(words, 10) + 4)
                    canvas_.text(from + width / 2, y_ + bar / 2 + 4, words, "inside");
                from += width;
                ++number;
            }
            y_ += bar + 6;
        }
    }

    const ScaleReport& report_;
    std::vector<std::string> names_;
    Canvas canvas_;
    double wide_ = least_wide;  ///< width of the plot: labels of sizes do not touch
    double y_ = 0;
};

}  // namespace

std::string scale_svg(const ScaleReport& report) { return ScalePicture(report).svg(); }

}  // namespace orrery
