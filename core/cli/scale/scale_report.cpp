#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "cli/scale/scale.h"

namespace orrery {
namespace {

double part_of(const ScaledRun& run, const std::string& name) {
    const auto found = run.parts.find(name);
    return found == run.parts.end() ? 0 : found->second;
}

/// Parts of a step that take a larger share of time in `run` than in `first`, by at least one point; largest first.
std::string what_grew(const ScaledRun& first, const ScaledRun& run) {
    std::vector<std::pair<double, std::string>> grown;
    for (const auto& [name, part] : run.parts)
        if (name != "compute" && part - part_of(first, name) >= 0.01)
            grown.emplace_back(part - part_of(first, name), name);
    std::sort(grown.rbegin(), grown.rend());
    std::vector<std::string> words;
    for (const auto& [points, name] : grown) words.push_back(fmt::format("{} +{:.0f}", name, 100 * points));
    return words.empty() ? "-" : join_few(words, 3);
}

}  // namespace

std::string ScaleReport::baseline_text() const {
    return smallest_left_out ? ", speed-up and efficiency over " + plural(runs.front().ranks, "rank") : "";
}

std::string scale_text(const ScaleReport& report) {
    const bool predicted = !report.predicted.empty();
    std::string text = fmt::format("{}{}, {}{}; target {:.0f} %\n", report.title, report.simulated ? ", simulated" : "",
                                   report.strong ? "the same batch at every size" : "the batch grows with the ranks",
                                   report.baseline_text(), 100 * report.target);
    text += fmt::format("{:>6} {:>9} {:>10}{} {:>8} {:>10} {:>6}  {}\n", "ranks", "sequences",
                        report.runs.front().unit() + "/s",
                        predicted ? fmt::format(" {:>10} {:>6}", "predicted", "off") : "", "speed-up", "efficiency",
                        "MFU", "what grew, in points of the time");
    for (size_t i = 0; i < report.runs.size(); ++i) {
        const ScaledRun& run = report.runs[i];
        std::string beside;
        if (predicted) {
            const auto& expected = report.predicted[i];
            beside = expected ? fmt::format(" {:>10} {:>5.0f}%", short_text(*expected),
                                            100 * (*expected / run.throughput - 1))
                              : fmt::format(" {:>10} {:>6}", "-", "-");
        }
        text += fmt::format("{:>6} {:>9} {:>10}{} {:>8.2f} {:>9.1f}% {:>6}  {}\n", run.ranks, run.sequences,
                            short_text(run.throughput), beside, report.speedup(i), 100 * report.efficiency(i),
                            run.mfu > 0 ? fmt::format("{:.1f}%", 100 * run.mfu) : "-",
                            i == 0 ? "" : what_grew(report.runs.front(), run));
    }
    const ScaledRun& last = report.runs.back();
    const double reached = report.efficiency(report.runs.size() - 1);
    return text + fmt::format("{} reach {:.1f} % of ideal scaling: {}\n", plural(last.ranks, "rank"), 100 * reached,
                              reached >= report.target ? "the target is met" : "the target is missed");
}

}  // namespace orrery
