// Everything about the repeated part of a stream is in this header, templates included: more than 200 lines.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/plan.h"
#include "plan/ranges.h"

namespace orrery {

/// So many micro-batches are written out one by one; of more, the steady state once where there is one.
inline constexpr int64_t written_micros = 64;

/// An instruction of the stream in a run of its class' Repeat: 0 before the stretch, the last one behind it.
struct Issued {
    int index = 0;
    int64_t run = 0;
};

inline bool repeats(const RankClass& c) { return c.repeat.times > 1; }
/// How many instructions a step issues.
int64_t issues(const RankClass& c);
/// Its number among all that a step issues, and back.
int64_t position_of(const RankClass& c, const Issued& issued);
Issued issued_at(const RankClass& c, int64_t position);
/// What `who` waits for where its instruction names `wait`.
Issued waited_for(const RankClass& c, const Issued& who, int wait);
/// The run in which what lies behind the stretch stands: the last.
inline int64_t last_run(const RankClass& c) { return c.repeat.times - 1; }
/// How often an instruction is issued in a step.
inline int64_t times_of(const RankClass& c, size_t index) {
    const bool repeated = static_cast<int>(index) >= c.repeat.begin && static_cast<int>(index) < c.repeat.end;
    return repeated ? c.repeat.times : 1;
}
/// Micro-batches that the stored stream has: all but those of the further runs.
int64_t stored_micros(const RankClass& c, const Mesh& mesh);

/// The operand's first byte in its arena in a run.
int64_t address(const RankClass& c, const Operand& operand, int64_t run);
/// The fragment of an instruction in its run.
Fragment fragment_in_run(const RankClass& c, const Issued& issued);
/// Of the run: fragment and tag. Operands stay as they are stored.
Instruction in_run(const RankClass& c, const Issued& issued);

/// What of the stream `counts`, in the order of issue, in each run.
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

/// The same plan with every run written out: for whoever looks at each instruction by itself. Memory and time grow with
/// the micro-batches.
Plan unrolled(const Plan& plan);

/// Whether a state that notes instructions by their place among all issued is, at the end of the second run, what it
/// was at the end of the first: of each queue some are the same ones still, all later ones a run further on, and what
/// all queues know to be done is as good as none. Ask for each pair, then `holds`; then the others.
class LaterRun {
public:
    /// `known`: [queue][other], what is known at the end of the second run.
    LaterRun(const RankClass& c, size_t queues, const std::vector<int>& known)
        : length_(c.repeat.length()), known_(known), still_(queues, none), moving_(queues, INT_MAX) {
        for (auto& queue : asks_) queue.assign(queues, 0);
        for (size_t i = c.repeat.begin; i < c.stream.size(); ++i)
            for (const Operand& o : c.stream[i].operands)
                asks_[c.buffers[o.buffer].frames != none][c.stream[i].queue] = 1;
    }
    /// `framed`: they touched a frame.
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

    /// What is known to be done, [rows][queue]: the last of each queue. It is what was known before, or more: then it
    /// is in all further runs.
    bool at_least(const int* before, const int* after, size_t rows) const {
        for (size_t i = 0; i < rows * still_.size(); ++i)
            if (after[i] < (before[i] >= moving_[i % still_.size()] ? before[i] + length_ : before[i])) return false;
        return true;
    }
    /// No run moves what is known there: a wait for it is worth the same in all of them.
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
    std::vector<char> asks_[2];        ///< by queue: in the stretch or behind it it touches other bytes; frames
    std::vector<int> still_, moving_;  ///< by queue: the last that is the same, the first that is not
};

/// By pool of Frames and slot in run `from`: the slot that stands for it in run `to`, none where the stretch finds
/// nothing in it; {} where there are no such, as two frames that share a slot in one run do not in the other.
std::vector<std::vector<int>> slot_map(const RankClass& c, int64_t from, int64_t to);
/// Frames that share a slot in one run of the stretch do in every run, and no others.
bool slots_turn(const RankClass& c);
/// Of each queue that touches frames in the stretch: the last instruction that does.
std::vector<int> last_in_frames(const RankClass& c, size_t queues);

/// Pools of frames in the scratch arena, by offset.
class Pools {
public:
    struct Pool {
        int64_t offset, end, stride;
        std::vector<int> to;     ///< by slot
        std::vector<char> used;  ///< by slot: one goes there
    };
    Pools(const RankClass& c, const std::vector<std::vector<int>>& slots);
    const std::vector<Pool>& all() const { return pools_; }

    /// Calls use(begin, end, slot, pool) for each part of a range: inside one slot, or (none, nullptr) outside all.
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

/// Whether what is noted of an arena at the end of the second run is what was noted at the end of the first, a run
/// later: same(before, after, in a frame) for all bytes, those of frames in the slots of a run later. Nothing to ask
/// where no third run follows.
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

/// What was noted of the scratch arena at the end of the first run, as it is at the end of the last: that of frames in
/// its slots, and `unknown` where the runs between may have left any.
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
