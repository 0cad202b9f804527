#include <algorithm>
#include <map>
#include <set>

#include "ir/op.h"
#include "plan/access.h"
#include "plan/repeat.h"
#include "sim/kernel_prices.h"
#include "sim/software/passes.h"

namespace orrery {

bool gathers_again(const Program& program, const Op& op) {
    if (op.phase != Phase::backward || op_def(op.kind).collective != Opcode::all_gather) return false;
    const OpId maker = program.value(op.inputs[0]).op;
    return maker != none && program.op(maker).phase == Phase::forward;
}

bool multiplies(const RankClass& c, const Instruction& i) {
    if (i.opcode != Opcode::kernel) return false;
    const OpDef* def = find_op_def(c.kernels[static_cast<size_t>(i.kernel)].op);
    return def && multiplies(def->work);
}

namespace {

/// Indices of instructions that delimit the fragments (forwards, backwards of micro-batches) in a class's stream.
struct Fragments {
    int first = none;    ///< first kernel of any fragment
    int product = none;  ///< last matrix product of any fragment
    int last = none;     ///< last matrix product, message or collective of any fragment
    explicit Fragments(const RankClass& c) {
        for (int i = 0; i < static_cast<int>(c.stream.size()); ++i) {
            const Instruction& one = c.stream[at(i)];
            if (one.fragment.micro < 0) continue;
            if (one.axis == none && first == none) first = i;
            // Only matrix products end fragments: gradients of embeddings may wait for collectives run once a step.
            if (multiplies(c, one)) product = i;
            if (one.axis != none || product == i) last = i;
        }
        if (repeats(c)) last = std::max(last, c.repeat.end - 1);
    }
};

class Mover {
public:
    Mover(const AxisFlags& data, Late late) : data_(data), late_(late) {}

    void run(Plan& plan) {
        for (RankClass& c : plan.classes) wait(c);
        // A group's members must issue collectives in one order: one that cannot move on some rank stays on all.
        std::vector<std::vector<char>> moved;
        for (bool settled = false; !settled;) {
            moved.clear();
            const size_t stay = stays_.size();
            for (const RankClass& c : plan.classes) moved.push_back(movable(c));
            settled = stays_.size() == stay;
        }
        for (size_t k = 0; k < plan.classes.size(); ++k) move(plan.classes[k], moved[k]);
    }

private:
    bool once(const Instruction& i) const { return is_collective(i.opcode) && i.fragment.micro < 0; }
    bool over_data(const Instruction& i) const { return data_[at(i.axis)] != 0; }

    /// Makes the first kernel wait for data-parallel collectives before it, and makes collectives after the last matrix
    /// product wait for that product.
    void wait(RankClass& c) const {
        const Fragments place(c);
        if (place.first == none) return;
        for (int i = 0; i < place.first && late_.params; ++i)
            if (once(c.stream[at(i)]) && over_data(c.stream[at(i)])) add_wait(c.stream[at(place.first)], i);
        if (!late_.gradients) return;
        for (int i = std::max(place.product, place.first) + 1; i < static_cast<int>(c.stream.size()); ++i)
            if (place.product != none && once(c.stream[at(i)]) && over_data(c.stream[at(i)]))
                add_wait(c.stream[at(i)], place.product);
    }

    static void add_wait(Instruction& i, int wait) {
        if (std::find(i.waits.begin(), i.waits.end(), wait) == i.waits.end()) i.waits.push_back(wait);
    }

    bool wanted(const Instruction& i) const {
        return once(i) && !stays_.count(i.op) && (over_data(i) ? late_.gradients : late_.sums);
    }

    /// Returns which instructions move after the last fragment: wanted collectives and, over data axes, everything that
    /// reads their results. If a reader is part of a fragment, the collective stays and is recorded in stays_.
    std::vector<char> movable(const RankClass& c) {
        const Fragments place(c);
        std::vector<char> moved(c.stream.size(), 0);
        if (place.first == none) return moved;
        std::map<int, int> written;  // for each buffer: the moved instruction that wrote it
        std::vector<int> root(c.stream.size(), none);
        const int begin = std::max(place.first + 1, repeats(c) ? c.repeat.end : 0);
        for (int index = begin; index < place.last; ++index) {
            const Instruction& i = c.stream[at(index)];
            int from = none;
            const auto with = [&](int one) { from = from == none ? one : one == none ? from : std::min(from, one); };
            if (wanted(i) && over_data(i)) with(index);
            for (const int wait : i.waits) with(root[at(wait)]);
            for_each_access(c, i, [&](const Operand& o, bool reads, bool) {
                const auto found = reads ? written.find(o.buffer) : written.end();
                if (found != written.end()) with(found->second);
            });
            moved[at(index)] = from != none || wanted(i);
            if (from == none) continue;
            if (i.fragment.micro >= 0 ? i.axis != none || multiplies(c, i) : stays_.count(i.op) > 0)
                stays_.insert(c.stream[at(from)].op);
            root[at(index)] = from;
            for_each_access(c, i, [&](const Operand& o, bool, bool writes) {
                if (writes) written.try_emplace(o.buffer, from);
            });
        }
        return moved;
    }

    void move(RankClass& c, const std::vector<char>& moved) const {
        const Fragments place(c);
        const auto size = static_cast<int>(c.stream.size());
        const int end = place.last + 1;
        std::vector<int> order;
        const auto add = [&](int from, int to, bool those) {
            for (int i = from; i < to; ++i)
                if ((moved[at(i)] != 0) == those) order.push_back(i);
        };
        add(0, end, false);
        const auto behind = static_cast<int>(order.size());
        add(0, end, true);
        const auto behind_end = static_cast<int>(order.size());
        add(end, size, false);
        if (behind == behind_end) return;
        std::vector<int> now(c.stream.size(), none);
        for (int i = 0; i < size; ++i) now[at(order[at(i)])] = i;
        std::vector<Instruction> stream;
        for (const int from : order) {
            stream.push_back(std::move(c.stream[at(from)]));
            std::vector<int>& waits = stream.back().waits;
            // Sums over data axes and over other axes commute, so a sum over data axes need not wait for those that
            // moved.
            if (from < end && !moved[at(from)]) std::erase_if(waits, [&](int wait) { return moved[at(wait)] != 0; });
            for (int& wait : waits) wait = now[at(wait)];
        }
        c.stream = std::move(stream);
        for (int i = behind; i < behind_end; ++i)
            if (late_.gradients && place.product != none && once(c.stream[at(i)]) && over_data(c.stream[at(i)]))
                add_wait(c.stream[at(i)], now[at(place.product)]);
        update_waits(c, behind, behind_end);
    }

    /// Makes the first kernel after the moved instructions wait for them, since it or a later kernel reads their sums.
    void update_waits(RankClass& c, int moved, int moved_end) const {
        const auto kernel = std::find_if(c.stream.begin() + moved_end, c.stream.end(),
                                         [](const Instruction& i) { return i.axis == none; });
        for (int i = moved; i < moved_end && kernel != c.stream.end(); ++i)
            if (once(c.stream[at(i)]) && !over_data(c.stream[at(i)])) add_wait(*kernel, i);
    }

    const AxisFlags& data_;
    const Late late_;
    std::set<OpId> stays_;
};

}  // namespace

void put_behind_fragments(Plan& plan, const AxisFlags& data, Late late) { Mover(data, late).run(plan); }

}  // namespace orrery
