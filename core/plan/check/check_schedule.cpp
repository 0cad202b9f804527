#include "plan/check/check_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "plan/timeline.h"

namespace orrery {

namespace {

using Kind = Fragment::Kind;

std::string text_of(const Fragment& f) { return RankSchedule{{f}}.text(); }

class ScheduleCheck {
public:
    ScheduleCheck(const Schedule& schedule, int64_t micros, int stages, bool backward, const std::vector<Origin>& lines)
        : schedule_(schedule), micros_(micros), stages_(stages), backward_(backward), lines_(lines) {}

    void run() {
        const bool one = stages_ == 1 && schedule_.ranks.size() == 1;
        for (rank_ = 0; rank_ < schedule_.ranks.size(); ++rank_) {
            weights_ = weights_ || std::any_of(order().begin(), order().end(),
                                               [](const Fragment& f) { return f.kind == Kind::weight; });
        }
        for (rank_ = 0; rank_ < schedule_.ranks.size(); ++rank_) {
            in_order();
            complete();
        }
        if (one) return;
        rank_ = 0;
        find_stages();
        try {
            timeline(schedule_);
        } catch (const Error& stuck) {
            refuse(std::string("never ends: ") + stuck.what());
        }
    }

private:
    const std::vector<Fragment>& order() const { return schedule_.ranks[rank_].order; }

    /// Throws Error at the script line of the order of the current rank, or of the schedule if the order has none.
    [[noreturn]] void refuse(const std::string& why) const {
        Origin at = rank_ < lines_.size() ? lines_[rank_] : schedule_.origin;
        at.who = "schedule " + schedule_.name;
        throw Error(at, why);
    }

    /// Names the current rank: " on pipeline rank 1", with the stage if the program has several.
    std::string whose(int chunk) const {
        std::string text = fmt::format(" on pipeline rank {}", rank_);
        if (stages_ > 1) text += fmt::format(" (stage {})", schedule_.stage_of(rank_, chunk));
        return text;
    }

    int chunks() const {
        if (schedule_.stages.empty()) return std::max<int>(stages_ / std::ssize(schedule_.ranks), 1);
        return rank_ < schedule_.stages.size() ? std::ssize(schedule_.stages[rank_]) : 0;
    }

    void in_order() const {
        std::set<std::tuple<Kind, int64_t, int>> seen;
        for (const Fragment& f : order()) {
            if (f.chunk >= chunks())
                refuse(fmt::format("runs {} on pipeline rank {}, which has no chunk {}: {}", text_of(f), rank_, f.chunk,
                                   chunks() == 1
                                       ? "it runs one stage, whose fragments are written without a chunk"
                                       : fmt::format("it runs {} stages, chunks 0 to {}", chunks(), chunks() - 1)));
            if (f.micro >= micros_)
                refuse(fmt::format("runs {}{}, but there are {} micro-batches, counted from 0", text_of(f),
                                   whose(f.chunk), micros_));
            if (!seen.emplace(f.kind, f.micro, f.chunk).second)
                refuse(fmt::format("runs {} twice{}", text_of(f), whose(f.chunk)));
            const Kind needs = f.kind == Kind::weight ? Kind::backward : Kind::forward;
            if (f.kind != Kind::forward && !seen.count({needs, f.micro, f.chunk}))
                refuse(
                    fmt::format("runs {} before {}{}", text_of(f), text_of({needs, f.micro, f.chunk}), whose(f.chunk)));
        }
    }

    void complete() const {
        std::set<std::tuple<Kind, int64_t, int>> seen;
        for (const Fragment& f : order()) seen.emplace(f.kind, f.micro, f.chunk);
        for (int64_t micro = 0; micro < micros_; ++micro)
            for (int chunk = 0; chunk < chunks(); ++chunk)
                for (Kind kind : {Kind::forward, Kind::backward, Kind::weight}) {
                    const bool wanted = kind == Kind::forward || (backward_ && (kind == Kind::backward || weights_));
                    if (!wanted || seen.count({kind, micro, chunk})) continue;
                    refuse(fmt::format("never runs {}{}{}", text_of({kind, micro, chunk}), whose(chunk),
                                       kind == Kind::weight ? "; where one rank has a W, all run every W" : ""));
                }
    }

    void find_stages() const {
        std::vector<int> ranks_of(stages_, 0);
        for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
            for (int stage : schedule_.stages_of(rank)) {
                if (stage < 0 || stage >= stages_)
                    refuse(
                        fmt::format("runs stage {} on pipeline rank {}, but the program has {} stages, counted from 0",
                                    stage, rank, stages_));
                if (++ranks_of[stage] > 1) refuse(fmt::format("runs stage {} twice", stage));
            }
        const auto missing = std::find(ranks_of.begin(), ranks_of.end(), 0);
        if (missing != ranks_of.end())
            refuse(fmt::format("runs stage {} on no pipeline rank; the program has {} stages",
                               missing - ranks_of.begin(), stages_));
    }

    const Schedule& schedule_;
    int64_t micros_;
    int stages_;
    bool backward_;
    const std::vector<Origin>& lines_;
    bool weights_ = false;
    size_t rank_ = 0;
};

}  // namespace

void check_schedule(const Schedule& schedule, int64_t micros, int stages, bool backward,
                    const std::vector<Origin>& lines) {
    ScheduleCheck(schedule, micros, stages, backward, lines).run();
}

}  // namespace orrery
