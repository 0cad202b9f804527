#include "plan/lower/insert_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/build.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "layout/stages.h"
#include "plan/host_places.h"

namespace orrery::lowering {

namespace {

using Kind = Placement::Kind;
constexpr int everywhere = none;

class Spreading {
public:
    Spreading(Program& program, const Mesh& mesh, StagePlacement& out)
        : program_(program), mesh_(mesh), out_(out), micro_(mesh.sequential_axis().value_or(none)) {
        grow();
    }

    void run() {
        find_homes();
        find_readers();
        std::vector<Op> ops = std::move(program_.ops);
        program_.ops = ops;  // error messages name the old ops
        for (size_t i = 0; i < ops.size(); ++i) visit(ops[i], i);
        find_ends();
        finish();
    }

private:
    struct Entry {
        int place;
        int old;  ///< index of the op before this pass; none: the pass made it
        Op op;
    };

    void grow() {
        out_.at.resize(program_.values.size(), everywhere);
        stage_.resize(program_.values.size(), none);
        late_.resize(program_.values.size(), 0);
    }
    int at(ValueId id) const { return out_.at[id]; }
    int stage(ValueId id) const { return stage_[id]; }
    int rank(int stage) const { return out_.rank_of.at(stage); }
    void lives(ValueId id, int stage) {
        stage_[id] = stage;
        out_.at[id] = stage == none ? everywhere : rank(stage);
    }
    Placement over_micro(ValueId id) const {
        return micro_ == none ? Placement::replicated() : program_.value(id).layout.at(micro_);
    }
    bool scalar(ValueId id) const { return program_.value(id).type.count() == 1; }
    /// Whether a value is f32, small, and whole on each rank of its stage, so that it can be shared by a stage_sum.
    bool small(ValueId id) const {
        const Value& value = program_.value(id);
        const auto& splits = value.layout.splits();
        return value.type.dtype == DType::f32 && value.type.bytes() <= small_result_bytes &&
               std::all_of(splits.begin(), splits.end(), [](const auto& axes) { return axes.empty(); });
    }

    void find_homes() {
        const std::vector<int> homes = home_stages(program_);
        for (size_t id = 0; id < homes.size(); ++id)
            if (homes[id] != none) lives(id, homes[id]);
    }

    void find_readers() {
        readers_.assign(program_.values.size(), 0);
        for (const Op& op : program_.ops)
            for (ValueId input : op.inputs) ++readers_[input];
        for (const Result& result : program_.results) readers_[result.value] += 2;
        for (const Update& update : program_.updates) readers_[update.value] += 2;
        inner_.assign(program_.ops.size(), 0);
        for (const Op& op : program_.ops) {
            if (!sums(op)) continue;
            for (ValueId input : op.inputs) {
                const Value& v = program_.value(input);
                if (v.op != none && sums(program_.op(v.op)) && readers_[input] == 1 &&
                    v.layout == program_.value(op.outputs[0]).layout)
                    inner_[v.op] = 1;
            }
        }
    }
    bool sums(const Op& op) const {
        return op.phase == Phase::update && is_sum(op_def(op.kind)) && scalar(op.outputs[0]) && scalar(op.inputs[0]) &&
               scalar(op.inputs[1]);
    }

    void visit(Op op, int index) {
        if (op.phase == Phase::update) {
            if (inner_[index]) return;  // the op is part of a larger sum, which adds its terms
            if (sums(op)) return sum(std::move(op), index);
            return update(std::move(op), index);
        }
        const auto varies = [&](ValueId id) { return over_micro(id).kind != Kind::replicate; };
        const bool free = std::all_of(op.inputs.begin(), op.inputs.end(),
                                      [&](ValueId id) { return at(id) == everywhere && !varies(id); }) &&
                          std::none_of(op.outputs.begin(), op.outputs.end(), varies);
        if (free) op.stage = none;
        if (!free && op.stage == none) throw Error(op.origin, describe(program_, op) + " has no pipeline stage");
        put(std::move(op), index);
    }

    /// Transfers the inputs of an op to its stage, then adds the op. Its outputs are stored at that stage.
    void put(Op op, int index) {
        bool late = false;
        for (ValueId& input : op.inputs) {
            if (op.stage != none) input = reach(input, op, op.stage);
            late = late || late_[input] != 0;
        }
        for (ValueId output : op.outputs) {
            lives(output, op.stage);
            // An op that is linear in a value that is complete only after the loop also runs after the loop.
            if (late && over_micro(output).kind == Kind::partial)
                program_.value(output).layout.set(micro_, Placement::replicated());
            late_[output] = late;
        }
        entries_.push_back({2 * index, index, std::move(op)});
    }

    /// Adds an op of the update at the stage of the param, or of the largest tensor, that it reads. Shares scalars of
    /// other stages.
    void update(Op op, int index) {
        std::vector<ValueId> wide, narrow;
        for (ValueId input : op.inputs)
            if (at(input) != everywhere) (scalar(input) ? narrow : wide).push_back(input);
        ValueId owner = none;
        for (ValueId input : op.inputs)
            if (owner == none && program_.value(input).role == Role::param && at(input) != everywhere) owner = input;
        const auto fewer = [&](ValueId a, ValueId b) {
            return program_.value(a).type.count() < program_.value(b).type.count();
        };
        if (owner == none && !wide.empty()) owner = *std::ranges::max_element(wide, fewer);
        const auto same = [&](ValueId id) { return at(id) == at(narrow[0]); };
        if (owner == none && !narrow.empty() && std::all_of(narrow.begin(), narrow.end(), same)) owner = narrow[0];
        op.stage = owner == none ? none : stage(owner);
        for (ValueId& input : op.inputs) {
            const bool away = at(input) != everywhere && (op.stage == none || at(input) != rank(op.stage));
            if (away && scalar(input)) input = share(input);
        }
        put(std::move(op), index);
    }

    /// Splits a sum with terms on several ranks: each rank adds its own, and a stage_sum adds the totals.
    void sum(Op root, int index) {
        std::vector<ValueId> leaves;
        std::vector<OpId> inner;
        gather(root, leaves, inner);
        std::map<int, std::vector<ValueId>> by_rank;
        for (ValueId leaf : leaves) by_rank[at(leaf)].push_back(leaf);
        const bool shared = by_rank.count(everywhere) != 0;
        if (by_rank.size() - (shared ? 1 : 0) < 2) {
            std::sort(inner.begin(), inner.end());
            for (OpId id : inner) update(program_.op(id), id);
            return update(std::move(root), index);
        }
        if (shared) {  // only one rank adds the terms that all ranks have
            const std::vector<ValueId> everyones = std::move(by_rank[everywhere]);
            by_rank.erase(everywhere);
            auto& first = by_rank.begin()->second;
            first.insert(first.end(), everyones.begin(), everyones.end());
        }
        std::map<int, ValueId> parts;
        for (const auto& [rank, own] : by_rank) {
            ValueId total = own[0];
            for (size_t i = 1; i < own.size(); ++i) {
                Op add = root;
                add.inputs = {total, own[i]};
                add.stage = stage(own[0]);
                total = make(root.outputs[0]);
                add.outputs = {total};
                lives(total, add.stage);
                entries_.push_back({2 * index, none, std::move(add)});
            }
            parts[rank] = total;
        }
        add_over_stages(parts, root.outputs[0], root, 2 * index, index);
    }

    void gather(const Op& op, std::vector<ValueId>& leaves, std::vector<OpId>& inner) const {
        for (ValueId input : op.inputs) {
            const OpId maker = program_.value(input).op;
            if (maker != none && inner_[maker]) {
                inner.push_back(maker);
                gather(program_.op(maker), leaves, inner);
            } else {
                leaves.push_back(input);
            }
        }
    }

    /// Adds a stage_sum of `parts` (by pipeline rank); other ranks contribute zero. `like`: gives origin and scope.
    void add_over_stages(const std::map<int, ValueId>& parts, ValueId total, const Op& like, int place, int old) {
        Op op = like;
        op.kind = "stage_sum";
        op.phase = Phase::update;
        op.forward = none;
        op.stage = none;
        op.attributes = {{"axis", mesh_.axis(out_.axis).name}};
        op.attributes.set("cause", std::string("every stage needs it"));
        op.inputs.clear();
        ValueId zero = none;
        for (int r = 0; r < out_.ranks(); ++r) {
            const auto part = parts.find(r);
            if (part == parts.end() && zero == none) zero = make_zero(total, op, place);
            op.inputs.push_back(part == parts.end() ? zero : part->second);
        }
        op.outputs = {total};
        lives(total, none);
        entries_.push_back({place, old, std::move(op)});
    }

    ValueId make_zero(ValueId like, const Op& reader, int place) {
        const ValueId zero = make(like);
        Op full = reader;
        full.kind = "full";
        const TensorType& type = program_.value(like).type;
        full.attributes = {{"shape", type.shape}, {"value", 0.0}, {"dtype", std::string(name_of(type.dtype))}};
        full.inputs.clear();
        full.outputs = {zero};
        entries_.push_back({place, none, std::move(full)});
        return zero;
    }

    ValueId make(ValueId like) {
        Value value = program_.value(like);
        value.name.clear();
        value.role = Role::temporary;
        value.init = {};
        value.of = none;
        program_.values.push_back(std::move(value));
        grow();
        return std::ssize(program_.values) - 1;
    }

    /// Makes a small value of one rank available on all ranks, and returns the value there.
    ValueId share(ValueId id) {
        const auto known = shared_.find(id);
        if (known != shared_.end()) return known->second;
        const ValueId total = make(id);
        if (over_micro(total).kind == Kind::partial) program_.value(total).layout.set(micro_, Placement::replicated());
        late_[total] = 1;
        const OpId maker = program_.value(id).op;
        Op like;
        if (maker != none) like = program_.op(maker);
        const int rank = at(id);
        shared_[id] = total;
        add_over_stages({{rank, id}}, total, like, maker == none ? -1 : 2 * maker + 1, none);
        return total;
    }

    /// The value that an op of stage `to` reads in place of `id`: a transferred copy if `id` is on another rank.
    ValueId reach(ValueId id, const Op& reader, int to) {
        if (at(id) == everywhere || at(id) == rank(to)) return id;
        const auto known = transfers_.find({id, rank(to)});
        if (known != transfers_.end()) return known->second;
        const OpId maker = program_.value(id).op;
        const bool contribution = over_micro(id).kind == Kind::partial;
        refuse_against(id, reader, to, maker == none || contribution);
        const ValueId copy = make(id);
        if (contribution) program_.value(copy).layout.set(micro_, Placement::replicated());
        late_[copy] = contribution || late_[id];
        Op op;
        if (maker != none) op = program_.op(maker);
        if (maker == none) op.origin = program_.value(id).origin;
        op.kind = "transfer";
        op.stage = stage(id);
        op.attributes = {{"axis", mesh_.axis(out_.axis).name}, {"to", int64_t{to}}};
        op.attributes.set("cause", fmt::format("for {} on stage {}", reader.kind, to));
        op.inputs = {id};
        op.outputs = {copy};
        lives(copy, to);
        transfers_[{id, rank(to)}] = copy;
        entries_.push_back({maker == none ? -1 : 2 * maker + 1, none, std::move(op)});
        return copy;
    }

    /// Throws Error if, inside the loop, an activation would flow to an earlier stage or a gradient to a later one.
    void refuse_against(ValueId id, const Op& reader, int to, bool once_a_step) const {
        if (once_a_step || late_[id]) return;
        const Op& maker = program_.op(program_.value(id).op);
        const bool against =
            (maker.phase == Phase::forward && to < stage(id)) || (maker.phase == Phase::backward && to > stage(id));
        if (!against) return;
        throw Error(reader.origin, fmt::format("{} on stage {} reads {} of stage {}, against the order of the {} pass; "
                                               "give scopes stages in the order in which they run",
                                               describe(program_, reader), to, describe(program_, id), stage(id),
                                               maker.phase == Phase::forward ? "forward" : "backward"));
    }

    /// Shares small results, which the host reads on every rank. Moves updates to the stage of their param or state.
    void find_ends() {
        for (Result& result : program_.results)
            if (at(result.value) != everywhere && (scalar(result.value) || small(result.value)))
                result.value = share(result.value);
        for (Update& update : program_.updates) {
            if (at(update.value) == everywhere || at(update.value) == at(update.target)) continue;
            Op reader;
            reader.kind = "update";
            update.value = reach(update.value, reader, stage(update.target));
        }
    }

    void finish() {
        std::stable_sort(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.place < b.place; });
        std::vector<OpId> moved(program_.ops.size(), none);
        for (size_t i = 0; i < entries_.size(); ++i)
            if (entries_[i].old != none) moved[entries_[i].old] = i;
        for (Value& value : program_.values) value.op = none;
        program_.ops.clear();
        for (Entry& entry : entries_) program_.ops.push_back(std::move(entry.op));
        relink(program_, moved);
    }

    Program& program_;
    const Mesh& mesh_;
    StagePlacement& out_;
    const AxisId micro_;
    std::vector<int> stage_;
    std::vector<char> late_;    ///< by value: whether it is complete only after the loop
    std::vector<int> readers_;  ///< by value: number of readers; results and updates count twice
    std::vector<char> inner_;
    std::map<std::pair<ValueId, int>, ValueId> transfers_;
    std::map<ValueId, ValueId> shared_;
    std::vector<Entry> entries_;
};

}  // namespace

StagePlacement insert_transfers(Program& program, const Mesh& mesh, const Schedule& schedule) {
    StagePlacement out;
    const int stages = stage_count(program, mesh);
    if (stages == 1) {
        out.at.assign(program.values.size(), none);
        return out;
    }
    out.axis = *mesh.find(program.pipeline().axis);
    out.rank_of.assign(stages, none);
    for (int rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
        out.stages.push_back(schedule.stages_of(rank));
        for (int stage : out.stages.back()) out.rank_of.at(stage) = rank;
    }
    Spreading(program, mesh, out).run();
    return out;
}

}  // namespace orrery::lowering
