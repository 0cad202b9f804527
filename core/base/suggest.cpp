#include "base/suggest.h"

#include <algorithm>

#include "base/text.h"

namespace orrery {

int edit_distance(std::string_view a, std::string_view b) {
    const size_t columns = b.size() + 1;
    std::vector<int> before_last(columns), last(columns), row(columns);
    for (size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = static_cast<int>(i);
        for (size_t j = 1; j < columns; ++j) {
            const int change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

std::string closest(std::string_view name, const std::vector<std::string>& candidates) {
    std::string best;
    int best_distance = std::max<int>(1, static_cast<int>(name.size()) / 3) + 1;
    for (const std::string& candidate : candidates) {
        if (candidate == name) continue;
        const int distance = edit_distance(name, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
    const std::string best = closest(name, candidates);
    return best.empty() ? "" : "did you mean " + quote(best) + "?";
}

std::string choices(std::string_view label, std::string_view name, std::vector<std::string> candidates) {
    if (candidates.empty()) return "";
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    const std::string guess = did_you_mean(name, candidates);
    const size_t shown = std::min<size_t>(candidates.size(), 12);
    std::string line =
        "\n  " + std::string(label) + ": " + join({candidates.begin(), candidates.begin() + shown}, ", ");
    if (shown < candidates.size()) line += ", and " + std::to_string(candidates.size() - shown) + " more";
    if (!guess.empty()) line += "        " + guess;
    return line;
}

}  // namespace orrery
