// Proves contents, order and sums: walks each stream and notes for every byte of the arenas
//  - the value in it, its micro-batch, and the contributions summed in it;
//  - the instruction that wrote it, and the instructions that have read it since.
// Each queue has a vector clock: the last instruction of every other queue that it knows to be complete. A wait merges
// the clock of the awaited instruction. A read requires that the bytes hold its operand's value, with the right
// micro-batch and all contributions, and that the write is complete by the clock. A write requires the same of the
// previous write and all reads since. At the end, updates and results must be in their places. A repeated part is
// walked twice; the notes after the second run must equal those after the first, shifted by one run (README.md has the
// proof).
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/processors.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/check/check_sums.h"
#include "plan/print.h"
#include "plan/ranges.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

constexpr Contributions unknown{~uint64_t{0}, ~uint64_t{0}};

struct Held {
    ValueId value = none;
    int writer = none;   ///< instruction that wrote the bytes; none: written before the step
    int64_t micro = -1;  ///< micro-batch of the instruction that wrote the bytes
    Contributions sum;
    std::vector<int> readers;  ///< instructions that have read the bytes since the write
};

struct Wanted {
    explicit Wanted(const Program& program) : updates(program.values.size(), none), ops(program.ops.size(), 0) {
        for (const Update& update : program.updates) updates[update.target] = update.value;
        std::vector<char> values(program.values.size(), 0);
        for (const Result& result : program.results) values[result.value] = 1;
        for (const Update& update : program.updates) values[update.value] = 1;
        for (size_t i = program.ops.size(); i-- > 0;) {
            const Op& op = program.ops[i];
            for (ValueId output : op.outputs) ops[i] |= values[output];
            if (ops[i])
                for (ValueId input : op.inputs) values[input] = 1;
        }
    }

    std::vector<ValueId> updates;  ///< by param or state: its new value after the step; none: unchanged
    std::vector<char> ops;         ///< by op: whether a result or update depends on it
};

class Contents {
public:
    Contents(const Plan& plan, const Wanted& wanted, const RankClass& c, const Network& contracts)
        : plan_(plan),
          wanted_(wanted),
          class_(c),
          queues_(queues_of(c)),
          micro_axis_(plan.mesh.sequential_axis().value_or(none)),
          micros_(stored_micros(c, plan.mesh)),
          runs_(plan.program.ops.size()),
          group_(groups_of(plan, c, contracts)) {
        for (const Instruction& i : c.stream) {
            if (&i - c.stream.data() == c.repeat.begin) runs_at_begin_ = runs_;
            count(i.op, i);
            for (size_t o = 3; i.opcode == Opcode::all_reduce && o < i.operands.size(); o += 2) {
                const OpId maker = plan.program.value(i.operands[o].value).op;
                if (maker != i.op) count(maker, i);
            }
            if (&i - c.stream.data() == c.repeat.end - 1) runs_at_end_ = runs_;
        }
        for (const Operand& place : c.places) placed_.insert(place.value);
        std::vector<char> in_loop;
        for (const Runs& runs : runs_) in_loop.push_back(runs.count > 0 && runs.micros >= 0);
        if (repeats(c)) of_run_.emplace(plan, micro_axis_, c.repeat.micros, 0, in_loop);
        sums_.emplace(plan, micro_axis_, micros_, c.repeat.micros, std::move(in_loop));
        now_.clock.assign(queues_ * queues_, none);
        done_.resize((c.stream.size() + c.repeat.length()) * queues_, none);
    }

    void run() {
        for (const Operand& place : class_.places)
            if (plan_.program.value(place.value).role != Role::temporary)
                hold(place, place.value, none, sums_->made(place.value, -1));
        for (index_ = 0; index_ < std::ssize(class_.stream); ++index_) {
            if (repeats(class_) && index_ == class_.repeat.end) further_runs();
            one();
        }
        if (repeats(class_) && index_ == class_.repeat.end) further_runs();
        for (const Operand& place : class_.places) left_behind(place);
        complete();
    }

private:
    /// The stream index of the execution at `position`, a number that counts executions up to the end of run 1.
    int stored(int position) const {
        return run_ > 0 && position >= class_.repeat.end ? position - class_.repeat.length() : position;
    }
    const Instruction& at(int position) const { return class_.stream[stored(position)]; }
    int64_t micro_of(int position) const {
        const int64_t micro = at(position).fragment.micro;
        return micro >= 0 && stored(position) != position ? micro + class_.repeat.micros : micro;
    }
    Ranges<Held>& ranges(const Operand& o) { return now_.ranges[arena(class_, o) == Arena::scratch]; }
    int64_t place(const Operand& o) const {
        return address(class_, o, run_ == 0 && index_ >= class_.repeat.end ? last_run(class_) : run_);
    }

    [[noreturn]] void fail(const std::string& why) const {
        const int index = stored(index_);
        const int64_t run = index >= class_.repeat.end ? last_run(class_) : run_;
        throw Error(describe(plan_, class_, Issued{index, run}) + ": " + why);
    }

    struct State {
        std::vector<int> clock;  ///< [queue][other]: last instruction of `other` that `queue` knows to be complete
        Ranges<Held> ranges[2];
    };

    /// How often an op runs (not counting helper kernels), and in which micro-batches.
    struct Runs {
        int64_t count = 0;
        int64_t micros = 0;  ///< sum of the micro-batch indices of these runs; -1 if the op runs once per step
        Contributions all;
    };

    void count(OpId id, const Instruction& i) {
        if (id == none) return;
        const Op& op = plan_.program.op(id);
        const OpDef& def = op_def(op.kind);
        if (i.opcode == Opcode::kernel) {
            const std::string& kernel = class_.kernels[i.kernel].op;
            if (kernel != kernel_of(def)) return;  // not counted: a helper kernel, which packs or adds
        }
        if (i.opcode == Opcode::copy && !renames(op)) return;  // of the first contribution to a sum over micro-batches
        if (exchanges_blocks(def, op) && i.opcode != Opcode::receive) return;  // counted once, when its block is there
        Runs& runs = runs_[id];
        ++runs.count;
        runs.micros += i.fragment.micro;
        runs.all += contribution(i.fragment.micro);
    }

    /// Whether lowering may omit the op: it only renames bytes, or the ops before or after it do its work.
    bool renames(const Op& op) const {
        const bool over_micro = op.attributes.has("axis") && plan_.mesh.find(op.attributes.text("axis")) == micro_axis_;
        const OpDef& def = op_def(op.kind);
        return def.alias || def.moves == Moves::cuts || over_micro;
    }

    /// The value that an instruction computed into the bytes of `id`; ops between the two were omitted by lowering.
    ValueId source(ValueId id) const {
        while (id != none) {
            const OpId maker = plan_.program.value(id).op;
            if (maker == none || runs_[maker].count > 0 || !renames(plan_.program.op(maker))) return id;
            id = plan_.program.op(maker).inputs[0];
        }
        return none;
    }

    bool has_stage(int stage) const {
        return std::find(class_.stages.begin(), class_.stages.end(), stage) != class_.stages.end();
    }
    bool receives(const Op& op) const { return is_transfer(op_def(op.kind)) && !has_stage(op.stage); }
    /// Whether this rank class must run the op. Both ends run a transfer, all classes an op without a stage.
    bool mine(const Op& op) const {
        if (class_.stages.empty() || op.stage == none || has_stage(op.stage)) return true;
        return is_transfer(op_def(op.kind)) && has_stage(static_cast<int>(op.attributes.integer("to")));
    }
    bool has_place(ValueId id) const { return placed_.count(id) != 0; }

    void complete() const {
        std::vector<char> needed(plan_.program.values.size(), 0);
        for (const Result& result : plan_.program.results)
            if (class_.stages.empty() || has_place(result.value)) needed[result.value] = 1;
        for (const Update& update : plan_.program.updates)
            if (class_.stages.empty() || has_place(update.target)) needed[update.value] = 1;
        const int64_t micros = micros_;
        for (size_t i = plan_.program.ops.size(); i-- > 0;) {
            const Op& op = plan_.program.ops[i];
            const bool read_here =
                std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return needed[id] != 0; });
            const OpDef& def = op_def(op.kind);
            const bool everyones = op.stage == none && !is_stage_sum(def);
            const bool staged = !class_.stages.empty() && !everyones;
            if (!mine(op) || !(staged ? wanted_.ops[i] != 0 : read_here)) continue;
            if (is_stage_sum(def)) {
                needed[op.inputs.at(class_.stage)] = 1;
            } else if (!receives(op)) {
                for (ValueId input : op.inputs) needed[input] = 1;
            }
            if (renames(op) || def.moves == Moves::permutes || is_sum(def)) continue;
            const Runs& runs = runs_[i];
            const bool once = runs.count == 1 && (runs.micros == -1 || (runs.micros == 0 && micros == 1));
            const bool each = runs.count == micros && runs.micros == micros * (micros - 1) / 2;
            if (!once && !each)
                throw Error(fmt::format("class {}: {} runs {} times, expected {}", &class_ - plan_.classes.data(),
                                        describe(plan_.program, op), runs.count, micros));
        }
    }

    /// Clears the contents of bytes outside all live buffers, so that no run relies on them. Accesses stay recorded.
    void forget(State& state, int64_t run) const {
        std::vector<std::pair<int64_t, int64_t>> alive{{class_.scratch_bytes, class_.scratch_bytes}};
        for (const Buffer& b : class_.buffers)
            if (b.arena == Arena::scratch && b.first < class_.repeat.end && class_.repeat.end <= b.last) {
                const int64_t begin =
                    address(class_, {static_cast<int>(&b - class_.buffers.data()), 0, {}, none, 0}, run);
                alive.emplace_back(begin, begin + b.bytes);
            }
        std::sort(alive.begin(), alive.end());
        int64_t at = 0;
        for (const auto& [begin, end] : alive) {
            state.ranges[1].visit_seen(at, begin, [](Held& held) {
                held.value = none;
                held.micro = -1;
                held.sum = {};
            });
            at = std::max(at, end);
        }
    }

    /// Checks the second run (run 1) of the repeated part. If it leaves all bytes as run 0 did, shifted by one run and
    /// with its own contributions to sums, then every later run is correct too.
    void further_runs() {
        const Repeat& r = class_.repeat;
        State first = now_;
        run_ = 1;
        for (index_ = r.end; index_ < r.end + r.length(); ++index_) one();
        forget(now_, 1);
        Ranges<Held> last = in_last_run(class_, first.ranges[1], {none, none, -1, {}, last_in_frames(class_, queues_)});
        forget(first, 0);
        unlike(first);
        index_ = r.end;
        run_ = 0;
        now_ = std::move(first);
        now_.ranges[1] = std::move(last);
        Contributions run;
        for (int64_t m = 0; m < r.micros; ++m) run += contribution(m);
        for (size_t op = 0; op < runs_.size(); ++op) {
            if (runs_[op].all.each == 0 && runs_at_begin_[op].count == runs_at_end_[op].count) continue;
            const Contributions expected = runs_at_begin_[op].all.later(r.micros) + run;
            if (runs_at_end_[op].all == expected) continue;
            index_ = r.begin;
            fail(fmt::format(
                "begins instructions that run {} times for {} micro-batches each, but {} does not run once for each",
                r.times, r.micros, describe(plan_.program, plan_.program.ops[op])));
        }
    }

    /// Fails if run 1 does not leave the contents and accesses that run 0 left (`begin`), shifted by one run.
    void unlike(const State& begin) {
        const Repeat& r = class_.repeat;
        const auto refuse = [&](const std::string& what) {
            run_ = 0;
            index_ = r.begin;
            fail(
                fmt::format("begins instructions that run {} times, but one run does not leave the state that the next "
                            "run needs: {}",
                            r.times, what));
        };
        LaterRun note(class_, queues_, now_.clock);
        const auto alike = [&](const Held& before, const Held& after, bool framed) {
            const auto later = [&](int then, int now) { return now == none || note(at(now).queue, then, now, framed); };
            if (before.value != after.value || !later(before.writer, after.writer)) return false;
            const std::vector<int> then = last_readers(before), now = last_readers(after);
            if (!std::equal(then.begin(), then.end(), now.begin(), now.end(), later)) return false;
            if (before.writer == after.writer) return before.micro == after.micro && before.sum == after.sum;
            if (before.value == none) return true;
            if (before.micro >= 0 && after.micro != before.micro + r.micros) return false;
            Contributions moved = before.sum.later(r.micros);
            if (!framed) {  // memory that all runs share has a sum to which each run adds
                const std::optional<Contributions> more = of_run_->expected(before.value, -1);
                if (!more) return false;
                moved.each += more->each;
            }
            return after.sum == moved;
        };
        std::string differs;
        const auto same = [&](const Held& before, const Held& after, bool framed) {
            const bool is = alike(before, after, framed);
            if (!is) differs = fmt::format("{} became {}", text_of(before), text_of(after));
            return is;
        };
        const auto what = [&] { return differs.empty() ? "other bytes were accessed" : differs; };
        Ranges<Held> before = begin.ranges[0];  // without inputs, since each run reads other bytes of them
        for (const Buffer& b : class_.buffers)
            if (b.arena == Arena::persistent && b.use == BufferUse::input)
                for (Ranges<Held>* all : {&before, &now_.ranges[0]}) all->replace(b.offset, b.offset + b.bytes, {});
        if (!a_run_later(class_, Arena::persistent, before, now_.ranges[0], same))
            refuse("in params, states and results " + what());
        if (!a_run_later(class_, Arena::scratch, begin.ranges[1], now_.ranges[1], same))
            refuse("in the scratch arena " + what());
        if (!note.holds())
            refuse("some values come from instructions of the same run, others from instructions of an earlier run");
        const int* rows = done_.data() + r.begin * queues_;
        const size_t count = r.length();
        if (!note.at_least(begin.clock.data(), now_.clock.data(), queues_) ||
            !note.at_least(rows, rows + count * queues_, count))
            refuse("fewer instructions are known to have completed");
        for (size_t i = r.begin; i < class_.stream.size(); ++i)
            for (const int wait : class_.stream[i].waits)
                if (wait < r.from() && !note.stays(done_.data() + wait * queues_))
                    refuse(
                        fmt::format("instruction {} waits for instruction {} in all runs, but must wait for another "
                                    "one in each run",
                                    i, wait));
    }

    std::string text_of(const Held& held) const {
        std::string text = label(held.value);
        if (held.micro >= 0) text += fmt::format(" of micro-batch {}", held.micro);
        if (held.writer != none) text += fmt::format(", written by instruction {}", held.writer);
        for (const int reader : last_readers(held))
            if (reader != none) text += fmt::format(", read by {}", reader);
        return text;
    }

    /// By queue: the last instruction that read the bytes. It comes after all earlier ones in the queue.
    std::vector<int> last_readers(const Held& held) const {
        std::vector<int> last(queues_, none);
        for (const int reader : held.readers) {
            int& of_queue = last[at(reader).queue];
            of_queue = std::max(of_queue, reader);
        }
        return last;
    }

    bool split_over_micro(ValueId id) const {
        return micro_axis_ != none && plan_.program.value(id).layout.at(micro_axis_).kind == Placement::Kind::split;
    }

    /// Adds to the vector clock of the current queue what the waits of the current instruction know to be complete.
    void tick() {
        const size_t mine = at(index_).queue;
        int* known = &now_.clock[mine * queues_];
        for (int wait : at(index_).waits) {
            if (run_ > 0 && wait >= class_.repeat.from()) wait += class_.repeat.length();
            const int* then = &done_[wait * queues_];
            for (size_t q = 0; q < queues_; ++q) known[q] = std::max(known[q], then[q]);
        }
        known[mine] = index_;
        std::copy(known, known + queues_, &done_[index_ * queues_]);
    }

    void after(int other, std::string_view did) const {
        if (other == none) return;
        const int group = group_[stored(index_)];
        const bool same_run = (stored(other) == other) == (run_ == 0);
        if (group != none && other != index_ && same_run && group_[stored(other)] == group)
            fail(
                fmt::format("is in one message group with instruction {}, which has {} the same bytes; a group only "
                            "completes as a whole",
                            other, did));
        const size_t queue = at(other).queue;
        const size_t mine = at(index_).queue;
        if (queue == mine || other <= now_.clock[mine * queues_ + queue]) return;
        fail(
            fmt::format("data race: may run before instruction {} of queue {} has {} the same bytes; a wait is missing",
                        other, queue, did));
    }

    void one() {
        tick();
        const Instruction& i = at(index_);
        const bool joined = i.operands.size() > 2 && i.opcode == Opcode::all_reduce;
        // All reads come before all writes, because an output may overwrite an input.
        found_.assign(i.operands.size(), {});
        for_each_access(class_, i, [&](const Operand& o, bool reads, bool) {
            if (reads) found_[place_of(i, o)] = read(o, !joined && checks_sum(i, o));
        });
        for (size_t o = 2; joined && o < i.operands.size(); o += 2) read(i.operands[o], true);
        for_each_access(class_, i, [&](const Operand& o, bool, bool writes) {
            if (writes) write(o, sum_of(i, o));
        });
        for (size_t o = 3; joined && o < i.operands.size(); o += 2)
            hold(i.operands[o], i.operands[o].value, index_, sums_->made(i.operands[o].value, micro_of(index_)));
    }

    static size_t place_of(const Instruction& i, const Operand& o) { return &o - i.operands.data(); }

    /// How an output gets its contributions: the op makes one, adds those of its inputs, or moves them from an input.
    enum class Work : uint8_t { makes, adds, moves };
    Work work(const Instruction& i) const {
        if (i.opcode == Opcode::copy) return Work::moves;
        if (i.opcode != Opcode::kernel) return Work::makes;
        const std::string& kernel = class_.kernels[i.kernel].op;
        if (Sums::adds(kernel)) return Work::adds;
        if (i.op == none) return Work::moves;
        const Op& op = plan_.program.op(i.op);
        const bool own = kernel == kernel_of(op_def(op.kind));
        return own && !sums_->passes(op) ? Work::makes : Work::moves;
    }

    /// Whether a sum must be complete when the instruction reads it: not if it only adds to the sum or moves it.
    bool checks_sum(const Instruction& i, const Operand& o) const {
        if (o.value == none) return false;
        if (i.opcode != Opcode::kernel && i.opcode != Opcode::copy) return true;
        const bool output = i.opcode == Opcode::kernel && place_of(i, o) >= inputs(i);
        return !output && (work(i) == Work::makes || i.op == none);
    }

    size_t inputs(const Instruction& i) const {
        return i.opcode == Opcode::kernel ? class_.kernels[i.kernel].inputs.size() : 1;
    }

    Contributions sum_of(const Instruction& i, const Operand& o) const {
        const size_t place = place_of(i, o);
        if (place >= i.operands.size()) return {};  // the operand is a workspace
        switch (work(i)) {
            case Work::moves: return found_[0];
            case Work::adds: return std::accumulate(found_.begin(), found_.begin() + inputs(i), Contributions{});
            case Work::makes: break;
        }
        if (i.op == none) return {};
        const size_t output = i.opcode == Opcode::kernel ? place - inputs(i) : 0;
        const auto& outputs = plan_.program.op(i.op).outputs;
        if (output >= outputs.size()) return {};
        const Contributions mine = sums_->made(outputs[output], micro_of(index_));
        return i.opcode == Opcode::kernel ? found_[place] + mine : mine;  // an accumulating kernel adds to its output
    }

    /// Checks a read of an operand and returns the contributions in its bytes; `unknown` if they differ between parts.
    Contributions read(const Operand& o, bool whole_sum) {
        const int64_t begin = place(o);
        const int64_t micro = micro_of(index_);
        std::optional<Contributions> sum;
        ranges(o).visit(begin, begin + o.type.bytes(), [&](Held& held) {
            if (held.value == none && held.writer == none)
                fail(fmt::format("reads {} before anything is written there",
                                 o.value == none ? "bytes" : label(o.value)));
            after(held.writer, "written");
            if (o.value != none) same(o, held);
            if (whole_sum) complete_sum(o.value, micro, held.sum, "reads");
            sum = !sum || *sum == held.sum ? held.sum : unknown;
            const bool known =
                std::any_of(held.readers.begin(), held.readers.end(), [&](int r) { return r == index_; });
            if (!known) held.readers.push_back(index_);
        });
        return sum.value_or(Contributions{});
    }

    void complete_sum(ValueId value, int64_t micro, const Contributions& found, std::string_view does) {
        const std::optional<Contributions> expected = sums_->expected(value, micro);
        if (expected && *expected != found)
            fail(fmt::format("{} {}, but its bytes hold the sum {}", does, label(value),
                             sums_->difference(value, micro, found)));
    }

    void same(const Operand& o, const Held& held) const {
        if (source(held.value) != source(o.value))
            fail(fmt::format("reads {}, but its bytes hold {}{}", label(o.value), label(held.value),
                             held.writer == none ? "" : fmt::format(", written by instruction {}", held.writer)));
        const int64_t micro = micro_of(index_);
        if (held.writer != none && micro >= 0 && held.micro >= 0 && held.micro != micro && split_over_micro(held.value))
            fail(fmt::format("reads {} of micro-batch {}, but its bytes hold micro-batch {}", label(o.value), micro,
                             held.micro));
    }

    void write(const Operand& o, const Contributions& sum) {
        const int64_t begin = place(o);
        ranges(o).visit(begin, begin + o.type.bytes(), [&](Held& held) {
            after(held.writer, "written");
            for (int reader : held.readers)
                if (reader != index_) after(reader, "read");
        });
        hold(o, o.value, index_, sum);
    }

    void hold(const Operand& o, ValueId value, int writer, const Contributions& sum) {
        const int64_t begin = place(o), end = begin + o.type.bytes();
        const int64_t micro = writer == none ? -1 : micro_of(writer);
        Held* const held = ranges(o).exactly(begin, end);
        if (!held) return ranges(o).replace(begin, end, {value, writer, micro, sum, {}});
        held->value = value;
        held->writer = writer;
        held->micro = micro;
        held->sum = sum;
        held->readers.clear();  // clear() retains the vector's capacity
    }

    /// Checks a value's place after the step: a param or state has its update, a result its value, others the old one.
    void left_behind(const Operand& place) {
        const ValueId update = wanted_.updates[place.value];
        const ValueId expected = update == none ? place.value : update;
        const int64_t begin = address(class_, place, 0);
        ranges(place).visit(begin, begin + place.type.bytes(), [&](const Held& held) {
            const bool updated = expected != place.value;
            ValueId found = held.value;
            if (updated && found == place.value && held.writer != none) found = at(held.writer).operands[0].value;
            if (found == none || source(found) != source(expected))
                throw Error(fmt::format("after the step the buffer of {} holds {} instead of {}", label(place.value),
                                        label(found), label(expected)));
            const std::optional<Contributions> sum = sums_->expected(expected, -1);
            if (sum && *sum != held.sum)
                throw Error(fmt::format("after the step the buffer of {} holds {} {}", label(place.value),
                                        label(expected), sums_->difference(expected, -1, held.sum)));
        });
    }

    std::string label(ValueId id) const { return id == none ? "nothing it knows" : label_of(plan_.program, id); }

    const Plan& plan_;
    const Wanted& wanted_;
    const RankClass& class_;
    size_t queues_;
    const AxisId micro_axis_;
    const int64_t micros_;  ///< number of micro-batches in the stored stream
    std::vector<Runs> runs_;
    std::vector<Runs> runs_at_begin_, runs_at_end_;  ///< copies of runs_ before and after the repeated part
    std::vector<int> group_;
    std::optional<Sums> sums_;
    std::optional<Sums> of_run_;  ///< sums that a single run of the repeated part adds
    std::vector<Contributions> found_;
    std::unordered_set<ValueId> placed_;
    State now_;
    std::vector<int> done_;  ///< [position][queue]: vector clock after the instruction at the position
    int index_ = 0;          ///< position of the current instruction
    int64_t run_ = 0;        ///< run of the Repeat: 1 in the second run, else 0
};

}  // namespace

namespace {

/// Checks that some class of ranks runs each op with a stage, and each update.
void check_homes(const Plan& plan) {
    std::set<int> stages;
    std::set<ValueId> places;
    for (const RankClass& c : plan.classes) {
        if (c.stages.empty()) return;
        stages.insert(c.stages.begin(), c.stages.end());
        for (const Operand& place : c.places) places.insert(place.value);
    }
    for (const Op& op : plan.program.ops)
        if (op.stage != none && !stages.count(op.stage))
            throw Error(op.origin, fmt::format("no rank runs stage {}: {}", op.stage, describe(plan.program, op)));
    for (const Update& update : plan.program.updates)
        if (!places.count(update.target))
            throw Error(fmt::format("no rank holds {}, which the step updates", describe(plan.program, update.target)));
}

}  // namespace

void check_values(const Plan& plan, const Network& contracts) {
    check_homes(plan);
    const Wanted wanted(plan.program);
    in_parallel(plan.classes.size(), [&](size_t k) { Contents(plan, wanted, plan.classes[k], contracts).run(); });
}

}  // namespace orrery
