#include "compile/passes/fuse.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/build.h"
#include "ir/op.h"

namespace orrery {

namespace {

enum class Fits : uint8_t { product, slope, bias, residual, round_norm };
enum class Of : uint8_t { first, second };

/// A pair of ops and the op that replaces them, each as "op inputs -> outputs". Equal names are equal values. A value
/// between the two ops disappears unless the new op outputs it. "pre?" is an output only if another op needs it;
/// otherwise the attribute `flag` is set.
struct Row {
    std::string_view first, second, joined;
    Fits fits;                                 ///< further condition on the two ops
    Of like;                                   ///< which of the two gives the new op its phase, scope and attributes
    Of stands;                                 ///< which of the two gives the new op its position
    std::vector<std::string_view> takes = {};  ///< further attributes, copied from the other op
    std::string_view flag = "";
};

// clang-format off
const Row rows[] = {
    {"matmul a b bias -> pre", "gelu pre -> y", "matmul_bias_gelu a b bias -> y pre?",
     Fits::product, Of::first, Of::second, {"approx"}, "drop_pre"},
    {"matmul a b -> dy", "gelu_grad pre dy -> dx", "matmul_gelu_grad a b pre -> dx",
     Fits::slope, Of::second, Of::second, {"trans_a", "trans_b"}},
    {"matmul_dw x dy -> dw", "sum dy -> dbias", "matmul_dw_bias x dy -> dw dbias",
     Fits::bias, Of::first, Of::first},
    {"add x r -> s", "layernorm s gain bias -> y mean rstd", "layernorm x gain bias r -> y mean rstd s",
     Fits::residual, Of::second, Of::second},
    {"add x r -> s", "rmsnorm s gain -> y rstd", "rmsnorm x gain r -> y rstd s",
     Fits::residual, Of::second, Of::second},
    {"layernorm_grad x gain mean rstd dy -> dx dgain dbias", "add dx round -> sum",
     "layernorm_grad x gain mean rstd dy round -> sum dgain dbias", Fits::round_norm, Of::first, Of::first},
    {"layernorm_grad x gain mean rstd dy -> dx dgain dbias", "add round dx -> sum",
     "layernorm_grad x gain mean rstd dy round -> sum dgain dbias", Fits::round_norm, Of::first, Of::first},
    {"rmsnorm_grad x gain rstd dy -> dx dgain", "add dx round -> sum", "rmsnorm_grad x gain rstd dy round -> sum dgain",
     Fits::round_norm, Of::first, Of::first},
    {"rmsnorm_grad x gain rstd dy -> dx dgain", "add round dx -> sum", "rmsnorm_grad x gain rstd dy round -> sum dgain",
     Fits::round_norm, Of::first, Of::first},
};
// clang-format on

struct Names {
    std::string_view op;
    std::vector<std::string_view> inputs, outputs;

    explicit Names(std::string_view text) {
        bool made = false;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find(' ', at), text.size());
            const std::string_view word = text.substr(at, end - at);
            if (at == 0)
                op = word;
            else if (word == "->")
                made = true;
            else
                (made ? outputs : inputs).push_back(word);
            at = end + 1;
        }
    }
};

std::optional<size_t> place_in(const std::vector<std::string_view>& names, std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return found - names.begin();
}

/// A row, parsed, and the value that connects its two ops.
struct Pattern {
    const Row& row;
    Names first, second, joined;
    size_t edge = 0;               ///< index of the connecting value among the inputs of the second op
    std::optional<size_t> made;    ///< its index among the outputs of the first op, if it is one
    std::optional<size_t> shared;  ///< its index among the inputs of the first op, if it is one

    explicit Pattern(const Row& from) : row(from), first(from.first), second(from.second), joined(from.joined) {
        for (edge = 0; edge < second.inputs.size(); ++edge) {
            made = place_in(first.outputs, second.inputs[edge]);
            shared = place_in(first.inputs, second.inputs[edge]);
            if (made || shared) return;
        }
        assert(false && "a row of two ops that do not meet");
    }

    /// Whether the new op outputs the value between the two ops, always or if it is needed.
    bool keeps() const {
        const std::string name = std::string(second.inputs[edge]);
        return place_in(joined.outputs, name) || place_in(joined.outputs, name + "?");
    }
    ValueId value(std::string_view name, const Op& a, const Op& b) const {
        if (const auto i = place_in(first.inputs, name)) return a.inputs[*i];
        if (const auto i = place_in(first.outputs, name)) return a.outputs[*i];
        if (const auto i = place_in(second.inputs, name)) return b.inputs[*i];
        return b.outputs[place_in(second.outputs, name).value()];
    }
};

const std::vector<Pattern>& patterns() {
    static const std::vector<Pattern> all(std::begin(rows), std::end(rows));
    return all;
}

class Fusion {
public:
    Fusion(Program&& program, const std::function<bool(const Program&, const Op&)>& runs)
        : program_(std::move(program)), runs_(runs), stands_(program_.ops.size(), none) {
        readers_.resize(program_.values.size());
        kept_.assign(program_.values.size(), 0);
        for (size_t id = 0; id < program_.ops.size(); ++id)
            for (ValueId input : program_.ops[id].inputs) readers_[input].push_back(id);
        const auto keep = [&](ValueId id) { kept_[id] = 1; };
        for (const Result& result : program_.results) keep(result.value);
        for (const Update& update : program_.updates) keep(update.value);
        for (const auto& [param, grad] : program_.grads()) keep(grad);
    }

    Program run() {
        for (OpId id = 0; id < std::ssize(program_.ops); ++id)
            for (const Pattern& p : patterns())
                if (join(p, id)) break;
        if (fused_ > 0) compact();
        return std::move(program_);
    }

private:
    const std::vector<OpId>& readers(ValueId id) const { return readers_[id]; }
    bool can_run(const Op& op) const { return !runs_ || runs_(program_, op); }
    bool gone(OpId id) const { return stands_[id] != none; }
    Op& op(OpId id) { return program_.ops[id]; }

    bool unread_before(ValueId value, OpId id) const { return readers(value).empty() || readers(value).front() >= id; }
    /// True if exactly one op reads the value, and it is not a result, update, gradient or named.
    bool for_one(ValueId value) const {
        return readers(value).size() == 1 && !kept_[value] && program_.value(value).name.empty();
    }

    static bool together(const Op& a, const Op& b) { return a.phase == b.phase && a.stage == b.stage; }
    bool lie_alike(ValueId a, ValueId b) const { return program_.value(a).layout == program_.value(b).layout; }
    bool of_kind(ValueId id, std::string_view kind) const {
        const OpId maker = program_.value(id).op;
        return maker != none && program_.op(maker).kind == kind;
    }

    /// Whether a GEMM has operands and output of one type, and one matrix b for the whole batch. Not with transposed
    /// operands, as lowering folds the transpose into a plain GEMM.
    bool plain_product(const Op& m) const {
        if (program_.value(m.inputs[1]).type.shape.size() != 2) return false;
        const bool known = std::all_of(m.attributes.items().begin(), m.attributes.items().end(), [](const auto& item) {
            return item.first == "trans_a" || item.first == "trans_b" || item.first == "dtype";
        });
        const auto dtype = [&](ValueId id) { return program_.value(id).type.dtype; };
        return known && dtype(m.inputs[0]) == dtype(m.outputs[0]) && !of_kind(m.inputs[0], "transpose") &&
               !of_kind(m.inputs[1], "transpose");
    }

    void replace(OpId first, OpId second) {
        stands_[first] = second;
        ++fused_;
    }

    void drop(ValueId id) {
        Value& value = program_.value(id);
        value.op = none;
        value.output = 0;
        value.layout = Layout(value.type.shape.size());
        value.causes.clear();
    }

    OpId partner(const Pattern& p, OpId id) const {
        const Op& second = program_.op(id);
        const ValueId meet = second.inputs[p.edge];
        const auto fit = [&](OpId at) {
            const Op& first = program_.op(at);
            return !gone(at) && first.kind == p.first.op && first.inputs.size() == p.first.inputs.size() &&
                   together(first, second) && meet == (p.made ? first.outputs[*p.made] : first.inputs[*p.shared]) &&
                   fits(p, first, second, at);
        };
        if (p.made) {
            const OpId maker = program_.value(meet).op;
            return maker != none && fit(maker) ? maker : none;
        }
        const auto found = std::find_if(readers(meet).begin(), readers(meet).end(),
                                        [&](OpId reader) { return reader < id && fit(reader); });
        return found == readers(meet).end() ? none : *found;
    }

    bool fits(const Pattern& p, const Op& first, const Op& second, OpId at_first) const {
        switch (p.row.fits) {
            case Fits::product: return plain_product(first);
            case Fits::slope: return plain_product(first) && second.inputs[0] != second.inputs[1];
            case Fits::bias:
                return second.phase == Phase::backward && second.forward != none && first.forward == second.forward &&
                       sums_rows(second) && !added(first.outputs[0]) && !added(second.outputs[0]);
            case Fits::residual: return same_type(first) && added_products(first) <= 1;
            case Fits::round_norm:
                return second.phase == Phase::backward && same_type(second) && second.inputs[0] != second.inputs[1] &&
                       place(second.inputs[1 - p.edge]) < at_first;
        }
        return false;
    }

    /// Whether the value between the two ops may disappear, or be computed at the place of the second op.
    bool free(const Pattern& p, ValueId between, OpId id) const {
        if (!lie_alike(between, program_.op(id).outputs[0])) return false;
        return p.keeps() ? unread_before(between, id) : for_one(between);
    }

    bool needed(ValueId id) const { return readers(id).size() > 1 || kept_[id] || !program_.value(id).name.empty(); }

    Op joined(const Pattern& p, const Op& first, const Op& second) const {
        const bool like_first = p.row.like == Of::first;
        Op made = like_first ? first : second;
        made.kind = p.joined.op;
        made.inputs.clear();
        made.outputs.clear();
        for (std::string_view key : p.row.takes)
            if (const Attribute* const taken = (like_first ? second : first).attributes.find(key))
                made.attributes.set(key, *taken);
        for (std::string_view name : p.joined.inputs) made.inputs.push_back(p.value(name, first, second));
        for (std::string_view name : p.joined.outputs) {
            const bool optional = name.ends_with('?');
            if (optional) name.remove_suffix(1);
            const ValueId value = p.value(name, first, second);
            if (!optional || needed(value))
                made.outputs.push_back(value);
            else
                made.attributes.set(p.row.flag, true);
        }
        return made;
    }

    bool join(const Pattern& p, OpId id) {
        const Op& second = program_.op(id);
        if (second.kind != p.second.op || second.inputs.size() != p.second.inputs.size()) return false;
        const ValueId between = p.made ? second.inputs[p.edge] : none;
        const OpId at = partner(p, id);
        if (at == none || (between != none && !free(p, between, id))) return false;
        Op made = joined(p, program_.op(at), second);
        if (!can_run(made)) return false;
        if (between != none && std::find(made.outputs.begin(), made.outputs.end(), between) == made.outputs.end())
            drop(between);
        const OpId stands = p.row.stands == Of::first ? at : id;
        op(stands) = std::move(made);
        replace(stands == at ? id : at, stands);
        return true;
    }

    /// Whether an op is the f32 sum of dy over all rows, the gradient of a bias.
    bool sums_rows(const Op& sum) const {
        const Value& dy = program_.value(sum.inputs[0]);
        std::vector<int64_t> rows(dy.type.shape.size() - std::min<size_t>(dy.type.shape.size(), 1));
        std::iota(rows.begin(), rows.end(), 0);
        return !rows.empty() && sum.attributes.integers("dims") == rows && !sum.attributes.flag("keep") &&
               program_.value(sum.outputs[0]).type.dtype == DType::f32;
    }

    /// Whether an add reads the value. Then kernels of ops that are not fused can accumulate into its sum.
    bool added(ValueId id) const {
        return std::any_of(readers(id).begin(), readers(id).end(),
                           [&](OpId reader) { return program_.op(reader).kind == "add"; });
    }

    bool same_type(const Op& sum) const {
        const TensorType& type = program_.value(sum.outputs[0]).type;
        return std::all_of(sum.inputs.begin(), sum.inputs.end(),
                           [&](ValueId id) { return program_.value(id).type == type; });
    }

    /// The number of GEMMs among the terms of a sum. One can accumulate into the output of another.
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

    /// The op that computes a value after fusion; none for inputs, params and states.
    OpId place(ValueId id) const {
        OpId maker = program_.value(id).op;
        while (maker != none && gone(maker)) maker = stands_[maker];
        return maker;
    }

    void compact() {
        std::vector<OpId> moved(program_.ops.size(), none);
        OpId next = 0;
        for (size_t id = 0; id < moved.size(); ++id)
            if (stands_[id] == none) moved[id] = next++;
        for (size_t id = 0; id < moved.size(); ++id)
            if (stands_[id] != none) moved[id] = moved[stands_[id]];
        std::vector<Op> ops;
        ops.reserve(next);
        for (size_t id = 0; id < moved.size(); ++id)
            if (stands_[id] == none) ops.push_back(std::move(program_.ops[id]));
        program_.ops = std::move(ops);
        relink(program_, moved);
    }

    Program program_;
    const std::function<bool(const Program&, const Op&)>& runs_;
    std::vector<std::vector<OpId>> readers_;
    std::vector<char> kept_;
    std::vector<OpId> stands_;  ///< by op: the op that does its work after fusion
    int fused_ = 0;
};

}  // namespace

Program fuse(Program program, const std::function<bool(const Program&, const Op&)>& runs) {
    return Fusion(std::move(program), runs).run();
}

Program fuse_for(Program propagated, const Mesh& mesh, const std::function<bool(const KernelSpec&)>& runs) {
    if (!runs) return fuse(std::move(propagated));
    return fuse(std::move(propagated), [&](const Program& p, const Op& op) {
        const auto local = [&](const std::vector<ValueId>& ids) {
            std::vector<TensorType> types;
            for (ValueId id : ids) {
                const Value& v = p.value(id);
                types.push_back({v.type.dtype, v.layout.local_shape(v.type.shape, mesh)});
            }
            return types;
        };
        KernelSpec spec{op.kind, op.attributes, local(op.inputs), local(op.outputs)};
        spec.attributes.erase("cause");
        spec.attributes.erase("keep");
        if (!runs(spec)) return false;
        if (op_def(op.kind).accumulates.empty()) return true;
        spec.attributes.set("accumulate", true);  // kernels of later micro-batches accumulate
        return runs(spec);
    });
}

}  // namespace orrery
