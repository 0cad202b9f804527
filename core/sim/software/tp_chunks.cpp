#include "sim/software/tp_chunks.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

#include "ir/op.h"
#include "plan/access.h"
#include "plan/print.h"
#include "plan/repeat.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

/// Max distance, in instructions, over which a matmul, transpose or collective is moved next to the one it is cut with.
constexpr int reach = 64;

int64_t piece(int64_t size, int64_t chunks, int64_t chunk) {
    return size * (chunk + 1) / chunks - size * chunk / chunks;
}

bool same_place(const Operand& a, const Operand& b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.type.bytes() == b.type.bytes();
}

/// Whether a kernel is a matrix product (one or fused) whose rows are the leading dims of its first operand and of all
/// results. False for weight-gradient matmuls.
bool is_product(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    if (!def || spec.inputs.size() < 2 || spec.inputs[0].shape.size() < 2 || spec.inputs[1].shape.size() != 2)
        return false;
    return !spec.attributes.flag("trans_a") && def->work == Work::product;
}

bool is_transpose(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    return def && def->moves == Moves::permutes && spec.inputs[0].shape.size() >= 2;
}

size_t largest_leading(const Shape& shape) {
    return static_cast<size_t>(std::max_element(shape.begin(), shape.end() - 1) - shape.begin());
}

/// Returns the dim along which each operand is cut into chunks, inputs first; none: each chunk uses the whole operand.
std::vector<int> cut_dims(const KernelSpec& spec) {
    std::vector<int> dims(spec.inputs.size() + spec.outputs.size(), none);
    const Shape& rows = spec.inputs[0].shape;
    const auto dim = static_cast<int>(largest_leading(rows));
    if (is_transpose(spec)) {
        const std::vector<int64_t> perm = spec.attributes.integers("perm");
        dims[0] = dim;
        dims[1] = static_cast<int>(std::find(perm.begin(), perm.end(), dim) - perm.begin());
        return dims;
    }
    for (size_t i = 0; i < dims.size(); ++i) {
        const Shape& shape = (i < spec.inputs.size() ? spec.inputs[i] : spec.outputs[i - spec.inputs.size()]).shape;
        const bool has_rows = shape.size() == rows.size() && std::equal(shape.begin(), shape.end() - 1, rows.begin());
        if (i != 1 && has_rows) dims[i] = dim;
    }
    return dims;
}

int64_t collectives_of(const RankClass& c, AxisId axis) {
    int64_t count = 0;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (is_collective(c.stream[i].opcode) && c.stream[i].axis == axis) count += times_of(c, i);
    return count;
}

/// A collective and the kernels that are cut into chunks with it, as indices in the stream.
struct Cut {
    int collective = none;
    bool gathers = false;      ///< whether the kernels follow the collective, rather than precede it
    std::vector<int> kernels;  ///< in the order of execution within a chunk
    bool has(int i) const { return i == collective || std::find(kernels.begin(), kernels.end(), i) != kernels.end(); }
};

class Chunker {
public:
    Chunker(const RankClass& c, AxisId axis, int64_t members, int64_t chunks)
        : from_(c), to_(c), axis_(axis), members_(members), chunks_(chunks) {
        writers_.resize(c.buffers.size());
        readers_.resize(c.buffers.size());
        for (int i = 0; i < size(); ++i)
            for_each_access(c, stream(i), [&](const Operand& o, bool reads, bool writes) {
                if (reads) readers_[at(o.buffer)].push_back(i);
                if (writes) writers_[at(o.buffer)].push_back(i);
            });
    }

    RankClass run() {
        taken_.assign(from_.stream.size(), 0);
        for (int i = 0; i < size(); ++i)
            if (stream(i).opcode == Opcode::all_gather && is_ours(i)) keep(behind_gather(i));
        for (int i = 0; i < size(); ++i)
            if ((stream(i).opcode == Opcode::reduce_scatter || stream(i).opcode == Opcode::all_reduce) && is_ours(i))
                keep(before_sum(i));
        drop_what_does_not_repeat();
        if (!cuts_.empty()) emit();
        return std::move(to_);
    }

    std::vector<char> take_chunks() { return std::move(chunks_of_); }

    int64_t cut() const {
        int64_t count = 0;
        for (const Cut& one : cuts_) count += times_of(from_, at(one.collective));
        return count;
    }

private:
    int size() const { return static_cast<int>(from_.stream.size()); }
    const Instruction& stream(int index) const { return from_.stream[at(index)]; }
    const KernelSpec& spec(int index) const { return from_.kernels[at(stream(index).kernel)]; }
    bool is_kernel(int index) const { return stream(index).opcode == Opcode::kernel; }

    bool is_ours(int index) const {
        const Instruction& i = stream(index);
        return i.axis == axis_ && i.operands.size() == 2 &&
               std::min(i.operands[0].type.count(), i.operands[1].type.count()) >= chunks_;
    }
    bool can_cut(int index) const {
        if (!is_product(spec(index)) && !is_transpose(spec(index))) return false;
        const Shape& shape = spec(index).inputs[0].shape;
        return shape[largest_leading(shape)] >= chunks_;
    }

    /// Returns the part of the stream that contains an instruction: 2 for the repeated stretch, 1 for the iteration
    /// before that, 0 for what precedes both, 3 for what follows.
    int part(int index) const {
        const Repeat& r = from_.repeat;
        return !repeats(from_) ? 0 : (index >= r.from()) + (index >= r.begin) + (index >= r.end);
    }
    bool together(int a, int b) const { return part(a) == part(b) && stream(a).fragment == stream(b).fragment; }

    /// Calls `use` for each instruction that reads `made` after `writer`, until another instruction writes it.
    template <class Use>
    void for_each_reader(int writer, const Operand& made, Use&& use) const {
        const std::vector<int>&all = readers_[at(made.buffer)], &writers = writers_[at(made.buffer)];
        const auto next = std::upper_bound(writers.begin(), writers.end(), writer);
        for (auto r = std::upper_bound(all.begin(), all.end(), writer); r != all.end(); ++r) {
            if (next != writers.end() && *r > *next) return;
            if (!use(*r)) return;
        }
    }

    Cut behind_gather(int collective) const {
        Cut cut{collective, true, {}};
        std::vector<int> found;
        const auto look = [&](int writer, const Operand& made, auto&& again) -> void {
            for_each_reader(writer, made, [&](int i) {
                if (!together(collective, i) || (!found.empty() && i - found.front() > reach)) return false;
                if (!is_kernel(i) || !can_cut(i) || taken_[at(i)] || !same_place(stream(i).operands[0], made))
                    return true;
                if (is_product(spec(i))) found.push_back(i);
                if (is_transpose(spec(i)) && found.empty()) {
                    found.push_back(i);
                    again(i, stream(i).operands[1], again);
                    if (found.size() == 1) found.clear();
                }
                return true;
            });
        };
        look(collective, stream(collective).operands[1], look);
        std::sort(found.begin(), found.end());
        for (const int i : found) {
            if (!cut.kernels.empty() && !can_move(i, cut.kernels.front(), cut)) break;
            cut.kernels.push_back(i);
        }
        if (!cut.kernels.empty() && is_transpose(spec(cut.kernels.back()))) cut.kernels.clear();
        return cut;
    }

    Cut before_sum(int collective) const {
        Cut cut{collective, false, {}};
        Operand read = stream(collective).operands[0];
        for (int reader = collective;;) {
            const std::vector<int>& writers = writers_[at(read.buffer)];
            const auto next = std::lower_bound(writers.begin(), writers.end(), reader);
            const int writer = next == writers.begin() ? none : *std::prev(next);
            if (writer == none || !is_kernel(writer) || taken_[at(writer)] || !together(collective, writer) ||
                collective - writer > reach || !can_cut(writer) || !makes(writer, read))
                return {};
            cut.kernels.insert(cut.kernels.begin(), writer);
            if (is_product(spec(writer))) break;
            read = stream(writer).operands[0];
            reader = writer;
        }
        const auto moves = [&](int i) { return can_move(i, cut.kernels.front(), cut); };
        return std::all_of(cut.kernels.begin() + 1, cut.kernels.end(), moves) && moves(collective) ? cut : Cut{};
    }

    bool makes(int writer, const Operand& read) const {
        const std::vector<Operand>& operands = stream(writer).operands;
        return std::any_of(operands.begin() + static_cast<std::ptrdiff_t>(spec(writer).inputs.size()), operands.end(),
                           [&](const Operand& o) { return same_place(o, read); });
    }

    /// Whether an instruction may move to `to`: no instruction in between writes what it accesses or accesses what it
    /// writes. Messages and collectives of one queue never pass each other, since all members need the same order.
    bool can_move(int index, int to, const Cut& cut) const {
        std::set<int> read, written;
        for_each_access(from_, stream(index), [&](const Operand& o, bool reads, bool writes) {
            if (reads) read.insert(o.buffer);
            if (writes) written.insert(o.buffer);
        });
        for (int i = to + 1; i < index; ++i) {
            if (cut.has(i)) continue;
            const Instruction& passed = stream(i);
            if (is_message(passed.opcode) || (passed.axis != none && passed.queue == stream(index).queue)) return false;
            bool apart = true;
            for_each_access(from_, passed, [&](const Operand& o, bool, bool writes) {
                apart = apart && !written.count(o.buffer) && !(writes && read.count(o.buffer));
            });
            if (!apart) return false;
        }
        return true;
    }

    void keep(Cut cut) {
        if (cut.collective == none || cut.kernels.empty()) return;
        taken_[at(cut.collective)] = 1;
        for (const int i : cut.kernels) taken_[at(i)] = 1;
        cuts_.push_back(std::move(cut));
    }

    /// Drops cuts that are not the same in the repeated stretch and the iteration before it, since plans count waits
    /// across repetitions by distance.
    void drop_what_does_not_repeat() {
        if (!repeats(from_)) return;
        std::map<int, std::vector<int>> all;
        for (const Cut& cut : cuts_) all[cut.collective] = cut.kernels;
        std::erase_if(cuts_, [&](const Cut& cut) {
            const int where = part(cut.collective), by = from_.repeat.length() * (where == 1 ? 1 : -1);
            if (where != 1 && where != 2) return false;
            std::vector<int> kernels = cut.kernels;
            for (int& i : kernels) i += by;
            const auto like = all.find(cut.collective + by);
            return like == all.end() || like->second != kernels;
        });
    }

    void emit() {
        std::map<int, const Cut*> of;
        for (const Cut& cut : cuts_) {
            of[cut.collective] = &cut;
            for (const int i : cut.kernels) of[i] = &cut;
        }
        to_.stream.clear();
        first_.assign(from_.stream.size(), none);
        last_ = first_;
        for (int i = 0; i < size(); ++i) {
            const Cut* cut = of.count(i) ? of.at(i) : nullptr;
            if (!cut) add(i, stream(i), mapped(stream(i).waits, i));
            if (cut && cut->gathers && i == cut->collective) add_gather(*cut);
            if (cut && i == cut->kernels.front()) add_kernels(*cut);
        }
        renumber();
    }

    int add(int from, Instruction instruction, std::vector<int> waits) {
        const auto here = static_cast<int>(to_.stream.size());
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
        instruction.waits = std::move(waits);
        to_.stream.push_back(std::move(instruction));
        chunks_of_.push_back(0);
        if (first_[at(from)] == none) first_[at(from)] = here;
        last_[at(from)] = here;
        return here;
    }

    /// Translates waits for instructions before `place` to indices in the new stream. Others are unrelated (can_move).
    std::vector<int> mapped(const std::vector<int>& waits, int place) const {
        std::vector<int> now;
        for (const int wait : waits)
            if (wait < place) now.push_back(last_[at(wait)]);
        return now;
    }

    /// Returns the waits of an instruction that moves to `place`, and of those on its queue that it passes, since it
    /// inherits their waits.
    std::vector<int> waits_at(int index, int place) const {
        std::vector<int> now;
        for (int i = place; i <= index; ++i) {
            if (stream(i).queue != stream(index).queue) continue;
            const std::vector<int> more = mapped(stream(i).waits, place);
            now.insert(now.end(), more.begin(), more.end());
        }
        return now;
    }

    void add_gather(const Cut& cut) {
        for (int64_t chunk = 0; chunk < chunks_; ++chunk)
            add_chunk(cut.collective, chunk,
                      chunk == 0 ? mapped(stream(cut.collective).waits, cut.collective) : std::vector<int>{});
    }

    void add_chunk(int of, int64_t chunk, std::vector<int> waits) {
        add(of, collective(of, chunk), std::move(waits));
        chunks_of_.back() = 1;
    }

    void add_kernels(const Cut& cut) {
        const int place = cut.kernels.front();
        const int gathered = cut.gathers ? first_[at(cut.collective)] : none;
        for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
            int done = none;
            for (const int i : cut.kernels) {
                std::vector<int> waits = chunk == 0 ? waits_at(i, place) : std::vector<int>{};
                if (cut.gathers) {
                    std::erase(waits, last_[at(cut.collective)]);
                    if (i == place) waits.push_back(gathered + static_cast<int>(chunk));
                }
                done = add(i, kernel(i, chunk), std::move(waits));
            }
            if (cut.gathers) continue;
            std::vector<int> waits = chunk == 0 ? waits_at(cut.collective, place) : std::vector<int>{};
            waits.push_back(done);
            add_chunk(cut.collective, chunk, std::move(waits));
        }
    }

    /// Returns one chunk of a collective, as flat tensors. With as many chunks as members, one chunk is the rank's own
    /// part and sends nothing: the first of a gather, the last of a scatter.
    Instruction collective(int index, int64_t chunk) const {
        Instruction one = stream(index);
        const int64_t a = one.operands[0].type.count(), b = one.operands[1].type.count();
        const bool exchanged = chunks_ == members_ && one.opcode != Opcode::all_reduce;
        const int64_t own = one.opcode == Opcode::all_gather ? 0 : chunks_ - 1;
        const auto part = [&](int64_t size) {
            if (!exchanged) return piece(size, chunks_, chunk);
            return chunk == own ? 0 : piece(size, chunks_ - 1, chunk < own ? chunk : chunk - (own == 0 ? 1 : 0));
        };
        for (Operand& o : one.operands) o.type.shape = {part(std::min(a, b)) * (o.type.count() / std::min(a, b))};
        return one;
    }

    Instruction kernel(int index, int64_t chunk) {
        Instruction one = stream(index);
        const std::vector<int> dims = cut_dims(spec(index));
        const auto cut = [&](TensorType& type, int dim) {
            if (dim != none) type.shape[at(dim)] = piece(type.shape[at(dim)], chunks_, chunk);
        };
        for (size_t o = 0; o < one.operands.size(); ++o) cut(one.operands[o].type, dims[o]);
        KernelSpec part = spec(index);
        for (size_t o = 0; o < part.inputs.size(); ++o) cut(part.inputs[o], dims[o]);
        for (size_t o = 0; o < part.outputs.size(); ++o) cut(part.outputs[o], dims[part.inputs.size() + o]);
        const auto [known, fresh] =
            kernels_.try_emplace({one.kernel, part.inputs[0].shape}, static_cast<int>(to_.kernels.size()));
        if (fresh) {
            to_.kernels.push_back(std::move(part));
            for (PerRank patch : from_.per_rank)
                if (patch.kernel == one.kernel) {
                    patch.kernel = known->second;
                    to_.per_rank.push_back(patch);
                }
        }
        one.kernel = known->second;
        return one;
    }

    void renumber() {
        first_.push_back(static_cast<int>(to_.stream.size()));
        const auto now = [&](int index) { return first_[at(index)]; };
        if (repeats(from_)) {
            Repeat& r = to_.repeat;
            r.begin = now(from_.repeat.begin);
            r.end = now(from_.repeat.end);
            assert(r.from() == now(from_.repeat.from()));
        }
        for (Buffer& b : to_.buffers) {
            if (b.first >= 0 && b.first < size()) b.first = first_[at(b.first)];
            if (b.last >= 0 && b.last < size()) b.last = last_[at(b.last)];
        }
        for (int i = 0; i < static_cast<int>(to_.stream.size()); ++i)
            for_each_access(to_, to_.stream[at(i)], [&](const Operand& o, bool, bool) {
                Buffer& b = to_.buffers[at(o.buffer)];
                b.first = std::min(b.first, i);
                b.last = std::max(b.last, i);
            });
    }

    const RankClass& from_;
    RankClass to_;
    const AxisId axis_;
    const int64_t members_;
    const int64_t chunks_;
    std::vector<std::vector<int>> writers_, readers_;  ///< indices of instructions, by buffer that they write or read
    std::vector<char> taken_;
    std::vector<Cut> cuts_;
    std::vector<int> first_, last_;  ///< for each original instruction: its first and last chunk in the new plan
    std::vector<char> chunks_of_;
    std::map<std::pair<int, Shape>, int> kernels_;
};

}  // namespace

TpChunked tp_chunked(const Plan& plan, AxisId axis, int64_t chunks) {
    TpChunked made{plan, 0, 0, std::vector<std::vector<char>>(plan.classes.size())};
    for (RankClass& c : made.plan.classes) {
        made.all += collectives_of(c, axis);
        if (chunks <= 1) continue;
        const auto k = static_cast<size_t>(&c - made.plan.classes.data());
        Chunker chunker(plan.classes[k], axis, plan.mesh.size(axis), chunks);
        c = chunker.run();
        made.chunks[k] = chunker.take_chunks();
        made.cut += chunker.cut();
    }
    if (made.cut > 0) made.plan.fingerprint = for_prices_alone;
    return made;
}

}  // namespace orrery
