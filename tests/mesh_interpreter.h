// Evaluates a propagated program on all ranks of a mesh, and all micro-batches, with exact collectives, and compares
// every value with the one-device evaluation through its layout: the proof of factor rules and propagation.
#pragma once
#include <catch2/catch.hpp>
#include <set>

#include "interpreter.h"
#include "layout/shards.h"

namespace orrery::test {

class MeshInterpreter {
public:
    MeshInterpreter(const Program& propagated, const Mesh& mesh, const Fill& fill)
        : program_(propagated), mesh_(mesh), ranks_(mesh.ranks()), micros_(mesh.microbatches()) {
        local_.resize(static_cast<size_t>(ranks_ * micros_));
        for (auto& values : local_) values.resize(program_.values.size());
        late_.resize(program_.values.size(), false);
        of_.resize(program_.values.size());
        for (size_t id = 0; id < of_.size(); ++id) of_[id] = static_cast<ValueId>(id);
        for (size_t id = 0; id < of_.size(); ++id) {
            const Value& value = program_.values[id];
            if (value.role == Role::temporary) continue;
            const Array whole = fill(value, static_cast<ValueId>(id));
            each([&](int64_t rank, int64_t micro) {
                at(static_cast<ValueId>(id), rank, micro) = cut(whole, value.layout, rank, micro);
            });
        }
        for (const Op& op : program_.ops) run(op);
    }

    /// What one rank holds of a value, in one micro-batch (0 for values that are not split over micro-batches).
    const Array& local(ValueId id, int64_t rank, int64_t micro = 0) const {
        return local_[static_cast<size_t>(rank * micros_ + micro)][static_cast<size_t>(id)];
    }
    /// The value of the annotated program that this one is a copy of.
    ValueId copy_of(ValueId id) const { return of_[static_cast<size_t>(id)]; }

    /// Checks every value that has a counterpart in the one-device evaluation, `except` these.
    void compare(const std::vector<Array>& expected, const std::set<ValueId>& except = {}) const {
        for (size_t id = 0; id < program_.values.size(); ++id) {
            const auto original = static_cast<size_t>(of_[id]);
            if (original >= expected.size() || expected[original].data.empty()) continue;
            if (except.count(of_[id]) != 0) continue;
            INFO("%" << id << " " << program_.values[id].name << " of %" << original << " lies "
                     << program_.values[id].layout.text(mesh_) << " on " << mesh_.text());
            each([&](int64_t rank, int64_t micro) {
                const Array have = reduced(static_cast<ValueId>(id), rank, micro);
                const Array want = cut(expected[original], program_.values[id].layout, rank, micro);
                CHECK(difference(have, want) == "");
            });
        }
    }

    /// "" when equal up to rounding, else the first place that differs.
    static std::string difference(const Array& a, const Array& b) {
        if (a.type.shape != b.type.shape) return text_of(a.type.shape) + " is not " + text_of(b.type.shape);
        if (a.type.dtype != DType::f64) return a.data == b.data ? "" : "integers differ";
        for (int64_t i = 0; i < a.type.count(); ++i) {
            const double x = a.f64()[i];
            const double y = b.f64()[i];
            if (x == y || (std::isnan(x) && std::isnan(y))) continue;
            if (!(std::abs(x - y) <= 1e-9 * (1 + std::abs(y))))
                return "element " + std::to_string(i) + ": " + std::to_string(x) + " is not " + std::to_string(y);
        }
        return "";
    }

private:
    void each(const std::function<void(int64_t, int64_t)>& call) const {
        for (int64_t rank = 0; rank < ranks_; ++rank)
            for (int64_t micro = 0; micro < micros_; ++micro) call(rank, micro);
    }
    Array& at(ValueId id, int64_t rank, int64_t micro) {
        return local_[static_cast<size_t>(rank * micros_ + micro)][static_cast<size_t>(id)];
    }
    Array cut(const Array& whole, const Layout& layout, int64_t rank, int64_t micro) const {
        const Block block = block_of(layout, whole.type.shape, mesh_, rank, micro);
        Array piece(TensorType{whole.type.dtype, block.shape});
        slice(whole.data.data(), whole.type.shape, block, size_of(whole.type.dtype), piece.data.data());
        return piece;
    }
    static void combine(Array& into, const Array& other, ReduceOp op) {
        REQUIRE(into.type == other.type);
        const auto each_element = [&](auto* x, const auto* y) {
            for (int64_t i = 0; i < into.type.count(); ++i)
                x[i] = op == ReduceOp::sum   ? static_cast<std::decay_t<decltype(*x)>>(x[i] + y[i])
                       : op == ReduceOp::max ? std::max(x[i], y[i])
                                             : std::min(x[i], y[i]);
        };
        REQUIRE((into.type.dtype == DType::f64 || into.type.dtype == DType::u8));
        if (into.type.dtype == DType::f64)
            each_element(into.f64(), other.f64());
        else
            each_element(reinterpret_cast<uint8_t*>(into.data.data()),
                         reinterpret_cast<const uint8_t*>(other.data.data()));
    }
    AxisId micro_axis() const { return static_cast<AxisId>(mesh_.axes().size()) - 1; }
    Placement over_micro(ValueId id) const {
        return micros_ > 1 ? program_.value(id).layout.at(micro_axis()) : Placement::replicated();
    }

    /// This rank's value with everything partial summed over its groups.
    Array reduced(ValueId id, int64_t rank, int64_t micro) const {
        std::vector<std::pair<int64_t, int64_t>> members{{rank, micro}};
        ReduceOp op = ReduceOp::sum;
        for (const auto& partial : program_.value(id).layout.partials()) {
            op = partial.op;
            std::vector<std::pair<int64_t, int64_t>> more;
            for (const auto& [r, m] : members) {
                if (mesh_.axis(partial.axis).sequential) {
                    for (int64_t i = 0; i < micros_; ++i) more.emplace_back(r, i);
                } else {
                    for (int64_t other : mesh_.group(r, partial.axis)) more.emplace_back(other, m);
                }
            }
            members = std::move(more);
        }
        Array sum = local(id, members[0].first, members[0].second);
        for (size_t i = 1; i < members.size(); ++i) combine(sum, local(id, members[i].first, members[i].second), op);
        return sum;
    }

    /// An operand as an op reads it: outside the loop, the sum over micro-batches.
    Array read(ValueId id, int64_t rank, int64_t micro, bool inside) const {
        Array array = local(id, rank, micro);
        if (inside || over_micro(id).kind != Placement::Kind::partial) return array;
        array = local(id, rank, 0);
        for (int64_t i = 1; i < micros_; ++i) combine(array, local(id, rank, i), over_micro(id).op);
        return array;
    }

    void run(const Op& op) {
        bool inside = false;
        bool late = false;
        for (ValueId id : op.inputs) inside = inside || over_micro(id).kind == Placement::Kind::split;
        for (ValueId id : op.outputs) inside = inside || over_micro(id).kind != Placement::Kind::replicate;
        for (ValueId id : op.inputs)
            late =
                late || late_[static_cast<size_t>(id)] || (!inside && over_micro(id).kind == Placement::Kind::partial);
        INFO(op.kind << " %" << op.outputs[0]);
        REQUIRE_FALSE((inside && late));
        for (ValueId id : op.outputs) late_[static_cast<size_t>(id)] = late;
        if (op_def(op.kind).collective) of_[static_cast<size_t>(op.outputs[0])] = copy_of(op.inputs[0]);
        each([&](int64_t rank, int64_t micro) {
            if (op_def(op.kind).collective) {
                move(op, rank, micro, inside);
            } else if (exchanges_blocks(op_def(op.kind), op)) {
                const AxisId axis = *mesh_.find(op.attributes.text("axis"));
                const int64_t n = mesh_.size(axis), by = exchange_offset(program_, op, n);
                const int64_t own = mesh_.coordinates(rank)[static_cast<size_t>(axis)];
                const int64_t peer = mesh_.group(rank, axis)[static_cast<size_t>((own + n - by) % n)];
                at(op.outputs[0], rank, micro) = read(op.inputs[0], peer, micro, inside);
            } else {
                compute(op, rank, micro, inside);
            }
        });
    }

    void compute(const Op& op, int64_t rank, int64_t micro, bool inside) {
        std::vector<Array> operands;
        std::vector<Array*> inputs;
        std::vector<Array*> outputs;
        for (ValueId id : op.inputs) operands.push_back(read(id, rank, micro, inside));
        for (Array& operand : operands) inputs.push_back(&operand);
        for (ValueId id : op.outputs) {
            const Value& value = program_.value(id);
            at(id, rank, micro) =
                Array(TensorType{widened(value.type.dtype), value.layout.local_shape(value.type.shape, mesh_)});
            outputs.push_back(&at(id, rank, micro));
        }
        Attributes patch;
        const OpDef& def = op_def(op.kind);
        if (def.indexed) {
            const auto operand = static_cast<size_t>(def.indexed->index);
            const Value& value = program_.value(def.indexed->output ? op.outputs[operand] : op.inputs[operand]);
            patch.set("global_shape", value.type.shape);
            patch.set("offset", value.layout.offset(value.type.shape, mesh_, rank, micro));
        }
        if (op.attributes.has("shape")) patch.set("shape", outputs[0]->type.shape);
        run_op(op, inputs, outputs, patch);
    }

    void move(const Op& op, int64_t rank, int64_t micro, bool inside) {
        const ValueId from = op.inputs[0];
        const ValueId to = op.outputs[0];
        const Value& value = program_.value(to);
        const AxisId axis = *mesh_.over(op.attributes.text("axis"));
        const Layout& before = program_.value(from).layout;
        Array result(TensorType{widened(value.type.dtype), value.layout.local_shape(value.type.shape, mesh_)});
        const auto members = mesh_.axis(axis).sequential ? std::vector<int64_t>{rank} : mesh_.group(rank, axis);
        if (op.kind == "all_reduce" || op.kind == "reduce_scatter") {
            Array sum = read(from, members[0], micro, inside);
            for (size_t i = 1; i < members.size(); ++i)
                combine(sum, read(from, members[i], micro, inside), before.at(mesh_.parts(axis).front()).op);
            result = op.kind == "all_reduce" ? std::move(sum)
                                             : part(op, sum, rank, micro, axis, op.attributes.integer("dim"));
        } else if (op.kind == "shard") {
            result = part(op, read(from, rank, micro, inside), rank, micro, axis, op.attributes.integer("dim"));
        } else {
            const bool gather = op.kind == "all_gather";
            const auto dim = static_cast<size_t>(op.attributes.integer(gather ? "dim" : "from"));
            std::vector<Array> pieces;
            for (int64_t member : members) pieces.push_back(read(from, member, micro, inside));
            Array whole = join(pieces, dim);
            result = gather ? std::move(whole) : part(op, whole, rank, micro, axis, op.attributes.integer("to"));
        }
        REQUIRE(result.type.shape == value.layout.local_shape(value.type.shape, mesh_));
        at(to, rank, micro) = std::move(result);
    }

    /// Block `coordinate` of n along a dim: what reduce_scatter and shard leave to a rank.
    Array part(const Op&, const Array& whole, int64_t rank, int64_t micro, AxisId axis, int64_t dim) const {
        const auto d = static_cast<size_t>(dim);
        const int64_t place = mesh_.axis(axis).sequential ? micro : mesh_.coordinates(rank)[static_cast<size_t>(axis)];
        Block block{Shape(whole.type.shape.size(), 0), whole.type.shape};
        REQUIRE(block.shape[d] % mesh_.size(axis) == 0);
        block.shape[d] /= mesh_.size(axis);
        block.offset[d] = place * block.shape[d];
        Array piece(TensorType{whole.type.dtype, block.shape});
        slice(whole.data.data(), whole.type.shape, block, size_of(whole.type.dtype), piece.data.data());
        return piece;
    }
    static Array join(const std::vector<Array>& pieces, size_t dim) {
        TensorType type = pieces[0].type;
        type.shape[dim] *= static_cast<int64_t>(pieces.size());
        Array whole(type);
        for (size_t i = 0; i < pieces.size(); ++i) {
            Block block{Shape(type.shape.size(), 0), pieces[i].type.shape};
            block.offset[dim] = static_cast<int64_t>(i) * block.shape[dim];
            place(whole.data.data(), type.shape, block, size_of(type.dtype), pieces[i].data.data());
        }
        return whole;
    }

    Program program_;
    Mesh mesh_;
    int64_t ranks_;
    int64_t micros_;
    std::vector<std::vector<Array>> local_;  // [rank * micros + micro][value]
    std::vector<bool> late_;
    std::vector<ValueId> of_;
};

}  // namespace orrery::test
