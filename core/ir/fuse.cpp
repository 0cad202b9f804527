#include "ir/fuse.h"

#include <algorithm>
#include <numeric>

namespace orrery {

namespace {

/// Gain and bias of a norm: 0 for another op.
size_t norm_vectors(const Op& op) { return op.kind == "layernorm" ? 2 : op.kind == "rmsnorm" ? 1 : 0; }

class Fusion {
public:
    Fusion(Program&& program, const std::function<bool(const Program&, const Op&)>& runs)
        : program_(std::move(program)), runs_(runs), stands_(program_.ops.size(), none) {
        readers_.resize(program_.values.size());
        kept_.assign(program_.values.size(), 0);
        for (size_t id = 0; id < program_.ops.size(); ++id)
            for (ValueId input : program_.ops[id].inputs)
                readers_[static_cast<size_t>(input)].push_back(static_cast<OpId>(id));
        const auto keep = [&](ValueId id) { kept_[static_cast<size_t>(id)] = 1; };
        for (const Result& result : program_.results) keep(result.value);
        for (const Update& update : program_.updates) keep(update.value);
        for (const auto& [param, grad] : program_.grads()) keep(grad);
    }

    Program run() {
        for (OpId id = 0; id < static_cast<OpId>(program_.ops.size()); ++id) {
            const std::string& kind = program_.op(id).kind;
            if (kind == "gelu") join_gelu(id);
            if (kind == "gelu_grad") join_gelu_grad(id);
            if (kind == "sum") join_bias_sum(id);
            if (norm_vectors(program_.op(id)) > 0) join_residual(id);
            if (kind == "add") join_norm_grad(id);
        }
        if (fused_ > 0) compact();
        return std::move(program_);
    }

private:
    const std::vector<OpId>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
    bool can_run(const Op& op) const { return !runs_ || runs_(program_, op); }
    bool gone(OpId id) const { return stands_[static_cast<size_t>(id)] != none; }
    Op& op(OpId id) { return program_.ops[static_cast<size_t>(id)]; }

    /// Whether nothing reads it before the op.
    bool unread_before(ValueId value, OpId id) const { return readers(value).empty() || readers(value).front() >= id; }
    /// Whether one op reads it and nobody asked for it.
    bool for_one(ValueId value) const {
        return readers(value).size() == 1 && !kept_[static_cast<size_t>(value)] && program_.value(value).name.empty();
    }

    /// Both run in one fragment, and the second one on what the first one made.
    static bool together(const Op& a, const Op& b) { return a.phase == b.phase && a.stage == b.stage; }
    bool lie_alike(ValueId a, ValueId b) const { return program_.value(a).layout == program_.value(b).layout; }
    bool of_kind(ValueId id, std::string_view kind) const {
        const OpId maker = program_.value(id).op;
        return maker != none && program_.op(maker).kind == kind;
    }

    /// A product of rows and a shared matrix in the type of its operands. Transposes are left to lowering, which folds
    /// them into plain products.
    bool plain_product(const Op& m, size_t inputs) const {
        if (m.kind != "matmul" || m.inputs.size() != inputs || program_.value(m.inputs[1]).type.shape.size() != 2)
            return false;
        const bool known = std::all_of(m.attributes.items().begin(), m.attributes.items().end(), [](const auto& item) {
            return item.first == "trans_a" || item.first == "trans_b" || item.first == "dtype";
        });
        const auto dtype = [&](ValueId id) { return program_.value(id).type.dtype; };
        return known && dtype(m.inputs[0]) == dtype(m.outputs[0]) && !of_kind(m.inputs[0], "transpose") &&
               !of_kind(m.inputs[1], "transpose");
    }

    /// `first` is done by the op that now stands at `second`.
    void replace(OpId first, OpId second) {
        stands_[static_cast<size_t>(first)] = second;
        ++fused_;
    }

    void drop(ValueId id) {
        Value& value = program_.value(id);
        value.op = none;
        value.output = 0;
        value.layout = Layout(value.type.shape.size());
        value.causes.clear();
    }

    void join_gelu(OpId id) {
        const Op gelu = program_.op(id);
        const ValueId pre = gelu.inputs[0];
        const OpId product = program_.value(pre).op;
        if (product == none || gone(product)) return;
        const Op& m = program_.op(product);
        if (!plain_product(m, 3) || !together(m, gelu) || !lie_alike(pre, gelu.outputs[0])) return;
        if (!unread_before(pre, id)) return;
        Op fused = m;
        fused.kind = "matmul_bias_gelu";
        fused.attributes.set("approx", gelu.attributes.text("approx"));
        fused.outputs = gelu.outputs;
        const bool keep =
            readers(pre).size() > 1 || kept_[static_cast<size_t>(pre)] || !program_.value(pre).name.empty();
        if (keep)
            fused.outputs.push_back(pre);
        else
            fused.attributes.set("drop_pre", true);
        if (!can_run(fused)) return;
        if (!keep) drop(pre);
        op(id) = std::move(fused);
        replace(product, id);
    }

    void join_gelu_grad(OpId id) {
        const Op slope = program_.op(id);
        const ValueId pre = slope.inputs[0], dy = slope.inputs[1];
        const OpId product = program_.value(dy).op;
        if (product == none || gone(product) || pre == dy) return;
        const Op& m = program_.op(product);
        if (!for_one(dy) || !plain_product(m, 2) || !together(m, slope) || !lie_alike(dy, slope.outputs[0])) return;
        Op fused = slope;
        fused.kind = "matmul_gelu_grad";
        fused.inputs = {m.inputs[0], m.inputs[1], pre};
        for (const char* flag : {"trans_a", "trans_b"})
            if (m.attributes.flag(flag)) fused.attributes.set(flag, true);
        if (!can_run(fused)) return;
        drop(dy);
        op(id) = std::move(fused);
        replace(product, id);
    }

    /// The sum over all rows of dy in f32, as a bias has its gradient.
    bool sums_rows(const Op& sum) const {
        const Value& dy = program_.value(sum.inputs[0]);
        std::vector<int64_t> rows(dy.type.shape.size() - std::min<size_t>(dy.type.shape.size(), 1));
        std::iota(rows.begin(), rows.end(), 0);
        return !rows.empty() && sum.attributes.integers("dims") == rows && !sum.attributes.flag("keep") &&
               program_.value(sum.outputs[0]).type.dtype == DType::f32;
    }

    /// What a sum of two ops takes up is added to by the plain ops alone.
    bool added(ValueId id) const {
        return std::any_of(readers(id).begin(), readers(id).end(),
                           [&](OpId reader) { return program_.op(reader).kind == "add"; });
    }

    void join_bias_sum(OpId id) {
        const Op sum = program_.op(id);
        if (sum.phase != Phase::backward || sum.forward == none || !sums_rows(sum) || added(sum.outputs[0])) return;
        const auto& reading = readers(sum.inputs[0]);
        const auto found = std::find_if(reading.begin(), reading.end(), [&](OpId reader) {
            const Op& dw = program_.op(reader);
            return reader < id && !gone(reader) && dw.kind == "matmul_dw" && dw.inputs[1] == sum.inputs[0] &&
                   dw.forward == sum.forward && together(dw, sum) && !added(dw.outputs[0]);
        });
        if (found == reading.end()) return;
        Op fused = program_.op(*found);
        fused.kind = "matmul_dw_bias";
        fused.outputs.push_back(sum.outputs[0]);
        if (!can_run(fused)) return;
        op(*found) = std::move(fused);
        replace(id, *found);
    }

    bool same_type(const Op& sum) const {
        const TensorType& type = program_.value(sum.outputs[0]).type;
        return std::all_of(sum.inputs.begin(), sum.inputs.end(),
                           [&](ValueId id) { return program_.value(id).type == type; });
    }

    /// Products in a sum, inner sums included, of which one kernel adds to what another wrote.
    int added_products(const Op& sum) const {
        int products = 0;
        for (ValueId id : sum.inputs) {
            const OpId maker = program_.value(id).op;
            if (maker == none || gone(maker) || !for_one(id)) continue;
            const Op& m = program_.op(maker);
            products += m.kind == "add" ? added_products(m) : m.kind == "matmul";
        }
        return products;
    }

    void join_residual(OpId id) {
        const Op norm = program_.op(id);
        const ValueId x = norm.inputs[0];
        const OpId maker = program_.value(x).op;
        if (maker == none || gone(maker) || norm.inputs.size() != 1 + norm_vectors(norm)) return;
        const Op& sum = program_.op(maker);
        if (sum.kind != "add" || !same_type(sum) || !together(sum, norm) || !lie_alike(x, norm.outputs[0]) ||
            !unread_before(x, id) || added_products(sum) > 1)
            return;
        Op fused = norm;
        fused.inputs[0] = sum.inputs[0];
        fused.inputs.push_back(sum.inputs[1]);
        fused.outputs.push_back(x);
        if (!can_run(fused)) return;
        op(id) = std::move(fused);
        replace(maker, id);
    }

    /// A norm's gradient that makes `dx` for one reader alone.
    bool makes_for_one(const Op& norm, ValueId dx) const {
        const size_t plain = norm.kind == "layernorm_grad" ? 5 : norm.kind == "rmsnorm_grad" ? 4 : 0;
        return norm.outputs[0] == dx && norm.inputs.size() == plain && for_one(dx);
    }

    /// Where the op that makes a value stands now; none for inputs, params and states.
    OpId place(ValueId id) const {
        OpId maker = program_.value(id).op;
        while (maker != none && gone(maker)) maker = stands_[static_cast<size_t>(maker)];
        return maker;
    }

    void join_norm_grad(OpId id) {
        const Op sum = program_.op(id);
        if (sum.phase != Phase::backward || !same_type(sum) || sum.inputs[0] == sum.inputs[1]) return;
        for (size_t i = 0; i < 2; ++i) {
            const ValueId dx = sum.inputs[i];
            const ValueId other = sum.inputs[1 - i];
            const OpId maker = program_.value(dx).op;
            if (maker == none || gone(maker) || place(other) >= maker) continue;
            const Op& norm = program_.op(maker);
            if (!makes_for_one(norm, dx) || !together(norm, sum) || !lie_alike(dx, sum.outputs[0])) continue;
            Op fused = norm;
            fused.inputs.push_back(other);
            fused.outputs[0] = sum.outputs[0];
            if (!can_run(fused)) continue;
            drop(dx);
            op(maker) = std::move(fused);
            replace(id, maker);
            return;
        }
    }

    void compact() {
        std::vector<OpId> moved(program_.ops.size(), none);
        OpId next = 0;
        for (size_t id = 0; id < moved.size(); ++id)
            if (stands_[id] == none) moved[id] = next++;
        for (size_t id = 0; id < moved.size(); ++id)
            if (stands_[id] != none) moved[id] = moved[static_cast<size_t>(stands_[id])];
        std::vector<Op> ops;
        ops.reserve(static_cast<size_t>(next));
        for (size_t id = 0; id < moved.size(); ++id) {
            if (stands_[id] != none) continue;
            Op& from = program_.ops[id];
            if (from.forward != none) from.forward = moved[static_cast<size_t>(from.forward)];
            for (size_t o = 0; o < from.outputs.size(); ++o) {
                Value& made = program_.value(from.outputs[o]);
                made.op = moved[id];
                made.output = static_cast<int>(o);
            }
            ops.push_back(std::move(from));
        }
        program_.ops = std::move(ops);
    }

    Program program_;
    const std::function<bool(const Program&, const Op&)>& runs_;
    std::vector<std::vector<OpId>> readers_;
    std::vector<char> kept_;    ///< by value: a result, an update or a gradient
    std::vector<OpId> stands_;  ///< by op: the one that does its work now
    int fused_ = 0;
};

}  // namespace

Program fuse(Program program, const std::function<bool(const Program&, const Op&)>& runs) {
    return Fusion(std::move(program), runs).run();
}

bool is_part(const Op& part, const Op& whole) {
    if (part.kind == "add") return norm_vectors(whole) > 0 && whole.inputs.size() > 1 + norm_vectors(whole);
    return whole.kind == "matmul_bias_gelu" && (part.kind == "matmul" || part.kind == "gelu");
}

}  // namespace orrery
