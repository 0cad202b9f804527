#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <tuple>

namespace orrery {
namespace {

/// Number of configurations in a round, which are judged concurrently.
constexpr size_t at_once = 8;
/// If a step in an option slows a mesh by more than this factor, the mesh does not try the step with other options.
constexpr double clearly = 1.02;
/// Min time of a step with twice the samples per micro-batch, over that of the step, apart from the bubble.
constexpr double least_of_twice = 0.6;

constexpr const char* too_slow =
    "kernels at the best rate so far and the pipeline's bubble alone take longer than those told below";
constexpr const char* no_need = "a smaller cp with the same tp and pp fits, or does not run either";
constexpr const char* too_far = "their meshes stay far behind the fastest and were looked at no closer";

enum Option : size_t { schedule, samples, recomputing, zero, sequence, mapping, context, expert };

void take(Choice& c, size_t option, const Choice& from) {
    switch (option) {
        case schedule: c.schedule = from.schedule, c.chunks = from.chunks; break;
        case samples: c.samples = from.samples; break;
        case recomputing: c.recompute = from.recompute, c.recompute_layers = from.recompute_layers; break;
        case zero: c.zero = from.zero; break;
        case sequence: c.sequence = from.sequence; break;
        case context: c.context = from.context, c.order = from.order; break;
        case expert: c.ep = from.ep, c.mapping = from.mapping; break;
        default: c.mapping = from.mapping;
    }
}

/// Returns a key for one option of a configuration: the default configuration with only that option set.
Choice value_of(const Choice& c, size_t option) {
    Choice value;
    take(value, option, c);
    return value;
}

}  // namespace

int64_t Found::pruned() const {
    int64_t sum = 0;
    for (const auto& [reason, count] : left_out) sum += count;
    return sum;
}

const Judged* Search::fitting(const Choice& choice) const {
    const auto known = known_.find(choice);
    return known != known_.end() && known->second.fits() ? &known->second : nullptr;
}

double Search::stretch(const Choice& c) const { return std::max(space_.turns, 1 + bubble(c, space_.micros(c))); }

double Search::least_seconds(const Choice& c) const {
    const double rate = rate_ > 0 ? std::min(space_.rate, space_.faster * space_.turns * rate_) : space_.rate;
    if (rate <= 0) return 0;
    return space_.flops * space_.factor(c) / rate / static_cast<double>(space_.ranks) * stretch(c);
}

double Search::worst_kept() const {
    if (best_.empty()) return std::numeric_limits<double>::infinity();
    const double quarter = 1.25 * best_.front()->step_s;
    return best_.size() < space_.kept ? quarter : std::min(quarter, best_[space_.kept - 1]->step_s);
}

bool Search::too_large(const Choice& choice) const {
    if (space_.memory_limit <= 0 || choice.zero < 0) return false;
    const double state = state_bytes(space_.state, choice);
    if (state * 0.75 > space_.memory_limit) return true;
    for (int64_t stage = 0; stage <= 3; ++stage) {
        Choice other = choice;
        other.zero = stage;
        const auto known = known_.find(other);
        if (stage == choice.zero || known == known_.end() || !known->second.why_not.empty()) continue;
        // Adds the difference of state bytes by formula, changed by a quarter so that the sum is a lower bound.
        const double more = state - state_bytes(space_.state, other);
        const double least = static_cast<double>(known->second.memory_bytes) + more * (more > 0 ? 0.75 : 1.25);
        if (const double limit = known->second.memory_limit; limit > 0 && least > limit) return true;
    }
    return false;
}

bool Search::needless(const Choice& choice) const {
    if (choice.cp == 1) return false;
    int64_t factor = 2;
    while (choice.cp % factor != 0) ++factor;
    Choice fewer = choice;
    fewer.cp /= factor;
    fewer.dp *= factor;
    if (space_.microbatches > 0) fewer.samples = std::max<int64_t>(1, choice.samples / factor);
    if (const auto left = left_out_.find(fewer); left != left_out_.end() && left->second == no_need) return true;
    std::vector<Choice> all = {fewer};
    if (fewer.cp > 1)
        for (const auto& [method, tokens] : space_.contexts)
            all.push_back(fewer), all.back().context = method, all.back().order = tokens;
    if (std::ranges::any_of(all, [&](const Choice& c) { return fitting(c) != nullptr; }))
        return (!space_.varies_recompute || fewer.recompute == "none") &&
               stretch(at_best(fewer)) <= clearly * stretch(at_best(choice));
    return std::ranges::all_of(all, [&](const Choice& c) {
        const auto known = known_.find(c);
        return known != known_.end() && !known->second.why_not.empty();
    });
}

std::string Search::why_left_out(const Choice& choice) const {
    if (too_large(choice)) return no_room;
    return least_seconds(choice) > worst_kept() ? too_slow : "";
}

void Search::judge_round(const std::vector<Choice>& round) {
    std::vector<std::optional<Judged>> all(round.size());  // nullopt: the search stopped before it was judged
    const Judged* best = best_.empty() ? nullptr : best_.front();
    auto judged_so_far = static_cast<int64_t>(known_.size());
    const auto done = [&](size_t place, Judged judged) {
        judged.choice = round[place];
        all[place] = std::move(judged);
        if (all[place]->fits() && (!best || all[place]->step_s < best->step_s)) best = &*all[place];
        if (progress_) progress_(++judged_so_far, left_, best);
    };
    judge_(round, done);
    const auto faster = [](const Judged* a, const Judged* b) {
        return std::tie(a->step_s, a->choice) < std::tie(b->step_s, b->choice);
    };
    for (std::optional<Judged>& one : all) {
        if (!one) continue;
        Judged& judged = *one;
        const Choice choice = judged.choice;
        if (judged.computing_s > 0)
            rate_ = std::max(
                rate_, space_.flops * space_.factor(choice) / judged.computing_s / static_cast<double>(space_.ranks));
        const Judged* kept = &known_.emplace(choice, std::move(judged)).first->second;
        if (kept->fits()) best_.insert(std::upper_bound(best_.begin(), best_.end(), kept, faster), kept);
    }
    if (stop_ && stop_()) throw Stopped();
}

/// Judges those of the configurations, in rounds, that are not judged yet and may be among the best.
void Search::look(const std::vector<Choice>& choices) {
    std::vector<Choice> round;
    std::set<Choice> asked;
    for (size_t i = 0; i < choices.size(); ++i) {
        const Choice& c = choices[i];
        if (known_.count(c) == 0 && asked.insert(c).second) {
            if (std::string why = why_left_out(c); why.empty())
                round.push_back(c);
            else
                left_out_[c] = std::move(why);
        }
        if (round.size() < at_once && i + 1 < choices.size()) continue;
        if (!round.empty()) judge_round(round);
        round.clear();
    }
}

/// Judges every mesh, in order of cp and of lower bounds of the step time, with options that need less memory until it
/// fits, and with the next method of context parallelism if it does not run.
void Search::first_look() {
    std::vector<Choice> first = space_.meshes();
    std::stable_sort(first.begin(), first.end(), [&](const Choice& a, const Choice& b) {
        return std::pair(a.cp, least_seconds(a)) < std::pair(b.cp, least_seconds(b));
    });
    std::deque<Choice> waiting(first.begin(), first.end());
    const auto with_less = [&](const Choice& choice) {
        Choice now = choice;
        const auto known = known_.find(choice);
        const double limit = known == known_.end() ? space_.memory_limit : known->second.memory_limit;
        // If the state alone is too large, recomputation would not help, so ep or the ZeRO stage is raised.
        const bool large = state_bytes(space_.state, now) > limit;
        if (const auto more = space_.other_ep(now, true); large && more) {
            waiting.push_front(*more);
        } else if (space_.varies_zero && now.copies() > 1 && now.zero < 3 && large) {
            now.zero = now.pp > 1 ? now.zero + 1 : 3;
            waiting.push_front(now);
        } else if (const auto less = space_.smaller(choice, over(choice))) {
            waiting.push_front(*less);
        }
    };
    while (!waiting.empty()) {
        std::vector<Choice> round;
        while (round.size() < at_once && !waiting.empty()) {
            const Choice c = waiting.front();
            if (!round.empty() && round.front().cp != c.cp) break;  // whether it is needless depends on the round
            waiting.pop_front();
            if (known_.count(c) > 0 || std::ranges::find(round, c) != round.end()) continue;
            const bool slow = !best_.empty() && least_seconds(at_best(c)) > best_.front()->step_s;
            const std::string why = too_large(c) ? no_room : slow ? too_slow : needless(c) ? no_need : "";
            if (why.empty()) round.push_back(c);
            if (!why.empty()) left_out_[c] = why;
            if (why == no_room) with_less(c);
        }
        left_ = static_cast<int64_t>(waiting.size() + round.size());
        if (!round.empty()) judge_round(round);
        // Only meshes that run but do not fit are tried with less memory, not those that the model does not support.
        for (auto c = round.rbegin(); c != round.rend(); ++c) {
            const Judged& judged = known_.at(*c);
            if (judged.fits()) continue;
            if (judged.why_not.empty())
                with_less(*c);
            else if (const auto other = space_.other_context(*c))
                waiting.push_front(*other);
        }
    }
}

/// Returns steps to more samples or less recomputation that do not fit, each with an option that frees memory.
std::vector<Choice> Search::with_room(const std::vector<std::vector<Choice>>& beside) const {
    std::vector<Choice> all;
    for (const Option option : {samples, recomputing})
        for (const Choice& choice : beside[option]) {
            const auto known = known_.find(choice);
            const bool unfit = known == known_.end() ? too_large(choice) : !known->second.fits();
            if (!unfit || (known != known_.end() && !known->second.why_not.empty())) continue;
            if (space_.varies_zero && choice.copies() > 1 && choice.zero < 3) {
                all.push_back(choice);
                ++all.back().zero;
                if (choice.zero == 1) all.push_back(choice), all.back().zero = 3;
            }
            if (const auto less = space_.smaller(choice, over(choice)); option == samples && less) all.push_back(*less);
        }
    return all;
}

double Search::over(const Choice& choice) const {
    const auto known = known_.find(choice);
    return known == known_.end() || known->second.memory_limit == 0 ? 0 : known->second.over();
}

/// Returns the configuration with as little recomputation as probably fits, if that is several steps less.
std::optional<Choice> Search::with_less_recomputed(const Choice& choice) const {
    const size_t place = space_.recompute_place(choice);
    if (!space_.varies_recompute || place < 2 || place == space_.recomputes.size()) return std::nullopt;
    for (size_t other = 0; other + 1 < place; ++other) {
        Choice less = choice;
        space_.set_recompute(less, other);
        if (over(choice) + space_.freed(choice) - space_.freed(less) <= 0) return less;
    }
    return std::nullopt;
}

/// Judges configurations without ZeRO, and with the options of the best one, with its ZeRO stage and without ZeRO; and
/// where these do not fit, with an option that frees memory.
void Search::look_alike(const std::vector<Choice>& meshes) {
    std::vector<Choice> all, less;
    for (const Choice& mesh : meshes) {
        all.push_back(space_.like(mesh, best_.front()->choice));
        if (space_.varies_zero && all.back().zero > 0) all.push_back(all.back()), all.back().zero = 0;
        if (space_.varies_zero && mesh.zero > 0) all.push_back(mesh), all.back().zero = 0;
    }
    look(all);
    for (const Choice& choice : all) {
        const auto known = known_.find(choice);
        if (known == known_.end() || !known->second.why_not.empty() || known->second.fits()) continue;
        if (const auto smaller = space_.smaller(choice, over(choice))) less.push_back(*smaller);
    }
    look(less);
}

Choice Search::fastest_of_mesh(const Choice& choice) const {
    const auto mesh = [](const Choice& c) { return std::tuple(c.tp, c.pp, c.cp); };
    const auto same = [&](const Judged* judged) { return mesh(judged->choice) == mesh(choice); };
    return (*std::ranges::find_if(best_, same))->choice;
}

Choice Search::climb(Choice at) {
    std::set<std::pair<size_t, Choice>> slower;
    for (;;) {
        const double now = known_.at(at).step_s;
        std::vector<std::vector<Choice>> beside = space_.beside(at);
        std::vector<Choice> looked;
        for (size_t option = 0; option < beside.size(); ++option) {
            std::erase_if(beside[option], [&](const Choice& c) {
                return slower.count({option, value_of(c, option)}) > 0;
            });
            looked.insert(looked.end(), beside[option].begin(), beside[option].end());
        }
        look(looked);
        Choice together = at;
        int64_t improved = 0;
        for (size_t option = 0; option < beside.size(); ++option) {
            const Judged* best = nullptr;
            for (const Choice& choice : beside[option]) {
                const Judged* judged = fitting(choice);
                if (judged && judged->step_s > clearly * now) slower.insert({option, value_of(choice, option)});
                if (judged && judged->step_s < now && (!best || judged->step_s < best->step_s)) best = judged;
            }
            if (!best) continue;
            take(together, option, best->choice);
            ++improved;
        }
        std::vector<Choice> more = with_room(beside);
        if (const auto less = with_less_recomputed(at)) more.push_back(*less);
        if (improved > 1 && space_.whole(together)) more.insert(more.begin(), together);
        look(more);
        looked.insert(looked.end(), more.begin(), more.end());
        Choice next = at;
        for (const Choice& choice : looked)
            if (const Judged* judged = fitting(choice); judged && judged->step_s < known_.at(next).step_s)
                next = choice;
        if (next == at) return at;
        at = next;
    }
}

/// Returns the configuration with the schedule that has the smallest bubble, and without recomputation.
Choice Search::at_best(const Choice& choice) const {
    Choice best = choice;
    if (space_.varies_schedule) best.schedule = "zbv";
    if (space_.varies_recompute) space_.set_recompute(best, 0);
    return best;
}

/// Estimates the step time of a mesh with the best options, from that with the options judged.
double Search::promise(const Judged& judged) const {
    const Choice least = at_best(judged.choice);
    return judged.step_s * stretch(least) / stretch(judged.choice) * space_.factor(least) /
           space_.factor(judged.choice);
}

/// Returns the fastest configuration of each mesh, or of each number of samples on the only mesh.
std::vector<const Judged*> Search::fastest_of_meshes() const {
    std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> meshes;
    std::vector<const Judged*> first;
    for (const Judged* judged : best_) {
        const Choice& c = judged->choice;
        if (meshes.emplace(c.tp, c.pp, c.cp, space_.varies_mesh ? 0 : c.samples).second) first.push_back(judged);
    }
    return first;
}

/// Returns the fastest configurations of some meshes, ordered by promise().
std::vector<Choice> Search::promising() const {
    std::vector<const Judged*> first = fastest_of_meshes();
    std::stable_sort(first.begin(), first.end(),
                     [&](const Judged* a, const Judged* b) { return promise(*a) < promise(*b); });
    std::vector<Choice> tops;
    for (const Judged* judged : first)
        if (tops.size() < space_.climbs) tops.push_back(judged->choice);
    return tops;
}

/// Judges twice the samples on each mesh for as long as that is faster, if it could come near the best.
void Search::more_samples() {
    std::set<Choice> tried;
    for (std::vector<Choice> round; space_.varies_samples && space_.varies_mesh; round.clear()) {
        for (const Judged* judged : fastest_of_meshes()) {
            Choice more = judged->choice;
            more.samples *= 2;
            const double least = judged->step_s * least_of_twice * stretch(more) / stretch(judged->choice);
            if (more.samples > most_samples || !space_.whole(more) || least > space_.near * best_.front()->step_s)
                continue;
            if (tried.insert(more).second) round.push_back(more);
        }
        if (round.empty()) return;
        look(round);
    }
}

void Search::search() {
    first_look();
    more_samples();
    std::vector<Choice> tops = promising();
    left_ = static_cast<int64_t>(tops.size());
    for (size_t i = 0; i < tops.size(); ++i) {
        const Choice top = space_.varies_mesh ? fastest_of_mesh(tops[i]) : tops[i];
        if (promise(known_.at(top)) <= space_.near * best_.front()->step_s)
            climb(top);
        else
            left_out_[top] = too_far;
        if (i == 0 && space_.varies_mesh) look_alike({tops.begin() + 1, tops.end()});
        left_ = std::max<int64_t>(1, left_ - 1);
    }
    if (!best_.empty()) climb(best_.front()->choice);  // also steps that were slower with other options
}

/// Counts the meshes that do not divide the batch, which are not searched.
void Search::say_not_dividing(Found& found) const {
    const std::vector<Choice> meshes = space_.not_dividing();
    if (meshes.empty()) return;
    std::set<int64_t> sizes;
    for (const Choice& mesh : meshes) sizes.insert(mesh.dp);
    const int64_t one = *sizes.begin(), below = space_.batch / one * one;
    found.left_out[fmt::format(
        "{} sequences per step are not divisible by dp = {} (for dp = {}: set "
        "train.sequences_per_step to {}{})",
        space_.batch, fmt::join(sizes, ", "), one, below > 0 ? fmt::format("{} or ", below) : "", below + one)] =
        static_cast<int64_t>(meshes.size());
}

Found Search::run() {
    Found found;
    try {
        search();
    } catch (const Stopped&) {
        found.stopped = true;
        found.left = left_;
    }
    find_best(found);
    std::map<std::string, Refused> reasons;
    for (const auto& [choice, judged] : known_) {
        if (judged.why_not.empty()) found.all.push_back(judged);
        if (judged.fits()) continue;
        Refused& refused = reasons[judged.why_not];
        if (refused.count++ == 0 || judged.over() < refused.closest.over()) refused.closest = judged;
    }
    for (auto& [reason, refused] : reasons) found.refused.push_back(std::move(refused));
    found.compiled = static_cast<int64_t>(known_.size());
    for (const auto& [choice, reason] : left_out_)
        if (known_.count(choice) == 0 || reason == too_far) ++found.left_out[reason];
    say_not_dividing(found);
    find_edges(found);
    return found;
}

void Search::find_best(Found& found) const {
    for (const Judged* judged : best_)
        if (found.best.size() < space_.kept) found.best.push_back(*judged);
    size_t first = 0;
    for (size_t i = 1; i < found.best.size(); ++i) {
        const bool alike = found.best[i].step_s <= (1 + space_.alike) * found.best.front().step_s;
        if (alike && found.best[i].choice.added() < found.best[first].choice.added()) first = i;
    }
    const auto begin = found.best.begin(), place = begin + static_cast<std::ptrdiff_t>(first);
    if (first > 0) std::rotate(begin, place, place + 1);
}

void Search::find_edges(Found& found) const {
    if (found.best.empty()) return;
    const Choice& best = found.best.front().choice;
    const auto edge = [&](bool at, const std::string& text) {
        if (at) found.edges.push_back(text);
    };
    const auto axis_edge = [&](const char* axis, const char* flag, int64_t size, int64_t most) {
        edge(space_.varies_mesh && size == most && space_.ranks > size,
             fmt::format("{} = {} is the largest value searched ({})", axis, size, flag));
    };
    axis_edge("tp", "--most-tp", best.tp, space_.most_tp);
    if (best.pp > 1) axis_edge("pp", "--most-pp", best.pp, space_.most_pp);
    if (best.cp > 1) axis_edge("cp", "--most-cp", best.cp, space_.most_cp);
    if (best.ep > 1 && space_.most_ep < space_.experts) axis_edge("ep", "--max-ep", best.ep, space_.most_ep);
    edge(space_.varies_samples && best.samples == most_samples,
         fmt::format("micro-batches of {} samples are the largest searched", best.samples));
    edge(space_.varies_schedule && best.pp > 1 && best.chunks == most_chunks,
         fmt::format("{} stages a rank are the largest number searched", most_chunks));
}

}  // namespace orrery
