#include "run/control/standing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>

#include "plan/replay/replay.h"

namespace orrery {

namespace {

constexpr double silent_s = 1;     // seconds without a heartbeat after which a rank counts as silent: four intervals
constexpr size_t shown_ranks = 8;  // max ranks listed of a cycle or of a path between two ranks

using Part = Position::Part;

std::string place_of(const Position& p) {
    if (p.of == 0) return p.steps == 0 ? "before its first step" : fmt::format("between steps, after step {}", p.steps);
    return fmt::format("{} (instruction {} of {} of step {})", p.text, p.index + 1, p.of, p.steps);
}

std::string describe_culprit(const Standing& s) {
    std::string text = fmt::format("rank {}", s.rank);
    if (s.silent_s > silent_s)
        text += fmt::format(" is behind, and silent for {:.1f} s", s.silent_s);
    else
        text += fmt::format(" is behind, for {:.1f} s", s.position.here_s);
    if (!s.process.empty()) text += ": " + s.process;
    return text + "; last seen in " + place_of(s.position);
}

Loss hang(int64_t rank, const char* site, const std::string& text) {
    return {.cause = Cause::hang, .rank = rank, .site = site, .text = text};
}

/// Ranks' reported positions as input of a replay: for each rank its current operation, then the operations in which
/// other ranks already wait for it.
class Told final : public ReplayPolicy {
public:
    Told(int64_t late, const std::vector<Standing>& all) : late_(late) {
        for (const Standing& s : all) add(s);
        add({late, {}, 0});
        for (const Standing& s : all)  // ranks that reported nothing are added, because other ranks wait for them
            for (const int64_t rank : s.position.waits_for) add({rank, {}, 0});
        build();
    }

    const ReplayView& view() const { return view_; }
    const Standing& standing(int actor) const { return ranks_[static_cast<size_t>(actor)]; }
    int actor(int64_t rank) const { return at_.at(rank); }
    /// The number of a rank's current operation among the replay's items.
    int here(int actor) const { return view_.begin(actor); }

private:
    void add(const Standing& s) {
        if (at_.try_emplace(s.rank, static_cast<int>(ranks_.size())).second) ranks_.push_back(s);
    }

    /// Whether the rank makes no progress in the replay, because it computes or is silent.
    bool stays(const Standing& s) const {
        return s.rank != late_ && (s.position.waits_for.empty() || s.silent_s > silent_s);
    }
    static bool named(const Standing& s) { return s.position.part != Part::unknown && !s.position.meeting.empty(); }
    bool in(const Standing& s, const std::string& meeting) const {
        return !stays(s) && named(s) && s.position.meeting == meeting;
    }

    static ReplayItem::Kind kind(Part part) {
        return part == Part::sends      ? ReplayItem::Kind::send
               : part == Part::receives ? ReplayItem::Kind::receive
               : part == Part::meets    ? ReplayItem::Kind::meet
                                        : ReplayItem::Kind::work;
    }
    static Part other(Part part) {
        return part == Part::sends ? Part::receives : part == Part::receives ? Part::sends : part;
    }

    /// Finds in which operations other ranks wait for each rank, and its part there; unknown: it only has to continue.
    void find_later() {
        later_.resize(ranks_.size());
        for (const Standing& s : ranks_) {
            if (stays(s)) continue;
            const Position& p = s.position;
            for (const int64_t rank : p.waits_for) {
                const auto i = static_cast<size_t>(at_.at(rank));
                if (!named(s))
                    later_[i].emplace(Part::unknown, "");
                else if (!in(ranks_[i], p.meeting))
                    later_[i].emplace(other(p.part), p.meeting);
            }
        }
    }

    int channel(const Standing& s, Part part, const std::string& meeting) {
        const auto [place, fresh] = channels_.try_emplace(meeting, none);
        if (fresh)
            place->second = part == Part::meets ? view_.add_meeting(static_cast<int>(s.position.waits_for.size()) + 1)
                                                : view_.add_channel(0);
        return place->second;
    }

    void build() {
        find_later();
        std::vector<int> first{0};
        for (const auto& later : later_) first.push_back(first.back() + 1 + static_cast<int>(later.size()));
        for (const Standing& s : ranks_)  // current parts first: they tell how many ranks take part
            if (!stays(s) && named(s)) channel(s, s.position.part, s.position.meeting);
        for (size_t i = 0; i < ranks_.size(); ++i) {
            const Standing& s = ranks_[i];
            view_.add_actor();
            if (stays(s)) {
                view_.add({.kind = ReplayItem::Kind::receive, .channel = view_.add_channel(0)});
            } else if (named(s)) {
                view_.add({.kind = kind(s.position.part), .channel = channels_.at(s.position.meeting)});
            } else {
                std::vector<int> waits;
                for (const int64_t rank : s.position.waits_for) {
                    const auto other = static_cast<size_t>(at_.at(rank));
                    const auto place = later_[other].find({Part::unknown, ""});
                    waits.push_back(first[other] + 1 + static_cast<int>(std::distance(later_[other].begin(), place)));
                }
                view_.add({}, waits);
            }
            for (const auto& [part, meeting] : later_[i])
                view_.add({.kind = kind(part),
                           .channel = part == Part::unknown ? none : channels_.at(meeting),
                           .held = first[i]});
        }
    }

    const int64_t late_;
    std::vector<Standing> ranks_;
    std::unordered_map<int64_t, int> at_;
    std::vector<std::set<std::pair<Part, std::string>>> later_;  ///< by actor: its later parts, which others wait for
    std::map<std::string, int> channels_;
    ReplayView view_;
};

/// Explains why the late rank's operation is not done at the end of a replay.
class Explanation {
public:
    Explanation(const Told& told, const Replay& replay, int late) : told_(told), replay_(replay), late_(late) {
        if (!replay.done(told.here(late))) follow();
    }

    Loss loss() const {
        const Standing& waiter = told_.standing(late_);
        const std::string waits =
            fmt::format("rank {} has waited for {:.1f} s, longer than the timeout of {:.4g} s, in {}", waiter.rank,
                        waiter.position.here_s, waiter.position.bound_s, place_of(waiter.position));
        if (replay_.done(told_.here(late_)))
            return hang(-1, "transport",
                        "no rank is behind: all have reached the operation, but no device and no transport ends "
                        "it (orrery preflight, and a restart, check the connection of each pair); " +
                            waits + list("; ", taking_part()));
        if (behind_.empty()) return hang(-1, "circle", "ranks wait for each other; " + waits + list("; ", cycle()));
        // Silent ranks come first, then the rank that has been at its position longest.
        const auto key = [&](int item) {
            const Standing& s = told_.standing(actor(item));
            return std::pair(s.silent_s > silent_s, s.position.here_s);
        };
        const int worst =
            *std::max_element(behind_.begin(), behind_.end(), [&](int a, int b) { return key(a) < key(b); });
        const Standing& culprit = told_.standing(actor(worst));
        return hang(culprit.rank, "behind",
                    describe_culprit(culprit) + "; " + waits + list("; between them ", way_to(worst)));
    }

private:
    /// Follows breadth first all that the late rank waits for, up to items that wait for nothing, which are the cause.
    void follow() {
        const int start = told_.here(late_);
        std::vector<int> open{start};
        from_.emplace(start, none);
        for (size_t i = 0; i < open.size(); ++i) {
            const std::vector<int> next = replay_.blockers(open[i]);
            if (next.empty()) behind_.push_back(open[i]);
            for (const int item : next)
                if (from_.emplace(item, open[i]).second) open.push_back(item);
        }
    }

    int actor(int item) const { return told_.view().at(item).actor; }

    /// Ranks (by number in the replay) on the path from the late rank to an item that it waits for, directly or not.
    std::vector<int> way_to(int item) const {
        std::vector<int> way;
        for (int at = from_.at(item); at != none; at = from_.at(at))
            if (actor(at) != late_ && actor(at) != actor(item) && (way.empty() || way.back() != actor(at)))
                way.push_back(actor(at));
        std::reverse(way.begin(), way.end());
        return way;
    }

    /// Ranks (by number in the replay) of the cycle that the late rank waits for, without the late rank.
    std::vector<int> cycle() const {
        std::vector<int> seen;
        int item = told_.here(late_);
        while (std::find(seen.begin(), seen.end(), item) == seen.end()) {
            seen.push_back(item);
            item = replay_.blockers(item).front();
        }
        std::vector<int> ranks;
        for (auto at = std::find(seen.begin(), seen.end(), item); at != seen.end(); ++at)
            if (actor(*at) != late_ && (ranks.empty() || ranks.back() != actor(*at))) ranks.push_back(actor(*at));
        return ranks;
    }

    std::vector<int> taking_part() const {
        std::vector<int> ranks;
        for (const int64_t rank : told_.standing(late_).position.waits_for) ranks.push_back(told_.actor(rank));
        return ranks;
    }

    std::string list(std::string_view begin, const std::vector<int>& actors) const {
        std::string text;
        for (size_t i = 0; i < std::min(actors.size(), shown_ranks); ++i) {
            const Standing& s = told_.standing(actors[i]);
            text += fmt::format("{}rank {} in {}", i == 0 ? begin : "; ", s.rank, place_of(s.position));
        }
        if (actors.size() > shown_ranks) text += fmt::format("; and {} more", actors.size() - shown_ranks);
        return text;
    }

    const Told& told_;
    const Replay& replay_;
    const int late_;
    std::vector<int> behind_;  ///< replay items that wait for nothing and therefore are the cause
    std::map<int, int> from_;  ///< by replay item: the item that waits for it, on the path from the late rank
};

}  // namespace

std::string Position::encode() const {
    std::string all = fmt::format("{} {} {} {:.3f} {:.3f} {}", steps, index, of, here_s, bound_s, waits_for.size());
    for (const int64_t rank : waits_for) all += fmt::format(" {}", rank);
    return all + fmt::format(" {} {}\n{}", static_cast<int>(part), meeting, text);
}

Position Position::decode(std::string_view from) {
    Position p;
    const size_t line = from.find('\n');
    std::istringstream in{std::string(from.substr(0, line))};
    size_t count = 0;
    in >> p.steps >> p.index >> p.of >> p.here_s >> p.bound_s >> count;
    int64_t rank = 0;
    for (size_t i = 0; i < count && in >> rank; ++i) p.waits_for.push_back(rank);
    if (int part = 0; in >> part && part >= 0 && part <= static_cast<int>(Part::meets))
        p.part = static_cast<Part>(part);
    std::getline(in >> std::ws, p.meeting);
    if (line != std::string_view::npos) p.text = from.substr(line + 1);
    return p;
}

Loss explain_wait(int64_t late, const std::vector<Standing>& all) {
    Told told(late, all);
    const int actor = told.actor(late);
    if (told.standing(actor).position.waits_for.empty())
        return hang(late, "wait", fmt::format("rank {} waits too long", late));
    Replay replay(told.view(), told);
    replay.run();
    return Explanation(told, replay, actor).loss();
}

}  // namespace orrery
