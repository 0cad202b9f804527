#include "sim/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>

namespace orrery {
namespace {

struct Order {
    std::string_view name;
    int64_t chunks;
};
/// Of the library (scripts/orrery/schedules); gpipe is never better than 1f1b.
constexpr std::array<Order, 6> orders = {
    {{"1f1b", 0}, {"interleaved", 2}, {"interleaved", 3}, {"interleaved", 4}, {"zb_h1", 0}, {"zbv", 0}}};
constexpr std::array<std::string_view, 3> recomputes = {"none", "attention", "all"};
constexpr std::array<int64_t, 5> sample_counts = {1, 2, 4, 8, 16};

template <class All, class Value>
size_t place_of(const All& all, const Value& value) {
    return static_cast<size_t>(std::find(all.begin(), all.end(), value) - all.begin());
}

}  // namespace

double Search::state_bytes(double parameters, const Choice& c) {
    const double own = parameters / static_cast<double>(c.tp * c.pp), n = static_cast<double>(c.dp);
    switch (c.zero) {
        case 1: return own * (6 + 12 / n);
        case 2: return own * (2 + 16 / n);
        case 3: return own * 18 / n;
        default: return own * 18;
    }
}

double Search::bubble(const Choice& c, int64_t micros) {
    if (c.pp == 1 || micros == 0) return 0;
    const double p = static_cast<double>(c.pp - 1), m = static_cast<double>(micros);
    if (c.schedule == "interleaved") return p / (static_cast<double>(std::max<int64_t>(c.chunks, 2)) * m);
    if (c.schedule == "zb_h1") return p / (3 * m);
    if (c.schedule == "zbv") return p / (6 * m);
    return p / m;
}

bool Search::whole(const Choice& c) const {
    if (c.dp * c.samples > space_.batch || space_.batch % (c.dp * c.samples) != 0) return false;
    if (c.pp == 1) return true;
    return c.schedule != "interleaved" || micros(c) % c.pp == 0;
}

/// Every mesh with the options that most take.
std::vector<Choice> Search::meshes() const {
    if (!space_.varies_mesh) return {space_.start};
    std::vector<Choice> all;
    for (int64_t tp = 1; tp <= std::min(space_.ranks, space_.most_tp); ++tp)
        for (int64_t pp = 1; pp <= std::min(space_.ranks / tp, space_.most_pp); ++pp) {
            if (space_.ranks % (tp * pp) != 0) continue;
            Choice c = space_.start;
            c.tp = tp;
            c.pp = pp;
            c.dp = space_.ranks / tp / pp;
            if (space_.varies_zero) c.zero = c.dp > 1 ? 1 : 0;
            if (space_.varies_sequence) c.sequence = tp > 1;
            if (space_.varies_samples) c.samples = 1;
            if (space_.varies_schedule) std::tie(c.schedule, c.chunks) = std::make_tuple("1f1b", int64_t{0});
            if (whole(c)) all.push_back(c);
        }
    std::stable_sort(all.begin(), all.end(),
                     [&](const Choice& a, const Choice& b) { return least_seconds(a) < least_seconds(b); });
    return all;
}

/// The same with less memory: a higher ZeRO stage, then recomputation.
std::optional<Choice> Search::smaller(const Choice& choice) const {
    Choice c = choice;
    if (space_.varies_recompute && c.recompute != recomputes.back()) {
        c.recompute = recomputes[std::min(place_of(recomputes, c.recompute) + 1, recomputes.size() - 1)];
        return c;
    }
    if (!space_.varies_zero || c.dp == 1 || c.zero == 3) return std::nullopt;
    c.zero = c.pp > 1 ? c.zero + 1 : 3;  // ZeRO-2 and 3 reduce in each micro-batch
    return c;
}

/// All that differ in one option, by option.
std::vector<std::vector<Choice>> Search::beside(const Choice& choice) const {
    std::vector<std::vector<Choice>> all;
    const auto add = [&](auto change) {
        Choice c = choice;
        change(c);
        if (c != choice && whole(c)) all.back().push_back(c);
    };
    all.emplace_back();
    if (space_.varies_schedule && choice.pp > 1)
        for (const Order& order : orders)
            add([&](Choice& c) {
                c.schedule = order.name;
                c.chunks = order.chunks;
            });
    all.emplace_back();
    if (space_.varies_samples)
        for (const int64_t samples : sample_counts) add([&](Choice& c) { c.samples = samples; });
    all.emplace_back();
    if (space_.varies_recompute)
        for (const std::string_view kind : recomputes) add([&](Choice& c) { c.recompute = kind; });
    all.emplace_back();
    if (space_.varies_zero && choice.dp > 1)
        for (int64_t zero = 0; zero <= 3; ++zero) add([&](Choice& c) { c.zero = zero; });
    all.emplace_back();
    if (space_.varies_sequence && choice.tp > 1) add([&](Choice& c) { c.sequence = !c.sequence; });
    all.emplace_back();
    if (space_.varies_mapping && choice.pp > 1 && choice.dp > 1)
        for (const char* order : {"", "tp,pp,dp"}) add([&](Choice& c) { c.mapping = order; });
    return all;
}

/// Option by option, from the best so far, until none is faster.
Choice Search::climb(Choice at) {
    for (bool faster = true; faster;) {
        faster = false;
        const size_t options = beside(at).size();
        for (size_t option = 0; option < options; ++option) {
            const std::vector<Choice> values = beside(at)[option];
            for (const Choice& next : values) {
                const Judged* judged = look(next);
                if (!judged || !fits(*judged) || judged->step_s >= known_.at(at).step_s) continue;
                at = next;
                faster = true;
                break;  // the rest of the option in the next round
            }
        }
    }
    return at;
}

bool Search::fits(const Judged& judged) const {
    return judged.why_not.empty() &&
           (space_.memory_limit == 0 || static_cast<double>(judged.memory_bytes) <= space_.memory_limit);
}

double Search::least_seconds(const Choice& c) const {
    const double rate = rate_ > 0 ? std::min(space_.rate, 1.05 * rate_) : space_.rate;
    if (rate <= 0) return 0;
    const double again = c.recompute == "all" ? 4.0 / 3 : 1;
    return space_.flops * again / rate / static_cast<double>(space_.ranks) * (1 + bubble(c, micros(c)));
}

double Search::worst_kept() const {
    std::vector<double> times;
    for (const auto& [choice, judged] : known_)
        if (fits(judged)) times.push_back(judged.step_s);
    if (times.empty()) return std::numeric_limits<double>::infinity();
    std::sort(times.begin(), times.end());
    const double quarter = 1.25 * times.front();
    return times.size() < space_.kept ? quarter : std::min(quarter, times[space_.kept - 1]);
}

/// nullptr: it cannot be among the best.
const Judged* Search::look(const Choice& choice) {
    const auto known = known_.find(choice);
    if (known != known_.end()) return &known->second;
    const bool too_large =
        space_.memory_limit > 0 && state_bytes(space_.parameters, choice) * 0.75 > space_.memory_limit;
    if (too_large || least_seconds(choice) > worst_kept()) {
        pruned_[choice] = true;
        return nullptr;
    }
    Judged judged = judge_(choice);
    judged.choice = choice;
    if (judged.computing_s > 0) {
        const double again = choice.recompute == "all" ? 4.0 / 3 : 1;
        rate_ = std::max(rate_, space_.flops * again / judged.computing_s / static_cast<double>(space_.ranks));
    }
    const Judged& kept = known_.emplace(choice, std::move(judged)).first->second;
    const std::vector<const Judged*> best = fitting();
    if (progress_) progress_(static_cast<int64_t>(known_.size()), left_, best.empty() ? nullptr : best.front());
    return &kept;
}

std::vector<const Judged*> Search::fitting() const {
    std::vector<const Judged*> all;
    for (const auto& [choice, judged] : known_)
        if (fits(judged)) all.push_back(&judged);
    std::stable_sort(all.begin(), all.end(), [](const Judged* a, const Judged* b) { return a->step_s < b->step_s; });
    return all;
}

Found Search::run() {
    const std::vector<Choice> first = meshes();
    left_ = static_cast<int64_t>(first.size());
    for (const Choice& mesh : first) {
        --left_;
        for (std::optional<Choice> c = mesh; c; c = smaller(*c)) {
            const Judged* judged = look(*c);
            if (judged && fits(*judged)) break;
            if (judged && !judged->why_not.empty()) break;  // another option does not make the mesh possible
        }
    }
    std::set<std::tuple<int64_t, int64_t>> climbed;
    std::vector<Choice> tops;
    for (const Judged* judged : fitting())
        if (tops.size() < space_.climbs && climbed.emplace(judged->choice.tp, judged->choice.pp).second)
            tops.push_back(judged->choice);
    left_ = static_cast<int64_t>(tops.size());
    for (const Choice& top : tops) {
        --left_;
        climb(top);
    }
    Found found;
    for (const Judged* judged : fitting())
        if (found.best.size() < space_.kept) found.best.push_back(*judged);
    std::map<std::string, const Judged*> reasons;
    for (const auto& [choice, judged] : known_) {
        if (fits(judged)) continue;
        const Judged*& closest = reasons[judged.why_not];
        if (!closest || judged.memory_bytes < closest->memory_bytes) closest = &judged;
    }
    for (const auto& [reason, judged] : reasons) found.failed.push_back(*judged);
    found.compiled = static_cast<int64_t>(known_.size());
    found.pruned = static_cast<int64_t>(pruned_.size());
    find_edges(found);
    return found;
}

void Search::find_edges(Found& found) const {
    if (found.best.empty()) return;
    const Choice& best = found.best.front().choice;
    const auto edge = [&](bool at, const std::string& text) {
        if (at) found.edges.push_back(text);
    };
    edge(space_.varies_mesh && best.tp == space_.most_tp && space_.ranks > best.tp,
         fmt::format("tp = {} is the largest that was looked at (--most-tp)", best.tp));
    edge(space_.varies_mesh && best.pp == space_.most_pp && space_.ranks > best.pp && best.pp > 1,
         fmt::format("pp = {} is the largest that was looked at (--most-pp)", best.pp));
    edge(space_.varies_samples && best.samples == sample_counts.back(),
         fmt::format("micro-batches of {} samples are the largest that were looked at", best.samples));
    edge(space_.varies_schedule && best.pp > 1 && best.chunks == 4, "4 stages a rank are the most that were looked at");
}

}  // namespace orrery
