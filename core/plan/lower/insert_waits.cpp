#include <algorithm>
#include <optional>

#include "plan/access.h"
#include "plan/lower/emit.h"
#include "plan/ranges.h"
#include "plan/repeat.h"

namespace orrery::lowering {

namespace {

/// The last accesses to some bytes: the last write, and the last read of each queue since then.
struct Touched {
    int writer = none;
    std::vector<int> readers;
};

/// Inserts waits by means of vector clocks. Positions count executions, those of the second run of a Repeat included.
class Waits {
public:
    explicit Waits(RankClass& rank_class)
        : class_(rank_class),
          queues_(queues_of(rank_class)),
          done_((class_.stream.size() + class_.repeat.length()) * queues_, none) {
        now_.known.assign(queues_ * queues_, none);
    }

    bool run() {
        const Repeat& repeat = class_.repeat;
        const int size = class_.stream.size();
        const int begin = repeats(class_) ? repeat.begin : size;
        for (int i = 0; i < begin; ++i) one(i, 0);
        if (repeats(class_) && !runs()) return false;
        behind_ = repeats(class_);
        for (int i = std::max(begin, repeat.end); i < size; ++i) one(i, 0);
        return !repeats(class_) || steady_waits();
    }

private:
    struct State {
        std::vector<int> known;  ///< [queue][other]: last instruction of `other` that `queue` knows to be complete
        Ranges<Touched> ranges[2];
    };

    /// Finds waits of the repeated part that suffice in all runs. Walks runs 0 and 1, and again if run 1 adds waits,
    /// which then apply to run 0 too. True if run 1 adds none in the end and leaves the same state, one run later.
    bool runs() {
        const Repeat& r = class_.repeat;
        const State before = now_;
        in_runs_ = true;
        for (int turn = 0; turn < most_turns; ++turn) {
            now_ = before;
            added_ = false;
            for (int i = r.begin; i < r.end; ++i) one(i, 0);
            const State first = now_;
            added_ = false;
            for (int i = r.begin; i < r.end; ++i) one(i, 1);
            if (!added_) {
                const bool same = a_run_later(first, now_);
                now_ = first;
                now_.ranges[1] = in_last_run(class_, first.ranges[1], {none, last_in_frames(class_, queues_)});
                return same;
            }
        }
        return false;
    }

    bool a_run_later(const State& before, const State& after) {
        later_.emplace(class_, queues_, after.known);
        std::vector<int> then(queues_), now(queues_);
        const auto by_queue = [&](const Touched& touched, std::vector<int>& last) {
            std::fill(last.begin(), last.end(), none);
            for (const int reader : touched.readers) last[queue(reader)] = reader;
        };
        const auto same = [&](const Touched& x, const Touched& y, bool framed) {
            by_queue(x, then);
            by_queue(y, now);
            bool is = y.writer == none || (*later_)(queue(y.writer), x.writer, y.writer, framed);
            for (size_t q = 0; q < queues_; ++q) is = is && (*later_)(q, then[q], now[q], framed);
            return is;
        };
        const Repeat& r = class_.repeat;
        const int* rows = done_.data() + r.begin * queues_;
        const size_t count = r.length();
        return orrery::a_run_later(class_, Arena::persistent, before.ranges[0], after.ranges[0], same) &&
               orrery::a_run_later(class_, Arena::scratch, before.ranges[1], after.ranges[1], same) &&
               later_->holds() && later_->at_least(before.known.data(), after.known.data(), queues_) &&
               later_->at_least(rows, rows + count * queues_, count);
    }

    /// Whether each wait for an instruction before the repeated part has the same effect in all runs.
    bool steady_waits() const {
        const Repeat& r = class_.repeat;
        for (size_t i = r.begin; i < class_.stream.size(); ++i)
            for (const int wait : class_.stream[i].waits)
                if (wait < r.from() && !later_->stays(done_.data() + wait * queues_)) return false;
        return true;
    }

    int queue(int position) const {
        const Repeat& r = class_.repeat;
        return class_.stream[run_ > 0 && position >= r.end ? position - r.length() : position].queue;
    }

    void one(int index, int64_t run) {
        run_ = run;
        const int position = index + static_cast<int>(run) * class_.repeat.length();
        Instruction& instruction = class_.stream[index];
        const size_t mine = instruction.queue;
        int* known = &now_.known[mine * queues_];
        const auto wait = [&](int other) {
            const int* then = &done_[other * queues_];
            for (size_t q = 0; q < queues_; ++q) known[q] = std::max(known[q], then[q]);
        };
        for (const int earlier : instruction.waits) wait(position_of(earlier));
        needed_.assign(queues_, none);
        for_each_access(class_, instruction,
                        [&](const Operand& o, bool reads, bool writes) { touch(position, o, reads, writes); });
        for (size_t q = 0; q < queues_; ++q) {
            if (q == mine || needed_[q] <= known[q]) continue;
            instruction.waits.push_back(stored(needed_[q]));
            added_ = true;
            wait(position_of(instruction.waits.back()));
        }
        std::sort(instruction.waits.begin(), instruction.waits.end());
        known[mine] = position;
        std::copy(known, known + queues_, &done_[position * queues_]);
    }

    int position_of(int wait) const {
        const Repeat& r = class_.repeat;
        return run_ > 0 && wait >= r.from() ? wait + r.length() : wait;
    }

    /// The index by which a wait names the instruction at `position`. Waits for instructions of micro-batches advance
    /// from run to run, so they name one in this or the previous run; for an older one, the next one of its queue.
    int stored(int position) const {
        const Repeat& r = class_.repeat;
        const int run_back = run_ == 0 ? r.from() : r.begin;
        if (!in_runs_ || position >= run_back) return position - static_cast<int>(run_) * r.length();
        const Instruction& awaited = class_.stream[position];
        if (awaited.fragment.micro < 0) return position;
        for (int next = r.from(); next < r.begin; ++next)
            if (class_.stream[next].queue == awaited.queue) return next;
        return position;
    }

    void need(int position, int other) {
        if (other == none || queue(other) == queue(position)) return;
        int& needed = needed_[queue(other)];
        needed = std::max(needed, other);
    }

    void touch(int position, const Operand& operand, bool reads, bool writes) {
        const Buffer& buffer = class_.buffers[operand.buffer];
        if (buffer.arena == Arena::persistent && buffer.use == BufferUse::input && !writes) return;  // never written
        const int64_t begin = address(class_, operand, behind_ ? last_run(class_) : run_);
        const int64_t end = begin + operand.type.bytes();
        auto& ranges = now_.ranges[arena(class_, operand) == Arena::scratch];
        ranges.visit(begin, end, [&](Touched& touched) {
            need(position, touched.writer);
            if (writes)
                for (int reader : touched.readers) need(position, reader);
            if (reads && !writes) {
                auto same = std::find_if(touched.readers.begin(), touched.readers.end(),
                                         [&](int reader) { return queue(reader) == queue(position); });
                if (same == touched.readers.end()) {
                    touched.readers.push_back(position);
                } else {
                    *same = position;
                }
            }
        });
        if (writes) ranges.replace(begin, end, {position, {}});
    }

    static constexpr int most_turns = 4;

    RankClass& class_;
    size_t queues_;
    std::optional<LaterRun> later_;
    State now_;
    std::vector<int> done_;  ///< [position][queue]: vector clock after the instruction at the position
    std::vector<int> needed_;
    int64_t run_ = 0;
    bool added_ = false;
    bool in_runs_ = false;
    bool behind_ = false;  ///< whether the walk is after the repeated part; addresses are then those of the last run
};

}  // namespace

bool insert_waits(RankClass& rank_class) {
    return (queues_of(rank_class) == 1 && !repeats(rank_class)) || Waits(rank_class).run();
}

}  // namespace orrery::lowering
