// Tensor parallelism: params are split along dims that no op mixes (heads, mlp, vocab), so that one reduction after
// each block makes activations whole again (Shoeybi et al. 2019). With `sequence`, activations between the blocks are
// split over the sequence (Korthikanti et al. 2022). Propagation derives every collective.
#include <algorithm>
#include <map>
#include <set>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

std::string axis_text(const Mesh& mesh, const std::string& axis) {
    return axis + "=" + std::to_string(mesh.size(axis));
}

class TensorParallel : public Strategy {
public:
    TensorParallel(Config& options, Origin origin)
        : axis_(options.text("axis", "tp")),
          dims_(options.has("dims") ? options.texts("dims")
                                    : std::vector<std::string>{"heads", "kv_heads", "mlp", "vocab"}),
          sequence_(options.flag("sequence", false)),
          keep_(options.flag("keep", false)),
          optional_(options.flag("optional", false)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "tensor";
        if (keep_ && !sequence_)
            throw Error(origin_,
                        "strategy tensor: keep = true has no effect: without sequence, inputs of blocks are "
                        "whole already\n  set sequence = true, or leave keep out");
    }

    void annotate(Program& program, const Mesh& mesh) override {
        if (mesh.size(axis_) == 1) return;
        const Splits earlier = earlier_splits(program, mesh);
        taken_.clear();
        for (const Mark& mark : program.marks())
            if (mark.what == Mark::What::store && mark.axis == axis_ && mark.placement.kind == Placement::Kind::split)
                taken_.insert(mark.value);
        std::vector<std::string> split;
        for (const std::string& dim : dims_)
            if (divides(program, mesh, dim, earlier)) split.push_back(dim);
        // A query head must be on the same rank as the keys and values that it reads.
        const auto missing = [&](const char* dim) { return has(dims_, dim) && !has(split, dim); };
        if (missing("heads") || missing("kv_heads")) {
            std::erase(split, "heads");
            std::erase(split, "kv_heads");
        }
        bool found = false;
        for (ValueId param : program.params()) found |= mark(program, mesh, param, split);
        if (!found && !optional_) refuse_nothing(program);
        if (!sequence_) return;
        const std::map<ValueId, bool> groups = values_of_groups(program);
        split_sequence(program, mesh, earlier, groups);
        keep_parts(program, split, groups);
    }

private:
    /// How earlier strategies split a dim of an input or activation: over how many ranks, and " cp=2".
    struct Split {
        int64_t parts = 1;
        std::string axes;
    };
    using Splits = std::map<std::pair<ValueId, int>, Split>;

    static Splits earlier_splits(const Program& program, const Mesh& mesh) {
        Splits splits;
        for (const Mark& mark : program.marks()) {
            if (mark.what != Mark::What::store || mark.placement.kind != Placement::Kind::split || mark.optional)
                continue;
            const bool input = program.value(mark.value).role == Role::input;
            if (mesh.size(mark.axis) == 1 || !(input || activation(program, mark.value))) continue;
            Split& split = splits[{mark.value, mark.placement.dim}];
            split.parts *= mesh.size(mark.axis);
            split.axes += " " + axis_text(mesh, mark.axis);
        }
        return splits;
    }

    static bool has(const std::vector<std::string>& list, std::string_view name) {
        return std::find(list.begin(), list.end(), name) != list.end();
    }

    static bool activation(const Program& program, ValueId id) {
        const Value& value = program.value(id);
        return value.op != none && program.op(value.op).phase == Phase::forward && is_float(value.type.dtype);
    }

    /// Whether every param and activation with this dim can be split. The smallest size counts: a matrix has heads
    /// times head_dim columns, and its result is reshaped to heads.
    bool divides(const Program& program, const Mesh& mesh, const std::string& dim, const Splits& earlier) const {
        ValueId least = none;
        int64_t size = 0;
        for (size_t i = 0; i < program.values.size(); ++i) {
            const auto id = static_cast<ValueId>(i);
            if (program.value(id).role != Role::param && !activation(program, id)) continue;
            const auto place = program.dim(id, dim);
            if (!place) continue;
            const int64_t n = program.value(id).type.shape[static_cast<size_t>(*place)];
            if (const auto found = earlier.find({id, *place}); found != earlier.end())
                if (const Split& other = found->second; n % (other.parts * mesh.size(axis_)) != 0) {
                    if (!optional_) refuse(program, mesh, dim, id, n, other);
                    return false;
                }
            if (least == none || n < size) least = id, size = n;
        }
        if (least == none || size % mesh.size(axis_) == 0) return true;
        if (!optional_) refuse(program, mesh, dim, least, size, Split{});
        return false;
    }

    [[noreturn]] void refuse(const Program& program, const Mesh& mesh, const std::string& dim, ValueId id, int64_t size,
                             const Split& other) const {
        const std::string& name = program.value(id).name;
        const std::string where =
            (name.empty() ? "%" + std::to_string(id) : name) + " (" + program.value(id).origin.text() + ")";
        const std::string axis = axis_text(mesh, axis_);
        if (dim == "kv_heads" && size < mesh.size(axis_))
            throw Error(origin_, "strategy tensor: " + axis + " is larger than kv_heads = " + std::to_string(size) +
                                     " of " + where +
                                     ": every rank needs a whole key and value head\n  use an axis that divides " +
                                     std::to_string(size) + ", or a model with more kv_heads");
        throw Error(origin_, "strategy tensor: cannot split " + dim + " over " + axis + ": " + std::to_string(size) +
                                 " of them in " + where + " are not a multiple of " +
                                 std::to_string(mesh.size(axis_) * other.parts) +
                                 (other.axes.empty() ? "" : " (it is also split over" + other.axes + ")") +
                                 "\n  choose a size that divides, leave the dim out of `dims`, or set optional = true "
                                 "to keep it whole");
    }

    [[noreturn]] void refuse_nothing(const Program& program) const {
        std::string asked, known;
        std::vector<std::string> names;
        for (const std::string& dim : dims_) asked += (asked.empty() ? "" : ", ") + dim;
        for (ValueId param : program.params())
            for (const std::string& dim : program.value(param).dims) {
                if (taken_.contains(param) && has(dims_, dim))
                    throw Error(origin_, "strategy tensor: another strategy has split every param with a dim named " +
                                             asked + " over " + axis_ + ", " + program.value(param).name +
                                             " among them, so that this one splits nothing\n  name other dims in "
                                             "`dims`, another axis, or set optional = true");
                if (!dim.empty() && !has(names, dim)) names.push_back(dim);
            }
        for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
        throw Error(origin_, "strategy tensor: no param has a dim named " + asked + "\n  the params' dims: " + known +
                                 "\n  name the dims to split in `dims`, or set optional = true");
    }

    /// Splits the first of the param's dims in `split`; notes a param that `optional` leaves whole. A param that an
    /// earlier strategy has split over the axis (`expert`) stays as it is.
    bool mark(Program& program, const Mesh& mesh, ValueId param, const std::vector<std::string>& split) const {
        if (taken_.contains(param)) return false;
        const std::vector<std::string> dims = program.value(param).dims;
        for (const std::string& dim : dims)
            if (has(split, dim)) {
                const Placement part = Placement::split(*program.dim(param, dim));
                program.store(param, axis_, part, origin_);
                // The gradient of a tied table is a sum of the embedding's and the head's, which are stored like it.
                for (ValueId term : program.grad_terms(param)) program.store(term, axis_, part, origin_);
                return true;
            }
        for (const std::string& dim : dims)
            if (has(dims_, dim))
                program.note(param, "whole over " + axis_text(mesh, axis_) + ": its " + dim + " do not divide",
                             origin_);
        return false;
    }

    /// Size of the value's dim seq; 0 without one.
    static int64_t seq_of(const Program& program, ValueId id) {
        const auto seq = program.dim(id, "seq");
        return seq ? program.value(id).type.shape[static_cast<size_t>(*seq)] : 0;
    }

    /// Whether `made` has the elements of `from`, [.., seq, ..], in groups of tokens: [.., seq (groups), tokens, ..].
    static bool forms_groups(const Program& program, ValueId from, ValueId made) {
        const int64_t tokens = seq_of(program, from), groups = seq_of(program, made);
        if (groups == 0 || groups >= tokens || tokens % groups != 0) return false;
        Shape grouped = program.value(from).type.shape;
        const auto seq = grouped.begin() + *program.dim(from, "seq");
        *seq = tokens / groups;
        grouped.insert(seq, groups);
        return program.dim(from, "seq") == program.dim(made, "seq") && program.value(made).type.shape == grouped;
    }

    /// Values with groups of tokens of a mixture instead of tokens: those that form them (true), and those that are
    /// computed from them and have as many.
    static std::map<ValueId, bool> values_of_groups(const Program& program) {
        std::map<ValueId, bool> groups;
        for (const Op& op : program.ops)
            for (const ValueId made : op.outputs) {
                const auto forms = [&](ValueId input) { return forms_groups(program, input, made); };
                const auto has_groups = [&](ValueId input) {
                    return groups.contains(input) && seq_of(program, input) == seq_of(program, made);
                };
                if (std::ranges::any_of(op.inputs, forms))
                    groups.emplace(made, true);
                else if (std::ranges::any_of(op.inputs, has_groups))
                    groups.emplace(made, false);
            }
        return groups;
    }

    /// Whether an earlier strategy splits experts over the axis, so that its ranks have groups of their own.
    bool splits_experts(const Program& program) const {
        return std::ranges::any_of(program.marks(), [&](const Mark& mark) {
            const auto dim = program.dim(mark.value, "experts");
            return program.value(mark.value).role == Role::param && mark.what == Mark::What::store &&
                   mark.axis == axis_ && dim && mark.placement == Placement::split(*dim);
        });
    }

    /// Whether the value is inside a block: its heads, or another of the dims, are split instead of the sequence.
    static bool inside(const Program& program, ValueId id, const std::vector<std::string>& dims) {
        const auto& of = program.value(id).dims;
        return program.dim(id, "head_dim") ||
               std::any_of(of.begin(), of.end(), [&](const auto& dim) { return has(dims, dim); });
    }

    /// Marks each block's input, and the gradient of its output, with keep = "part": ranks save their parts, and the
    /// matrix products with split params share one gather in each pass. Groups of tokens that all ranks have, and what
    /// has a batch but no sequence, such as slots of experts, are inside a block. The gradient of a param that is added
    /// along the sequence is gathered for the update.
    void keep_parts(Program& program, const std::vector<std::string>& split,
                    const std::map<ValueId, bool>& groups) const {
        const bool whole_groups = !splits_experts(program);
        const auto in_block = [&](ValueId id) {
            return inside(program, id, split) || (whole_groups && groups.contains(id)) ||
                   (program.dim(id, "batch") && !program.dim(id, "seq"));
        };
        std::set<ValueId> read;
        for (const Op& op : program.ops) {
            for (const ValueId id : op.outputs)
                if (const ValueId param = program.dim(id, "seq") ? source(program, id) : none; param != none)
                    if (const ValueId grad = program.grad_of(param); grad != none) read.insert(grad);
            if (op.phase == Phase::update ||
                (std::ranges::none_of(op.inputs, in_block) && std::ranges::none_of(op.outputs, in_block)))
                continue;
            for (const ValueId id : op.inputs)
                if (program.value(id).op != none && program.dim(id, "batch") && program.dim(id, "seq") &&
                    !inside(program, id, dims_) && !groups.contains(id))
                    read.insert(id);
        }
        for (const ValueId id : read)
            program.use(id, axis_, Placement::replicated(), origin_,
                        keep_ && activation(program, id) ? Keep::step : Keep::part);
    }

    /// The param that a value is made of alone; none if there is none.
    static ValueId source(const Program& program, ValueId id) {
        while (program.value(id).op != none && program.op(program.value(id).op).inputs.size() == 1)
            id = program.op(program.value(id).op).inputs[0];
        return program.value(id).role == Role::param ? id : none;
    }

    /// Splits activations with a batch and a sequence and none of the dims of split params: the residual stream, norms
    /// and dropouts.
    void split_sequence(Program& program, const Mesh& mesh, const Splits& earlier,
                        const std::map<ValueId, bool>& groups) const {
        Split outer;  // of the inputs' sequence, which activations follow
        for (const auto& [where, split] : earlier)
            if (program.dim(where.first, "seq") == where.second && split.parts > outer.parts) outer = split;
        const bool experts = splits_experts(program);
        for (size_t i = 0; i < program.values.size(); ++i) {
            const auto id = static_cast<ValueId>(i);
            if (program.value(id).op == none || !program.dim(id, "batch")) continue;
            if (const auto group = groups.find(id); group != groups.end()) {
                // Ranks that share the width of a mixture's experts have the same groups of tokens.
                if (!experts && group->second && is_float(program.value(id).type.dtype))
                    program.store(id, axis_, Placement::replicated(), origin_);
                continue;
            }
            if (!activation(program, id)) continue;
            const auto seq = program.dim(id, "seq");
            if (!seq || inside(program, id, dims_)) continue;
            const int64_t size = program.value(id).type.shape[static_cast<size_t>(*seq)];
            if (size % (mesh.size(axis_) * outer.parts) == 0)
                program.store(id, axis_, Placement::split(*seq), origin_);
            else if (optional_)
                program.note(id, "whole over " + axis_text(mesh, axis_) + ": its seq does not divide", origin_);
            else
                refuse(program, mesh, "seq", id, size, outer);
        }
    }

    std::string axis_;
    std::set<ValueId> taken_;  ///< values that earlier strategies split over the axis
    std::vector<std::string> dims_;
    bool sequence_;
    bool keep_;
    bool optional_;
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy("tensor", [](Config& options, const Origin& origin) {
        return std::make_unique<TensorParallel>(options, origin);
    });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.tensor", "0.1", orrery::add);
