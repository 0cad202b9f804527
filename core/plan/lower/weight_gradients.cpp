#include "plan/lower/weight_gradients.h"

#include <algorithm>

#include "ir/op.h"

namespace orrery::lowering {

namespace {

/// Whether the fused op `whole` replaces the forward op `part`, among others.
bool is_part(const Op& part, const Op& whole) {
    const OpDef& def = op_def(whole.kind);
    const bool plain_norm = def.norm_vectors > 0 && std::ssize(whole.inputs) == 1 + def.norm_vectors;
    return !plain_norm && std::find(def.fused_of.begin(), def.fused_of.end(), part.kind) != def.fused_of.end();
}

class Reach {
public:
    Reach(const Program& program, AxisId micro_axis, const std::vector<char>& needed)
        : program_(program),
          micro_(micro_axis),
          needed_(needed),
          carries_(program.values.size(), Carries::neither),
          leads_(program.values.size(), 0) {}

    std::vector<char> run() {
        find_contents();
        std::vector<char> weights(program_.ops.size(), 0);
        for (size_t i = program_.ops.size(); i-- > 0;) {
            const Op& op = program_.ops[i];
            if (op.phase != Phase::backward || !needed_[i]) continue;
            const bool led =
                std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return leads_[id] != 0; });
            const bool wanted = led || sent_each_time(op);
            weights[i] = !wanted;
            if (!wanted && !reads(op, Carries::activation)) continue;
            for (ValueId input : op.inputs) leads_[input] = 1;
        }
        return weights;
    }

private:
    /// What a value carries. Params, values computed only from them, and scalars carry neither.
    enum class Carries : uint8_t { neither, activation, gradient };

    Carries& carries(ValueId id) { return carries_[id]; }
    bool reads(const Op& op, Carries what) const {
        return std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) { return carries_[id] == what; });
    }

    void find_contents() {
        for (ValueId input : program_.inputs())
            if (!program_.value(input).type.shape.empty()) carries(input) = Carries::activation;
        for (const Op& op : program_.ops)
            for (ValueId output : op.outputs) carries(output) = made(op, output);
    }

    Carries made(const Op& op, ValueId output) {
        if (op_def(op.kind).collective && op.inputs.size() == 1) return carries(op.inputs[0]);
        if (op.phase == Phase::backward && (reads(op, Carries::gradient) || !again(op))) return Carries::gradient;
        const bool activation = reads(op, Carries::activation) && !program_.value(output).type.shape.empty();
        return activation ? Carries::activation : Carries::neither;
    }

    /// Whether the op recomputes a forward op, a part of a fused one, or the fused op that contains it.
    bool again(const Op& op) const {
        if (op.forward == none) return false;
        const Op& before = program_.op(op.forward);
        return before.kind == op.kind || is_part(op, before) || is_part(before, op);
    }

    bool sent_each_time(const Op& op) const {
        return is_transfer(op_def(op.kind)) && micro_ != none &&
               program_.value(op.inputs[0]).layout.at(micro_).kind == Placement::Kind::split;
    }

    const Program& program_;
    const AxisId micro_;
    const std::vector<char>& needed_;
    std::vector<Carries> carries_;
    std::vector<char> leads_;  ///< by value: whether an op that stays in the backward (B) needs it
};

}  // namespace

std::vector<char> weight_gradients(const Program& program, AxisId micro_axis, const std::vector<char>& needed) {
    return Reach(program, micro_axis, needed).run();
}

}  // namespace orrery::lowering
