#include "plan/repeat.h"

#include <climits>
#include <map>
#include <set>

namespace orrery {

int64_t issues(const RankClass& c) { return std::ssize(c.stream) + last_run(c) * c.repeat.length(); }

int64_t position_of(const RankClass& c, const Issued& issued) { return issued.index + issued.run * c.repeat.length(); }

Issued issued_at(const RankClass& c, int64_t position) {
    const Repeat& r = c.repeat;
    if (!repeats(c) || position < r.end) return {static_cast<int>(position), 0};
    const int64_t run = std::min((position - r.begin) / r.length(), last_run(c));
    return {static_cast<int>(position - run * r.length()), run};
}

Issued waited_for(const RankClass& c, const Issued& who, int wait) {
    if (!repeats(c) || wait < c.repeat.from()) return {wait, 0};
    return issued_at(c, position_of(c, {wait, who.run}));
}

int64_t stored_micros(const RankClass& c, const Mesh& mesh) {
    return mesh.microbatches() - last_run(c) * c.repeat.micros;
}

int64_t address(const RankClass& c, const Operand& operand, int64_t run) {
    const Buffer& buffer = c.buffers[operand.buffer];
    const int64_t later = run * c.repeat.micros;
    int64_t begin = buffer.offset;
    if (buffer.frames != none) {
        const Frames& frames = c.frames[buffer.frames];
        begin = frames.offset + frames.slot_of[buffer.micro + later] * frames.stride;
    }
    return begin + operand.offset + later * operand.step;
}

Fragment fragment_in_run(const RankClass& c, const Issued& issued) {
    Fragment fragment = c.stream[issued.index].fragment;
    if (fragment.micro >= 0) fragment.micro += issued.run * c.repeat.micros;
    return fragment;
}

Instruction in_run(const RankClass& c, const Issued& issued) {
    Instruction i = c.stream[issued.index];
    if (i.fragment.micro >= 0 && (i.opcode == Opcode::send || i.opcode == Opcode::receive))
        i.tag += issued.run * c.repeat.micros;
    i.fragment = fragment_in_run(c, issued);
    return i;
}

namespace {

/// One frame (of Frames) and when it is in use in run 0 of the repeated part, over all buffers in it.
struct Frame {
    int frames = none;
    int64_t micro = 0;
    int first = INT_MAX, last = none;
};

/// A one-to-one map from slots in one run to slots in another, by pool. `add` returns false for a contradiction.
class SlotMap {
public:
    explicit SlotMap(const RankClass& c) {
        for (const Frames& f : c.frames) {
            const size_t pool = f.pool;
            to_.resize(std::max(to_.size(), pool + 1));
            from_.resize(to_.size());
            to_[pool].assign(f.slots, none);
            from_[pool] = to_[pool];
        }
    }
    bool add(const Frames& f, int64_t micro, int64_t later) {
        const size_t pool = f.pool;
        const int slot = f.slot_of[micro], then = f.slot_of[micro + later];
        int &to = to_[pool][slot], &from = from_[pool][then];
        if ((to != none && to != then) || (from != none && from != slot)) return false;
        to = then;
        from = slot;
        return true;
    }
    void forget() {
        for (auto* all : {&to_, &from_})
            for (std::vector<int>& pool : *all) std::fill(pool.begin(), pool.end(), none);
    }
    std::vector<std::vector<int>> take() { return std::move(to_); }

private:
    std::vector<std::vector<int>> to_, from_;  ///< [pool][slot]: the slot that it maps to; that maps to it
};

/// The frames that the repeated part accesses, and those that were in their slots before.
std::vector<Frame> looped_frames(const RankClass& c) {
    int64_t micros = 0;
    for (const Buffer& b : c.buffers) micros = std::max(micros, b.micro + 1);
    std::vector<Frame> all(c.frames.size() * micros);
    for (const Buffer& b : c.buffers) {
        if (b.frames == none || b.first < 0) continue;
        Frame& frame = all[b.frames * micros + b.micro];
        frame.frames = b.frames;
        frame.micro = b.micro;
        frame.first = std::min(frame.first, b.first);
        frame.last = std::max(frame.last, b.last);
    }
    std::map<std::pair<int, int>, const Frame*> at_begin;
    std::set<std::pair<int, int>> alive, taken;
    std::vector<Frame> found;
    for (const Frame& frame : all) {
        if (frame.frames == none) continue;
        const Frames& f = c.frames[frame.frames];
        const std::pair<int, int> slot{f.pool, f.slot_of[frame.micro]};
        if (frame.last >= c.repeat.begin && frame.first < c.repeat.end) {
            found.push_back(frame);
            (frame.first < c.repeat.begin ? alive : taken).insert(slot);
        } else if (frame.first < c.repeat.begin) {
            const Frame*& known = at_begin[slot];
            if (!known || known->first < frame.first) known = &frame;
        }
    }
    for (const auto& [slot, frame] : at_begin)
        if (!alive.count(slot) && taken.count(slot)) found.push_back(*frame);
    return found;
}

}  // namespace

std::vector<std::vector<int>> slot_map(const RankClass& c, int64_t from, int64_t to) {
    SlotMap slots(c);
    const int64_t micros = c.repeat.micros;
    for (const Frame& frame : looped_frames(c))
        if (!slots.add(c.frames[frame.frames], frame.micro + from * micros, (to - from) * micros)) return {};
    return slots.take();
}

bool slots_turn(const RankClass& c) {
    const std::vector<Frame> looped = looped_frames(c);
    SlotMap slots(c);
    for (int64_t run = 1; run <= last_run(c); ++run) {
        slots.forget();
        for (const Frame& frame : looped)
            if (!slots.add(c.frames[frame.frames], frame.micro, run * c.repeat.micros)) return false;
    }
    return true;
}

Pools::Pools(const RankClass& c, const std::vector<std::vector<int>>& slots) {
    for (size_t p = 0; p < slots.size(); ++p)
        for (const Frames& f : c.frames) {
            if (f.pool != static_cast<int>(p)) continue;
            pools_.push_back(
                {f.offset, f.offset + f.stride * f.slots, f.stride, slots[p], std::vector<char>(f.slots, 0)});
            for (const int to : slots[p])
                if (to != none) pools_.back().used[to] = 1;
            break;
        }
    std::sort(pools_.begin(), pools_.end(), [](const Pool& a, const Pool& b) { return a.offset < b.offset; });
}

std::vector<int> last_in_frames(const RankClass& c, size_t queues) {
    std::vector<int> last(queues, none);
    for (int i = c.repeat.begin; i < c.repeat.end; ++i)
        for (const Operand& o : c.stream[i].operands)
            if (c.buffers[o.buffer].frames != none) last[c.stream[i].queue] = i;
    std::erase(last, none);
    return last;
}

namespace {

class Unroll {
public:
    Unroll(const Plan& plan, const RankClass& c) : plan_(plan), from_(c), to_(c) {
        to_.stream.clear();
        to_.repeat = {};
        to_.frames.clear();
        for (Buffer& b : to_.buffers) {
            b.frames = none;
            b.micro = -1;
        }
        std::erase_if(to_.per_rank, [&](const PerRank& p) { return plan.mesh.axis(p.axis).sequential; });
        for (const PerRank& p : c.per_rank)
            if (plan.mesh.axis(p.axis).sequential) by_micro_[p.kernel].push_back(p);
    }

    RankClass run() {
        for (int64_t at = 0; at < issues(from_); ++at) one(issued_at(from_, at));
        for (size_t b = 0; b < to_.buffers.size(); ++b)
            if (lives_.count(static_cast<int>(b)) == 0) stretch(to_.buffers[b]);
        std::stable_sort(to_.per_rank.begin(), to_.per_rank.end(),
                         [](const PerRank& a, const PerRank& b) { return a.kernel < b.kernel; });
        return std::move(to_);
    }

private:
    /// Changes the lifetime of a buffer with one copy for all runs to that in the unrolled stream.
    void stretch(Buffer& b) const {
        const auto behind = static_cast<int>(last_run(from_) * from_.repeat.length());
        if (b.first >= from_.repeat.end) b.first += behind;
        if (b.last >= from_.repeat.begin) b.last += behind;
    }

    void one(const Issued& issued) {
        Instruction i = in_run(from_, issued);
        for (int& wait : i.waits) wait = static_cast<int>(position_of(from_, waited_for(from_, issued, wait)));
        const int here = to_.stream.size();
        for (Operand& operand : i.operands) {
            operand.offset += issued.run * from_.repeat.micros * operand.step;
            operand.step = 0;
            operand.buffer = buffer(operand.buffer, issued.run, here);
        }
        if (i.workspace != none) i.workspace = buffer(i.workspace, issued.run, here);
        if (i.opcode == Opcode::kernel) i.kernel = kernel(i.kernel, i.fragment.micro);
        to_.stream.push_back(std::move(i));
    }

    /// The copy of a buffer for a run. Only buffers in frames or inside the repeated part have a copy per run.
    int buffer(int id, int64_t run, int here) {
        const Buffer& b = from_.buffers[id];
        const bool inside = b.first >= from_.repeat.begin && b.last < from_.repeat.end;
        int mine = id;
        if (run > 0 && (b.frames != none || inside)) {
            const auto [known, fresh] = copies_.try_emplace({id, run}, to_.buffers.size());
            mine = known->second;
            if (fresh) {
                to_.buffers.push_back(b);
                to_.buffers.back().offset = address(from_, {id, 0, {}, none, 0}, run);
                to_.buffers.back().frames = none;
                to_.buffers.back().micro = -1;
            }
        }
        if (mine == id && b.frames == none && !inside) return mine;
        Buffer& life = to_.buffers[mine];
        if (lives_.emplace(mine, true).second) life.first = here;
        life.last = here;
        return mine;
    }

    int kernel(int index, int64_t micro) {
        const auto patches = by_micro_.find(index);
        if (patches == by_micro_.end()) return index;
        const auto [known, fresh] = kernels_.try_emplace({index, micro}, to_.kernels.size());
        if (!fresh) return known->second;
        RankClass alone;
        alone.kernels = {from_.kernels[index]};
        alone.per_rank = patches->second;
        for (PerRank& p : alone.per_rank) p.kernel = 0;
        to_.kernels.push_back(kernel_for(alone, 0, plan_.mesh, from_.ranks.front(), micro));
        for (const PerRank& p : from_.per_rank)
            if (p.kernel == index && !plan_.mesh.axis(p.axis).sequential) {
                to_.per_rank.push_back(p);
                to_.per_rank.back().kernel = known->second;
            }
        return known->second;
    }

    const Plan& plan_;
    const RankClass& from_;
    RankClass to_;
    std::map<std::pair<int, int64_t>, int> copies_;
    std::map<int, bool> lives_;
    std::map<int, std::vector<PerRank>> by_micro_;
    std::map<std::pair<int, int64_t>, int> kernels_;
};

}  // namespace

Plan unrolled(const Plan& plan) {
    Plan all = plan;
    for (RankClass& c : all.classes)
        if (repeats(c)) c = Unroll(plan, plan.classes[&c - all.classes.data()]).run();
    return all;
}

}  // namespace orrery
