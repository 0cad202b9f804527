#include "compile/passes/encode_edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compile/passes/code_sums.h"
#include "ir/build.h"
#include "ir/codecs.h"
#include "ir/op.h"
#include "orrery/mesh.h"
#include "orrery/plan.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

bool sums_over_ranks(const Op& op) {
    const auto moved = collective_of(op);
    return (moved == Opcode::all_reduce || moved == Opcode::reduce_scatter) &&
           op.attributes.text("op") == name_of(ReduceOp::sum);
}

/// Marks gradients of params, their terms, and values that linear ops computed from these and a scalar.
std::vector<char> find_gradients(const Program& program) {
    std::vector<char> known(program.values.size(), 0);
    for (const auto& [param, grad] : program.grads()) known[grad] = 1;
    const auto carries = [](const Op& op) { return op_def(op.kind).collective && op.inputs.size() == 1; };
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        if (op.phase == Phase::forward || known[op.outputs[0]] == 0) continue;
        if (!carries(op) && !is_sum(op_def(op.kind)) && op_def(op.kind).moves == Moves::no) continue;
        for (const ValueId input : op.inputs)
            if (program.value(input).op != none && program.op(program.value(input).op).phase != Phase::forward)
                known[input] = 1;
    }
    for (const Op& op : program.ops) {
        const OpDef& def = op_def(op.kind);
        const auto of_gradient = [&](ValueId id) { return known[id] != 0; };
        const bool multiple = std::any_of(def.multiplies.begin(), def.multiplies.end(), [&](int i) {
            return static_cast<size_t>(i) < op.inputs.size() && of_gradient(op.inputs[i]);
        });
        const bool sum = is_sum(def) && std::all_of(op.inputs.begin(), op.inputs.end(), of_gradient);
        if (multiple || sum || (carries(op) && of_gradient(op.inputs[0]))) known[op.outputs[0]] = 1;
    }
    return known;
}

class Encoding {
public:
    Encoding(Program& program, const Mesh& mesh)
        : program_(program),
          micro_(mesh.sequential_axis()),
          gradients_(find_gradients(program)),
          coded_(program, mesh) {}

    void run() {
        find_messages();
        if (messages_.empty()) return;
        find_readers();
        std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        std::vector<OpId> moved;
        Phase phase = Phase::forward;
        for (OpId i = 0; i < std::ssize(old); ++i) {
            if (old[i].phase != phase) coded_.finish_all();
            phase = old[i].phase;
            for (const ValueId input : old[i].inputs)
                if (passed_on_.count({i, input}) == 0) bring_back(input);
            const auto message = messages_.find(i);
            const ValueId sum = old[i].outputs[0];
            if (message != messages_.end() && !message->second->sums_in) {
                moved.push_back(program_.ops.size());
                coded_.send(std::move(old[i]), *message->second);
                continue;
            }
            if (message != messages_.end()) narrow(old[i], *message->second->sums_in);
            moved.push_back(program_.ops.size());
            program_.ops.push_back(std::move(old[i]));
            if (message != messages_.end() && !delayed(sum)) bring_back(sum);
        }
        coded_.finish_all();
        while (!waiting_.empty()) bring_back(waiting_.begin()->first);
        relink(program_, moved);
        coded_.keep_errors();
    }

private:
    void find_messages() {
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            const Op& op = program_.ops[i];
            if (!sums_over_ranks(op) || gradients_[op.inputs[0]] == 0) continue;
            const Codec& codec = codec_named(program_, program_.codec(op.attributes.text("axis")), op.origin);
            const DType own = program_.value(op.inputs[0]).type.dtype;
            const bool narrows = codec.sums_in && is_float(own) && size_of(own) > size_of(*codec.sums_in);
            if (narrows || (codec.encode && is_float(own) && coded_.takes(op, codec))) messages_[i] = &codec;
        }
    }

    /// Finds ops that read sums in their own type; messages of a sum over another axis read the narrow one.
    void find_readers() {
        read_.assign(program_.values.size(), 0);
        early_.assign(program_.values.size(), 0);
        for (OpId i = 0; i < std::ssize(program_.ops); ++i)
            for (const ValueId input : program_.ops[i].inputs) {
                const auto next = messages_.find(i);
                const auto before = messages_.find(program_.value(input).op);
                if (next != messages_.end() && before != messages_.end() && next->second == before->second &&
                    next->second->sums_in) {
                    passed_on_.insert({i, input});
                    continue;
                }
                read_[input] = 1;
                if (program_.ops[i].phase != Phase::update) early_[input] = 1;
            }
        for (const Result& result : program_.results) read_[result.value] = 1;
        for (const Update& update : program_.updates) read_[update.value] = 1;
        for (const auto& [param, grad] : program_.grads()) read_[grad] = 1;
    }

    Placement over_micro(ValueId id) const {
        return micro_ ? program_.value(id).layout.at(*micro_) : Placement::replicated();
    }

    /// Whether only the update reads a sum, so that it is cast back right before its first reader. The sum of a
    /// micro-batch is cast back at once, since it is accumulated in its own type.
    bool delayed(ValueId sum) const { return over_micro(sum).kind != Kind::partial && early_[sum] == 0; }

    ValueId add_value(ValueId like, DType type, Layout layout) {
        Value value;
        value.type = {type, program_.value(like).type.shape};
        value.dims = program_.value(like).dims;
        value.layout = std::move(layout);
        value.causes = program_.value(like).causes;
        value.origin = program_.value(like).origin;
        program_.values.push_back(std::move(value));
        return std::ssize(program_.values) - 1;
    }

    Op cast(const Op& message, ValueId from, ValueId to) const {
        Op op;
        op.kind = "cast";
        op.attributes = {{"dtype", std::string(name_of(program_.value(to).type.dtype))}};
        op.inputs = {from};
        op.outputs = {to};
        op.phase = message.phase;
        op.scope = message.scope;
        op.stage = message.stage;
        op.origin = message.origin;
        return op;
    }

    /// The narrow input of a message: output of another narrow message, or a cast right before this one.
    ValueId term(const Op& message, DType type) {
        const ValueId own = message.inputs[0], sum = message.outputs[0];
        if (const auto sent = narrow_.find(own);
            sent != narrow_.end() && program_.value(sent->second).type.dtype == type)
            return sent->second;
        Layout layout = program_.value(own).layout;
        if (micro_ && over_micro(own).kind == Kind::partial && over_micro(sum).kind == Kind::replicate)
            layout.set(*micro_, Placement::replicated());  // the cast comes after the loop over micro-batches
        const ValueId made = add_value(own, type, std::move(layout));
        program_.ops.push_back(cast(message, own, made));
        return made;
    }

    void narrow(Op& message, DType type) {
        const ValueId sum = message.outputs[0];
        const int64_t item = size_of(program_.value(sum).type.dtype);
        const ValueId sent = add_value(sum, type, program_.value(sum).layout);
        message.inputs[0] = term(message, type);
        message.outputs[0] = sent;
        if (const int64_t bytes = message.attributes.integer("sends"); bytes > 0)
            message.attributes.set("sends", bytes * size_of(type) / item);
        narrow_[sum] = sent;
        if (read_[sum] == 0) {
            program_.value(sum).op = none;
            program_.value(sum).output = 0;
            return;
        }
        Op back = cast(message, sent, sum);
        if (delayed(sum)) back.phase = Phase::update, back.stage = none;
        waiting_.emplace(sum, std::move(back));
    }

    void bring_back(ValueId sum) {
        if (coded_.waits(sum)) coded_.finish_all();
        const auto back = waiting_.find(sum);
        if (back == waiting_.end()) return;
        program_.ops.push_back(std::move(back->second));
        waiting_.erase(back);
    }

    Program& program_;
    const std::optional<AxisId> micro_;
    const std::vector<char> gradients_;
    CodeSums coded_;
    std::map<OpId, const Codec*> messages_;
    std::set<std::pair<OpId, ValueId>> passed_on_;  ///< messages that read the narrow sum of another message
    std::vector<char> read_, early_;                ///< by value: whether it is read in its own type; before the update
    std::map<ValueId, ValueId> narrow_;
    std::map<ValueId, Op> waiting_;  ///< by sum: its cast back to its own type, not inserted yet
};

}  // namespace

void encode_edges(Program& program, const Mesh& mesh) {
    const std::vector<std::string> axes = program.axes_with("codec");
    const bool wanted = std::any_of(axes.begin(), axes.end(), [&](const auto& axis) {
        return mesh.size(axis) > 1 && program.codec(axis) != "none";
    });
    if (wanted) Encoding(program, mesh).run();
}

}  // namespace orrery
