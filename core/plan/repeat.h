// More than 200 lines: the templates for the repeated part of a stream belong together.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/plan.h"
#include "plan/ranges.h"

namespace orrery {

/// A stream contains up to this many micro-batches one by one; with more, the part that repeats is stored once.
inline constexpr int64_t written_micros = 64;

/// One execution of an instruction. `run`: run of the repeated part, from 0; before the part 0, after it the last run.
struct Issued {
    int index = 0;
    int64_t run = 0;
};

inline bool repeats(const RankClass& c) { return c.repeat.times > 1; }
/// The number of instructions that a stream executes per step, counting all runs of its repeated part.
int64_t issues(const RankClass& c);
/// Converts an execution to its index among all executions of a step, and back.
int64_t position_of(const RankClass& c, const Issued& issued);
Issued issued_at(const RankClass& c, int64_t position);
/// The execution that `who` must wait for because of `wait`, an element of Instruction::waits.
Issued waited_for(const RankClass& c, const Issued& who, int wait);
/// The index of the last run of the repeated part. Instructions after the repeated part belong to it.
inline int64_t last_run(const RankClass& c) { return c.repeat.times - 1; }
inline int64_t times_of(const RankClass& c, size_t index) {
    const bool repeated = static_cast<int>(index) >= c.repeat.begin && static_cast<int>(index) < c.repeat.end;
    return repeated ? c.repeat.times : 1;
}
/// The number of micro-batches in the stored stream: it has the repeated part once, with the micro-batches of run 0.
int64_t stored_micros(const RankClass& c, const Mesh& mesh);

/// The address of an operand's first byte in a run of the repeated part, in bytes from the start of the arena.
int64_t address(const RankClass& c, const Operand& operand, int64_t run);
Fragment fragment_in_run(const RankClass& c, const Issued& issued);
/// A copy of an instruction with the fragment and message tag of an execution. Its operands stay those of run 0.
Instruction in_run(const RankClass& c, const Issued& issued);

/// All executions, in order, of the instructions for which counts(instruction) is true.
template <class Counts>
std::vector<Issued> issued_of(const RankClass& c, Counts&& counts) {
    std::vector<Issued> all;
    std::vector<int> repeated;
    for (int i = 0; i < std::ssize(c.stream); ++i) {
        if (repeats(c) && i == c.repeat.end)
            for (int64_t run = 1; run < c.repeat.times; ++run)
                for (const int index : repeated) all.push_back({index, run});
        if (!counts(c.stream[i])) continue;
        all.push_back({i, i >= c.repeat.end ? last_run(c) : 0});
        if (times_of(c, i) > 1) repeated.push_back(i);
    }
    if (repeats(c) && c.repeat.end == std::ssize(c.stream))
        for (int64_t run = 1; run < c.repeat.times; ++run)
            for (const int index : repeated) all.push_back({index, run});
    return all;
}

/// The plan with all runs of its repeated parts written out. Linear in micro-batches.
Plan unrolled(const Plan& plan);

/// Checks that the second run of a repeated part leaves the same positions as the first, so that later runs do too. A
/// position, the index of an execution (the last write of some bytes), must be unchanged or advance by exactly one run.
/// In each queue, unchanged ones must precede those that advance. Positions that all other queues know to be complete
/// are ignored. Call operator() for each pair of positions, then `holds`, then the other two functions.
class LaterRun {
public:
    /// `known`: [queue][other], the last position of `other` that `queue` knows to be complete after the second run.
    LaterRun(const RankClass& c, size_t queues, const std::vector<int>& known)
        : length_(c.repeat.length()), known_(known), still_(queues, none), moving_(queues, INT_MAX) {
        for (auto& queue : asks_) queue.assign(queues, 0);
        for (size_t i = c.repeat.begin; i < c.stream.size(); ++i)
            for (const Operand& o : c.stream[i].operands)
                asks_[c.buffers[o.buffer].frames != none][c.stream[i].queue] = 1;
    }
    /// Compares a position of a queue after the first and after the second run. `framed`: it is of an access to Frames.
    bool operator()(size_t queue, int before, int after, bool framed) {
        if (settled(queue, after, framed)) return true;
        if (after == before) still_[queue] = std::max(still_[queue], before);
        if (after == before + length_) moving_[queue] = std::min(moving_[queue], before);
        return after == before || after == before + length_;
    }
    bool holds() const {
        for (size_t q = 0; q < still_.size(); ++q)
            if (still_[q] >= moving_[q]) return false;
        return true;
    }

    /// True if what is known to be complete, [rows][queue], is after the second run at least that after the first, plus
    /// one run where positions of the queue advance. Every further run then knows at least as much.
    bool at_least(const int* before, const int* after, size_t rows) const {
        for (size_t i = 0; i < rows * still_.size(); ++i)
            if (after[i] < (before[i] >= moving_[i % still_.size()] ? before[i] + length_ : before[i])) return false;
        return true;
    }
    /// True if no position in the row advances from run to run, so that a wait for it has the same effect in all runs.
    bool stays(const int* row) const {
        for (size_t q = 0; q < still_.size(); ++q)
            if (row[q] >= moving_[q]) return false;
        return true;
    }

private:
    bool settled(size_t queue, int position, bool framed) const {
        for (size_t q = 0; q < still_.size(); ++q)
            if (q != queue && asks_[framed][q] && known_[q * still_.size() + queue] < position) return false;
        return true;
    }

    int length_;
    const std::vector<int>& known_;
    std::vector<char> asks_[2];        ///< [0] outside, [1] in Frames, by queue: whether it accesses any
    std::vector<int> still_, moving_;  ///< by queue: last unchanged position; first that advances
};

/// Maps the slots of Frames in run `from` to their slots in run `to`: [pool][slot]. `none`: the repeated part does not
/// use the slot. Empty if two frames share a slot in only one of the two runs.
std::vector<std::vector<int>> slot_map(const RankClass& c, int64_t from, int64_t to);
/// True if frames that share a slot in one run of the repeated part do so in every run.
bool slots_turn(const RankClass& c);
/// For each queue that accesses Frames in the repeated part, the index of its last instruction that does.
std::vector<int> last_in_frames(const RankClass& c, size_t queues);

/// The pools of Frames in the scratch arena, sorted by offset, and where each slot is in a later run (slot_map).
class Pools {
public:
    struct Pool {
        int64_t offset, end, stride;
        std::vector<int> to;     ///< by slot: the slot in the later run; `none`: not mapped
        std::vector<char> used;  ///< by slot of the later run: whether a slot is mapped to it
    };
    Pools(const RankClass& c, const std::vector<std::vector<int>>& slots);
    const std::vector<Pool>& all() const { return pools_; }

    /// Splits a byte range at borders of slots. Calls use(begin, end, slot, pool); (none, nullptr) outside pools.
    template <class Use>
    void cut(int64_t begin, int64_t end, Use&& use) const {
        while (begin < end) {
            const auto next = std::upper_bound(pools_.begin(), pools_.end(), begin,
                                               [](int64_t at, const Pool& p) { return at < p.offset; });
            const bool inside = next != pools_.begin() && begin < std::prev(next)->end;
            int64_t stop = next == pools_.end() ? end : std::min(end, next->offset);
            int64_t slot = none;
            if (inside) {
                const Pool& p = *std::prev(next);
                slot = (begin - p.offset) / p.stride;
                stop = std::min(end, p.offset + (slot + 1) * p.stride);
            }
            use(begin, stop, slot, inside ? &*std::prev(next) : nullptr);
            begin = stop;
        }
    }

private:
    std::vector<Pool> pools_;
};

/// True if the notes (Ranges) on an arena after the second run equal those after the first, shifted by one run. Notes
/// on Frames are compared with those in the slots of the next run. same(before, after, in a frame) compares two notes.
/// Always true for at most two runs.
template <class What, class Same>
bool a_run_later(const RankClass& c, Arena arena, const Ranges<What>& before, const Ranges<What>& after, Same&& same) {
    struct Part {
        int64_t begin, end;
        const What* note;
        bool framed;
    };
    if (c.repeat.times <= 2) return true;
    const auto slots = arena == Arena::scratch ? slot_map(c, 1, 2) : std::vector<std::vector<int>>{};
    if (arena == Arena::scratch && slots.empty() && !c.frames.empty()) return false;
    const Pools pools(c, slots);
    std::vector<Part> then, now;
    before.for_each([&](int64_t range, int64_t range_end, const What& note) {
        pools.cut(range, range_end, [&](int64_t begin, int64_t end, int64_t slot, const Pools::Pool* pool) {
            if (!pool) return then.push_back({begin, end, &note, false});
            const int to = pool->to[slot];
            if (to == none) return;
            const int64_t by = (to - slot) * pool->stride;
            then.push_back({begin + by, end + by, &note, true});
        });
    });
    after.for_each([&](int64_t range, int64_t range_end, const What& note) {
        pools.cut(range, range_end, [&](int64_t begin, int64_t end, int64_t slot, const Pools::Pool* pool) {
            if (!pool || pool->used[slot]) now.push_back({begin, end, &note, pool != nullptr});
        });
    });
    std::sort(then.begin(), then.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    size_t a = 0, b = 0;
    for (int64_t at = 0; a < then.size() && b < now.size();) {
        const int64_t begin_a = std::max(then[a].begin, at), begin_b = std::max(now[b].begin, at);
        if (begin_a != begin_b || !same(*then[a].note, *now[b].note, then[a].framed)) return false;
        at = std::min(then[a].end, now[b].end);
        if (then[a].end == at) ++a;
        if (now[b].end == at) ++b;
    }
    return a == then.size() && b == now.size();
}

/// Derives the notes on the scratch arena after the last run from those after the first. Notes on Frames move to their
/// slots of the last run. Other slots become `unknown`, as runs in between may have written there.
template <class What>
Ranges<What> in_last_run(const RankClass& c, const Ranges<What>& first, const What& unknown) {
    const Pools pools(c, slot_map(c, 0, last_run(c)));
    Ranges<What> last;
    for (const Pools::Pool& pool : pools.all())
        for (size_t slot = 0; slot < pool.used.size(); ++slot) {
            const int64_t begin = pool.offset + static_cast<int64_t>(slot) * pool.stride;
            if (!pool.used[slot]) last.replace(begin, begin + pool.stride, unknown);
        }
    first.for_each([&](int64_t range, int64_t range_end, const What& note) {
        pools.cut(range, range_end, [&](int64_t begin, int64_t end, int64_t slot, const Pools::Pool* pool) {
            const int to = pool ? pool->to[slot] : none;
            const int64_t by = to == none ? 0 : (to - slot) * pool->stride;
            if (!pool || to != none) last.replace(begin + by, end + by, note);
        });
    });
    return last;
}

}  // namespace orrery
