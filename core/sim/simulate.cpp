#include "sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "plan/access.h"
#include "plan/print.h"
#include "plan/replay/plan_view.h"
#include "sim/distance.h"
#include "sim/fair_share.h"
#include "sim/questions.h"

namespace orrery {
namespace {

constexpr double ticks_per_s = 1e12;  // the simulation counts picoseconds, up to 100 days
/// Max duration of a step, longer than any real one: only a rate of 0 or absurd options exceed it.
constexpr double most_s = 100 * 86400.0;
constexpr int compute_lane = 0;

double seconds(int64_t ticks) { return static_cast<double>(ticks) / ticks_per_s; }
/// Converts seconds to ticks. Rounds up, so that everything that ends at a tick has ended by then.
int64_t ticks(double s) { return static_cast<int64_t>(std::ceil(s * ticks_per_s)); }

/// A time during which an actor computes or communicates, in ticks.
struct Span {
    int64_t begin = 0, end = 0;
    AxisId axis = none;
};

/// Adds the parts of [begin, end) that the spans cover to `covered`. Where several overlap, the one that ends last
/// counts. `spans` must be sorted by their begin.
void cover(int64_t begin, int64_t end, const std::vector<Span>& spans, size_t& first, std::vector<Span>& covered) {
    while (first < spans.size() && spans[first].end <= begin) ++first;
    std::set<int64_t> cuts{begin, end};
    std::vector<Span> inside;
    for (size_t i = first; i < spans.size() && spans[i].begin < end; ++i) {
        if (spans[i].end <= begin) continue;
        inside.push_back(spans[i]);
        cuts.insert(std::max(begin, spans[i].begin));
        cuts.insert(std::min(end, spans[i].end));
    }
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        const Span* last = nullptr;
        for (const Span& s : inside)
            if (s.begin <= *cut && s.end > *cut && (!last || s.end > last->end)) last = &s;
        if (last) covered.push_back({*cut, *std::next(cut), last->axis});
    }
}

/// Returns the union of the spans over `axis`, in seconds. `spans` must be sorted by their begin.
std::vector<std::pair<double, double>> joined(const std::vector<Span>& spans, AxisId axis) {
    std::vector<std::pair<double, double>> all;
    int64_t until = -1;
    for (const Span& s : spans) {
        if (s.axis != axis || s.end == s.begin) continue;
        if (s.begin > until)
            all.emplace_back(seconds(s.begin), seconds(s.end));
        else
            all.back().second = std::max(all.back().second, seconds(s.end));
        until = std::max(until, s.end);
    }
    return all;
}

std::vector<int> one_each(const Plan& plan) {
    std::vector<int> numbers(static_cast<size_t>(plan.mesh.ranks()));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

std::vector<int> kinds_of(const Plan& plan, const Prices& prices) {
    std::vector<int> kinds(static_cast<size_t>(plan.mesh.ranks()));
    for (size_t rank = 0; rank < kinds.size(); ++rank) kinds[rank] = prices.kind(static_cast<int64_t>(rank));
    return kinds;
}

class Simulation final : public ReplayPolicy {
public:
    Simulation(const Plan& plan, const Network& contracts, Prices& prices, const SimulateOptions& options)
        : plan_(plan),
          prices_(prices),
          options_(options),
          kinds_(kinds_of(plan, prices)),
          played_(plan, contracts, options.each_rank ? one_each(plan) : classes_by_distance(plan, options.slow, kinds_),
                  1, options.every_launch ? PlanView::Detail::all : PlanView::Detail::time),
          replay_(played_.view(), *this),
          questions_(plan, played_, options.mapped, kinds_),
          share_([&](ResourceId resource) { return prices.capacity(resource); }),
          begun_(played_.view().items.size(), 0) {
        find_slow();
    }

    Simulated run() {
        replay_.run();
        const ReplayView& view = played_.view();
        for (int i = 0; i < view.size(); ++i)
            if (!replay_.done(i))
                throw Error(
                    fmt::format("simulate: deadlock, the step never ends: {} waits forever; `orrery check` says why",
                                describe(plan_, played_.class_of_actor(view.at(i).actor), played_.issued(i))),
                    Fault::failed);
        const std::vector<int64_t> met = begun_;
        begin_groups();
        Simulated result;
        int64_t end = 0;
        for (int i = 0; i < view.size(); ++i) end = std::max(end, replay_.done_at(i));
        result.step_s = seconds(end);
        result.events = view.size();
        result.carried = std::move(carried_);
        for (int actor = 0; actor < view.actors(); ++actor) {
            result.actors.push_back(account(actor, end, result.lanes));
            list_fragments(actor, result.fragments);
        }
        if (options_.every_launch) list_items(met, result);
        return result;
    }

    int64_t cost(int item) override {
        const Instruction& i = played_.instruction(item);
        const Demand& demand = i.axis == none ? work_of(item) : answer(questions_.of_transfer(item));
        require_sane(item, demand);
        if (i.axis != none && played_.view().at(item).kind == ReplayItem::Kind::work) begun_[at(item)] = replay_.now();
        if (demand.loads.empty()) return ticks(demand.fixed_s + demand.least_s);
        share_.begin(demand, item, seconds(replay_.now()));
        return open_end;
    }

    int64_t next_end() override {
        const double next = share_.next();
        return std::isinf(next) ? never : std::max(replay_.now(), ticks(next));
    }

    void ended(int64_t now, std::vector<int>& items) override {
        share_.end(std::max(seconds(now), share_.next()), items);  // max(): next() may be rounded to before `now`
    }

    void met(int send, int receive) override {
        begun_[at(send)] = begun_[at(receive)] = replay_.now();
        if (!options_.every_launch) return;
        partners_[send] = receive;
        partners_[receive] = send;
    }

    void met_all(const std::vector<int>& members) override {
        for (const int member : members) begun_[at(member)] = replay_.now();
    }

private:
    static size_t at(int item) { return static_cast<size_t>(item); }

    void find_slow() {
        for (int actor = 0; actor < played_.view().actors(); ++actor) {
            double by = 1;
            for (const auto& [rank, times] : options_.slow) {
                const auto& ranks = played_.ranks_of(actor);
                if (std::binary_search(ranks.begin(), ranks.end(), rank)) by = std::max(by, times);
            }
            slow_.push_back(by);
        }
    }

    void require_sane(int item, const Demand& demand) const {
        double takes = demand.fixed_s + demand.least_s;
        for (const Demand::Load& load : demand.loads) takes += load.amount / prices_.capacity(load.resource);
        if (takes >= 0 && takes <= most_s) return;
        const int actor = played_.view().at(item).actor;
        throw Error(
            fmt::format("simulate: {} takes {} s, expected 0 s to 100 days\n  check the rates in the "
                        "cluster's file or the rows of the table, and at --slow, --jitter and the links",
                        describe(plan_, played_.class_of_actor(actor), played_.issued(item)), takes));
    }

    /// Returns the demand of all launches and copies of an item: the sum of their fixed times, then their loads.
    const Demand& work_of(int item) {
        const ReplayItem& what = played_.view().at(item);
        const RankClass& c = played_.class_of_actor(what.actor);
        work_ = Demand{};
        for (int position = what.source; position < what.source + what.length; ++position) {
            const Instruction& i = c.stream[static_cast<size_t>(issued_at(c, position).index)];
            const double by = slow_[static_cast<size_t>(what.actor)] * chance(what.actor, position);
            const Demand& one = answer(questions_.of_work(what.actor, i));
            work_.fixed_s += one.fixed_s * by;
            work_.least_s += one.least_s * by;
            for (const Demand::Load& load : one.loads) {
                const auto known = std::find_if(work_.loads.begin(), work_.loads.end(),
                                                [&](const auto& l) { return l.resource == load.resource; });
                (known == work_.loads.end() ? work_.loads.emplace_back(load.resource, 0.0) : *known).amount +=
                    load.amount * by;
            }
        }
        return work_;
    }

    double chance(int actor, int position) const {
        if (options_.jitter <= 0) return 1;
        const uint64_t word = mix(options_.seed, mix(static_cast<uint64_t>(actor), static_cast<uint64_t>(position)));
        return 1 + options_.jitter * static_cast<double>(word >> 11) / 9007199254740992.0;  // 2^53: a quotient below 1
    }
    /// Returns a random word that depends on all bits of both arguments (Steele, Lea and Flood, "Fast splittable
    /// pseudorandom number generators").
    static uint64_t mix(uint64_t a, uint64_t b) {
        uint64_t z = a + 0x9e3779b97f4a7c15 * (b + 1);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    const Demand& answer(int question) {
        if (answers_.size() <= at(question)) answers_.resize(at(questions_.size()));
        std::optional<Demand>& known = answers_[at(question)];
        if (known) return *known;
        const Question& asked = questions_.at(question);
        known = asked.answered_by(prices_);
        if (asked.axis != none && !known->how.empty())
            carried_[{asked.axis, fmt::format("{} {}", name_of(asked.opcode), asked.bytes)}] = known->how;
        return *known;
    }

    /// Makes a group of messages begin and end as a whole. Time until the last message has met its partner counts as
    /// waiting for that partner, not for links.
    void begin_groups() {
        for (const std::vector<int>& group : played_.view().groups) {
            int64_t last = 0;
            for (const int item : group) last = std::max(last, begun_[at(item)]);
            for (const int item : group) begun_[at(item)] = last;
        }
    }

    ActorTime account(int actor, int64_t end, std::vector<SimulatedLane>& lanes) const {
        const ReplayView& view = played_.view();
        ActorTime time;
        time.of_class = played_.class_of(view.begin(actor));
        time.rank = played_.ranks_of(actor).front();
        time.ranks = static_cast<int64_t>(played_.ranks_of(actor).size());
        std::vector<Span> transfers, idle, once;
        int64_t computed = 0;
        for (int i = view.begin(actor); i < view.end(actor); ++i) {
            if (view.at(i).lane != compute_lane) {
                transfers.push_back({begun_[at(i)], replay_.done_at(i), played_.instruction(i).axis});
                continue;
            }
            if (replay_.started_at(i) > computed) idle.push_back({computed, replay_.started_at(i)});
            time.computing += seconds(replay_.done_at(i) - replay_.started_at(i));
            computed = replay_.done_at(i);
            if (options_.lanes && fragment_in_run(played_.class_of_actor(actor), played_.issued(i)).micro < 0)
                once.push_back({replay_.started_at(i), computed});
        }
        if (end > computed) idle.push_back({computed, end});
        std::sort(transfers.begin(), transfers.end(),
                  [](const Span& a, const Span& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
        std::vector<Span> exposed;
        size_t first = 0;
        int64_t waited = 0;
        for (const Span& gap : idle) {
            cover(gap.begin, gap.end, transfers, first, exposed);
            waited += gap.end - gap.begin;
        }
        std::map<AxisId, int64_t> parts;
        for (const Span& part : exposed) {
            parts[part.axis] += part.end - part.begin;
            waited -= part.end - part.begin;
        }
        for (const auto& [axis, part] : parts) time.exposed[axis] = seconds(part);
        time.waiting = seconds(waited);
        if (options_.lanes) {
            std::set<AxisId> axes;
            for (const Span& s : transfers) axes.insert(s.axis);
            lanes.push_back({actor, none, joined(once, none), {}});
            for (const AxisId axis : axes)
                lanes.push_back({actor, axis, joined(transfers, axis), joined(exposed, axis)});
        }
        int64_t until = 0, busy = 0;  // busy: ticks with at least one transfer
        for (const Span& s : transfers) {
            if (s.end > until) busy += s.end - std::max(until, s.begin);
            until = std::max(until, s.end);
        }
        time.communicating = seconds(busy);
        return time;
    }

    void list_fragments(int actor, std::vector<SimulatedFragment>& all) const {
        const ReplayView& view = played_.view();
        const size_t first = all.size();
        std::map<std::tuple<int64_t, int, Fragment::Kind>, size_t> known;
        for (int i = view.begin(actor); i < view.end(actor); ++i) {
            if (view.at(i).lane != compute_lane) continue;
            const Fragment f = fragment_in_run(played_.class_of_actor(actor), played_.issued(i));
            if (f.micro < 0) continue;
            const auto [place, fresh] = known.try_emplace({f.micro, f.chunk, f.kind}, all.size());
            if (fresh) all.push_back({actor, f, seconds(replay_.started_at(i)), 0});
            all[place->second].end = seconds(replay_.done_at(i));
        }
        std::stable_sort(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                         [](const auto& a, const auto& b) { return a.start < b.start; });
    }

    /// Lists the simulated items. `met`: time at which the partner of each message arrived, whenever its group began.
    void list_items(const std::vector<int64_t>& met, Simulated& result) const {
        const ReplayView& view = played_.view();
        for (int actor = 0; actor < view.actors(); ++actor) result.ranks_of.push_back(played_.ranks_of(actor));
        for (int i = 0; i < view.size(); ++i) {
            const ReplayItem& what = view.at(i);
            const bool transfer = played_.instruction(i).axis != none;
            const auto partner = partners_.find(i);
            result.items.push_back({what.actor, what.lane, seconds(replay_.started_at(i)),
                                    seconds(transfer ? met[at(i)] : replay_.started_at(i)), seconds(replay_.done_at(i)),
                                    played_.issued(i), what.length,
                                    partner == partners_.end() ? none : partner->second});
        }
    }

    const Plan& plan_;
    Prices& prices_;
    const SimulateOptions& options_;
    const std::vector<int> kinds_;
    const PlanView played_;
    Replay replay_;
    Questions questions_;
    FairShare share_;
    std::vector<double> slow_;  ///< factor by which an actor's kernels are slower
    std::vector<std::optional<Demand>> answers_;
    std::map<std::pair<AxisId, std::string>, std::string> carried_;
    std::vector<int64_t> begun_;  ///< for each message and collective: time at which its last partner arrived
    std::unordered_map<int, int> partners_;
    Demand work_;
};

}  // namespace

Simulated simulate(const Plan& plan, const Network& contracts, Prices& prices, const SimulateOptions& options) {
    return Simulation(plan, contracts, prices, options).run();
}

}  // namespace orrery
