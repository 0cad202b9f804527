#include "compile/passes/propagate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "compile/passes/scalar_sums.h"
#include "compile/passes/versions.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "layout/choose.h"
#include "layout/shards.h"
#include "layout/stages.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

/// One pass over the ops in order; each op is decided on its own. Every value has a preferred layout and the versions
/// that exist. For an op: read the preferred layouts of its inputs as splits of factors, let `choose` assign axes to
/// factors, redistribute inputs in other layouts (a new version, which later readers share), give the outputs the
/// layout of their factors, then redistribute outputs as marks or updates require.
class Propagation {
public:
    Propagation(const Program& annotated, const Mesh& mesh, const PropagateOptions& options)
        : annotated_(annotated),
          mesh_(mesh),
          options_(options),
          tried_(options.decompositions.size()),
          marks_(collect_marks(annotated, mesh)),
          sums_(annotated),
          versions_(annotated, mesh, options) {
        for (const Update& update : annotated.updates) targets_[update.value] = update.target;
        for (size_t id = 0; id < annotated.values.size(); ++id)
            if (annotated.values[id].role != Role::temporary) rest(id);
    }

    Program run() {
        for (size_t i = 0; i < annotated_.ops.size(); ++i)
            if (!sums_.inner(i)) propagate(annotated_.ops[i], i);
        remark_unused();
        finish();
        return versions_.finish();
    }

private:
    /// Gives an input, param or state the layout that its `store` marks request.
    void rest(ValueId id) {
        Value& value = versions_.program.value(id);
        const auto& store = marks_.store[id];
        value.layout = with_targets(Layout(value.type.shape.size()), store);
        add_uses(id, marks_.use[id]);
        versions_.held(id).pinned = value.role != Role::input && !(store.empty() && versions_.held(id).uses.empty());
        versions_.held(id).versions = {id};
        versions_.held(id).fragments = {-1};
        for (const Target& target : store) versions_.set_cause(id, target.axis, target.origin);
    }

    void add_uses(ValueId id, const std::vector<Target>& uses) {
        versions_.held(id).uses = uses;
        versions_.held(id).preferred = preferred_for(id, versions_.program.value(id).layout);
    }

    Layout preferred_for(ValueId id, const Layout& lies) const {
        const size_t place = id;
        const bool marked = place < marks_.store.size();
        return with_uses(lies, versions_.program.value(id).type.shape, versions_.held(id).uses,
                         marked ? marks_.store[place] : std::vector<Target>{}, mesh_);
    }

    void propagate(const Op& op, int index) {
        if (sums_.terms(index) && !sums_.mixed(index, versions_))
            for (OpId inner : sums_.additions(index)) propagate_one(annotated_.op(inner), inner);
        propagate_one(op, index);
    }

    void propagate_one(const Op& op, int index) {
        if (decompose(op, index)) return;
        if (sums_.terms(index) && sums_.mixed(index, versions_))
            return sums_.combine(index, versions_, mesh_,
                                 [&](const Op& like, OpId at, ValueId a, ValueId b, ValueId sum) {
                                     add_part(like, at, op_combining(ReduceOp::sum), {a, b}, {}, {sum});
                                 });
        FactorRule rule = rule_of(annotated_, op);
        if (rule.added_once.empty()) return apply(op, index, rule, decide(op, rule));
        // If an axis splits the contraction, each of its ranks would add the bias; so an add after the reduction does.
        Op bare = op;
        bare.inputs.erase(bare.inputs.begin() + rule.added_once.front());
        const FactorRule bare_rule = rule_of(annotated_, bare);
        const Assignment assignment = decide(bare, bare_rule);
        if (!contracts(bare_rule, assignment)) return apply(op, index, rule, decide(op, rule));
        Value sum = annotated_.value(op.outputs[0]);
        sum.name.clear();
        sum.role = Role::temporary;
        const ValueId product = versions_.add_value(std::move(sum));
        bare.outputs = {product};
        apply(bare, index, bare_rule, assignment);
        Op add = op;
        add.kind = op_combining(ReduceOp::sum);
        add.attributes = {};
        add.inputs = {product, op.inputs[rule.added_once.front()]};
        const FactorRule add_rule = rule_of(versions_.program, add);
        apply(add, index, add_rule, decide(add, add_rule));
    }

    /// Replaces an op by others if a decomposition of the script, or of its definition (OpDef::decompose), does so for
    /// the layouts of its inputs.
    bool decompose(const Op& op, int index) {
        const OpDef& def = op_def(op.kind);
        if (!def.decompose && options_.decompositions.empty()) return false;
        OpLayouts at{versions_.program, op, mesh_, {}, {}};
        for (ValueId input : op.inputs) {
            const Versions::Held& held = versions_.held(input);
            at.inputs.push_back(held.preferred);
            auto& asked = at.asked.emplace_back();
            for (const Target& use : held.uses)
                if (use.placement.kind == Kind::split && held.preferred.at(use.axis) == use.placement)
                    asked.push_back(use.axis);
        }
        if (decompose_by_script(op, index, at)) return true;
        if (!def.decompose) return false;
        const auto add = [&](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                             const std::vector<ValueId>& made) {
            require_part(op, kind, inputs, attributes, made);
            const auto moved = op_def(kind).collective;
            if (moved == Opcode::all_gather || moved == Opcode::all_to_all) {
                redistribute(op, index, *moved, inputs.at(0), attributes);
                return inputs;
            }
            // Two ops that need the same part, such as attention and its gradient, share its result and its
            // redistributions. A roll of activations is repeated, since its result would stay in memory between them.
            // A recomputed op shares nothing with its first run.
            const bool rolls = op_def(kind).moves == Moves::rolls && is_float(type_of(inputs.at(0)));
            if (!made.empty() || rolls)
                return add_part(op, index, kind, std::move(inputs), std::move(attributes), made);
            const bool again =
                op.phase == Phase::backward && op.forward != none && annotated_.op(op.forward).kind == op.kind;
            auto& parts = parts_[{std::string(kind), op.stage, again, inputs}];
            for (const auto& [same, outputs] : parts)
                if (same == attributes) return outputs;
            parts.emplace_back(attributes, add_part(op, index, kind, std::move(inputs), attributes, made));
            return parts.back().second;
        };
        const bool replaced = replace(op, "", add, [&](const AddPart& part) {
            return call_op(def.name, "decompose", [&] { return def.decompose(at, part); });
        });
        // Later readers of an input that was redistributed for the parts read it as they did before.
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const auto moved = redistributed_.find(op.inputs[i]);
            Layout& preferred = versions_.held(op.inputs[i]).preferred;
            if (moved != redistributed_.end() && preferred == moved->second) preferred = at.inputs[i];
        }
        redistributed_.clear();
        return replaced;
    }

    /// Tries the script's decompositions of an op, in order, over axes that split one of its inputs.
    bool decompose_by_script(const Op& op, int index, const OpLayouts& at) {
        for (size_t i = 0; i < tried_.size(); ++i) {
            const Decomposition& own = options_.decompositions[i];
            if (own.op != op.kind) continue;
            ++tried_[i].ops;
            const auto axis = mesh_.find(own.axis);
            const auto is_split = [&](const Layout& layout) { return layout.at(*axis).kind == Kind::split; };
            if (!axis || mesh_.size(*axis) == 1 || std::ranges::none_of(at.inputs, is_split)) continue;
            ++tried_[i].calls;
            const auto add = [&](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                                 const std::vector<ValueId>& made) {
                require_part(op, kind, inputs, attributes, made);
                return add_part(op, index, kind, std::move(inputs), std::move(attributes), made);
            };
            if (!replace(op, own.origin.text(), add, [&](const AddPart& part) { return own.parts(at, part); }))
                continue;
            ++tried_[i].replaced;
            return true;
        }
        return false;
    }

    /// Calls a decomposition, and checks that it adds ops for all outputs of the op and returns true, or adds none.
    /// `by`: the script's line of a decomposition of its own.
    bool replace(const Op& op, const std::string& by, const AddPart& add,
                 const std::function<bool(const AddPart&)>& parts) {
        bool added = false;
        const bool replaced = parts([&](auto&&... part) {
            added = true;
            return add(std::forward<decltype(part)>(part)...);
        });
        const auto lacking =
            std::ranges::find_if(op.outputs, [&](ValueId id) { return versions_.held(id).versions.empty(); });
        if (replaced ? lacking == op.outputs.end() : !added) return replaced;
        const std::string what =
            replaced ? fmt::format(
                           "returned true, but no op that it added makes the output {}\n  give it as `made` of "
                           "an added op, or return false and add no op",
                           describe(versions_.program, *lacking))
                     : "added ops, but returned false\n  decide whether it can replace the op before it adds an op";
        throw Error(op.origin, fmt::format("decompose of {}{} {}", title(op), by.empty() ? "" : " (" + by + ")", what));
    }

    /// Remarks on decompositions of the script that replaced no op of a train step, with the reason.
    void remark_unused() {
        for (size_t i = 0; i < tried_.size() && !annotated_.grads().empty(); ++i) {
            const Decomposition& own = options_.decompositions[i];
            const auto axis = mesh_.find(own.axis);
            if (tried_[i].replaced > 0 || (axis && mesh_.size(*axis) == 1)) continue;
            const std::string reason = !axis                ? fmt::format("the mesh has no axis {}", own.axis)
                                       : tried_[i].ops == 0 ? "the step has no such op"
                                       : tried_[i].calls > 0
                                           ? "its function returned false for all of them"
                                           : fmt::format(
                                                 "none reads a value split by {}: mark what they read in a strategy, "
                                                 "as in x:use {{ {} = S(2) }}",
                                                 own.axis, own.axis);
            versions_.program.note(none,
                                   fmt::format("decomposition of {} over {} replaces none of {}: {}", own.op, own.axis,
                                               plural(tried_[i].ops, "op"), reason),
                                   own.origin);
        }
    }

    DType type_of(ValueId id) const { return versions_.program.value(id).type.dtype; }

    /// Redistributes a value over one axis for the parts of a decomposition that are added next.
    void redistribute(const Op& op, int index, Opcode moved, ValueId value, const Attributes& attributes) {
        const auto axis = mesh_.find(attributes.text("axis"));
        if (!axis)
            throw Error(op.origin, fmt::format("decompose of {}: {} names the axis {}, which the mesh lacks", title(op),
                                               name_of(moved), attributes.text("axis")));
        Layout layout = versions_.held(value).preferred;
        layout.set(*axis, moved == Opcode::all_gather ? Placement::replicated()
                                                      : Placement::split(static_cast<int>(attributes.integer("to"))));
        const Reader reader{index, "part of " + title(op), "its decomposition asks for it", op.origin, false, true};
        versions_.reshard_to(value, layout, reader);
        versions_.held(value).preferred = redistributed_[value] = layout;
    }

    /// Throws Error if an op of a decomposition is invalid, since plugins may define decompositions.
    void require_part(const Op& op, std::string_view kind, const std::vector<ValueId>& inputs, Attributes attributes,
                      const std::vector<ValueId>& made) const {
        const auto refuse = [&](const std::string& what) {
            throw Error(op.origin, fmt::format("decompose of {}: {} {}", title(op), kind, what));
        };
        for (const ValueId input : inputs) {
            if (input < 0 || input >= std::ssize(versions_.program.values))
                refuse(fmt::format("reads value {}, which does not exist", input));
            if (versions_.held(input).versions.empty())
                refuse(fmt::format("reads {}, which no op before it makes", describe(versions_.program, input)));
        }
        if (made.empty()) return;
        const std::vector<Typed> typed = infer(op_def(kind), versions_.program, inputs, attributes, op.origin);
        if (made.size() != typed.size()) refuse(fmt::format("has {} outputs, {} are named", typed.size(), made.size()));
        for (size_t i = 0; i < made.size(); ++i) {
            if (std::ranges::count(op.outputs, made[i]) == 0)
                refuse(fmt::format("names value {} as output, which is not an output of the op", made[i]));
            if (versions_.program.value(made[i]).type != typed[i].type)
                refuse(fmt::format("returns {}, a type that differs from the type of output {}", typed[i].type.text(),
                                   describe(versions_.program, made[i])));
            if (!versions_.held(made[i]).versions.empty())
                refuse(fmt::format("names output {}, which an op that was added before makes",
                                   describe(versions_.program, made[i])));
        }
    }

    /// Adds an op of a decomposition. Its outputs are the values in `made`, or new ones. Returns them.
    std::vector<ValueId> add_part(const Op& like, int index, std::string_view kind, std::vector<ValueId> inputs,
                                  Attributes attributes, const std::vector<ValueId>& made) {
        Op op = like;
        op.kind = kind;
        op.inputs = std::move(inputs);
        op.attributes = std::move(attributes);
        op.outputs = made;
        const OpDef& def = op_def(op.kind);
        for (Typed& typed : infer(def, versions_.program, op.inputs, op.attributes, op.origin)) {
            if (!made.empty()) break;
            Value value;
            value.type = std::move(typed.type);
            value.dims = std::move(typed.dims);
            value.origin = op.origin;
            op.outputs.push_back(versions_.add_value(std::move(value)));
        }
        const std::vector<ValueId> outputs = op.outputs;
        const FactorRule rule = rule_of(versions_.program, op);
        const Assignment assignment = decide(op, rule);
        if (def.moves == Moves::rolls) op.attributes.set("cause", "part of " + title(like));
        apply(std::move(op), index, rule, assignment);
        return outputs;
    }

    static bool contracts(const FactorRule& rule, const Assignment& assignment) {
        for (size_t factor = 0; factor < rule.factors.size(); ++factor)
            if (!assignment.splits[factor].empty() && rule.factors[factor].kind == Factor::Kind::contracted)
                return true;
        return false;
    }

    /// Whether an op casts a param. It reads the param as stored; `use` marks apply to its output, which is smaller.
    bool casts_param(const Op& op) const {
        return op.phase != Phase::update && op_def(op.kind).casts &&
               versions_.program.value(op.inputs[0]).role == Role::param;
    }

    /// Whether the value lists row ids of an index op. It keeps its layout: if every rank read all ids, the op would
    /// make rows for all ranks, and their sum would be reduce-scattered.
    static bool picks_rows(const FactorRule& rule, const Value& value) {
        return value.role == Role::temporary && !is_float(value.type.dtype) &&
               std::ranges::any_of(rule.factors, [](const Factor& f) { return f.kind == Factor::Kind::index; });
    }

    Assignment decide(const Op& op, const FactorRule& rule) {
        const int fragment = Versions::fragment_of(op);
        const bool at_rest = op.phase == Phase::update || casts_param(op);
        std::vector<Candidate> candidates;
        for (ValueId input : op.inputs) {
            const Versions::Held& held = versions_.held(input);
            const Value& value = versions_.program.value(input);
            Candidate candidate{&value.type,
                                at_rest && value.role == Role::param ? &value.layout : &held.preferred,
                                {},
                                held.pinned || picks_rows(rule, value),
                                held.source >= 0,
                                {}};
            for (const Target& use : held.uses)
                if (use.keep == Keep::part) candidate.parts.push_back(use.axis);
            for (size_t i = 0; i < held.versions.size(); ++i)
                if (versions_.usable(held, i, fragment))
                    candidate.held.push_back(&versions_.program.value(held.versions[i]).layout);
            refuse_uneven(op, input, *candidate.preferred, rule, candidates.size());
            candidates.push_back(std::move(candidate));
        }
        std::vector<Constraint> constraints;
        for (size_t i = 0; i < op.outputs.size(); ++i)
            if (auto constraint = demand_of(op.outputs[i], i)) constraints.push_back(std::move(*constraint));
        return choose(rule, candidates, constraints, versions_.resharder, mesh_);
    }

    std::optional<Constraint> demand_of(ValueId value, size_t output) const {
        if (static_cast<size_t>(value) >= annotated_.values.size()) return std::nullopt;
        Constraint constraint{output, &annotated_.value(value).type, {}, marks_.store[value]};
        const auto target = targets_.find(value);
        if (target != targets_.end()) constraint.rest = versions_.program.value(target->second).layout;
        if (!constraint.rest && constraint.targets.empty()) return std::nullopt;
        return constraint;
    }

    /// The name of a factor: that of a dim of an operand which is this factor alone.
    std::string name_of_factor(const Op& op, const FactorRule& rule, int factor) const {
        const auto look = [&](const std::vector<ValueId>& operands, const std::vector<FactorRule::Dims>& dims) {
            for (size_t i = 0; i < operands.size(); ++i)
                for (size_t d = 0; d < dims[i].size(); ++d)
                    if (dims[i][d] == std::vector<int>{factor}) {
                        const auto& names = versions_.program.value(operands[i]).dims;
                        if (d < names.size() && !names[d].empty()) return names[d];
                    }
            return std::string();
        };
        const std::string name = look(op.outputs, rule.outputs);
        return name.empty() ? look(op.inputs, rule.inputs) : name;
    }

    static std::string title(const Op& op) { return fmt::format("{} %{}", op.kind, op.outputs[0]); }

    void refuse_uneven(const Op& op, ValueId input, const Layout& preferred, const FactorRule& rule, size_t i) const {
        for (const Preference& w : preferences_of(preferred, rule.inputs[i], rule, mesh_)) {
            if (w.blocked != Blocked::uneven) continue;
            const std::string name = name_of_factor(op, rule, w.factor);
            const std::string cause = versions_.cause(input, w.axis).text();
            std::string others;
            for (AxisId axis : preferred.splits()[w.dim])
                if (axis != w.axis) others += fmt::format(" and {}={}", mesh_.axis(axis).name, mesh_.size(axis));
            const std::string axis = fmt::format("{}={}", mesh_.axis(w.axis).name, mesh_.size(w.axis));
            throw Error(op.origin,
                        fmt::format("{} cannot be split over {}: {} is split in dim {}{}, which holds {}of size {}; "
                                    "choose a size divisible by {}{}, or do not split this dim over {}",
                                    title(op), axis, describe(versions_.program, input), w.dim,
                                    cause.empty() ? "" : " by " + cause, name.empty() ? "a factor " : name + " ",
                                    rule.factors[w.factor].size, axis, others, mesh_.axis(w.axis).name));
        }
    }

    /// Redistributes an op's inputs as the assignment of axes to factors requires; sets the layouts of its outputs.
    void apply(Op op, int index, const FactorRule& rule, const Assignment& assignment) {
        bool inside = false;
        ValueId late = none;
        const std::vector<ValueId> read = op.inputs;
        const bool cast = casts_param(op) && read.size() == 1;
        for (size_t i = 0; i < read.size(); ++i) {
            const Layout needed = input_layout(rule, i, assignment);
            const Reader reader{index, "for " + title(op), why(op, rule, assignment, read, i), op.origin, false};
            op.inputs[i] = versions_.reshard_to(read[i], needed, reader);
            if (versions_.leaves_loop(op.inputs[i], needed)) late = read[i];
            inside = inside || in_loop(needed);
        }
        for (size_t i = 0; i < op.outputs.size(); ++i) {
            const Layout layout = output_layout(rule, i, assignment);
            inside = inside || in_loop(layout);
            versions_.program.value(op.outputs[i]).layout = layout;
        }
        blame(rule, assignment, read, op.outputs);
        if (op_def(op.kind).moves == Moves::rolls) exchange(op);
        if (inside && late != none) refuse_sum_inside(op, read, late);
        for (ValueId output : op.outputs) {
            auto& held = versions_.held(output);
            held.versions = {output};
            held.fragments = {-1};
            if (late != none) versions_.set_late(output);
            add_uses(output, cast                                              ? marks_.use[read[0]]
                             : static_cast<size_t>(output) < marks_.use.size() ? marks_.use[output]
                                                                               : std::vector<Target>{});
            held.pinned = cast && versions_.held(read[0]).pinned;
        }
        const std::vector<ValueId> made = op.outputs;
        const bool source = op_def(op.kind).source && std::ranges::all_of(read, [&](ValueId id) {
                                return versions_.program.value(id).type.shape.empty();
                            });
        versions_.emit(std::move(op), index);
        if (source) versions_.mark_source(made[0]);
        for (ValueId output : made) satisfy(output, index);
    }

    /// Notes in a roll the axis over which ranks exchange blocks: the outermost one that splits the rolled dim, if any.
    void exchange(Op& op) const {
        const Value& y = versions_.program.value(op.outputs[0]);
        for (std::string_view note : {"axis", "sends"}) op.attributes.erase(note);
        if (op.attributes.integer("by") == 0) return;
        for (AxisId axis : y.layout.splits()[op.attributes.integer("dim")]) {
            if (mesh_.size(axis) == 1) continue;
            op.attributes.set("axis", mesh_.axis(axis).name);
            op.attributes.set("sends", local_bytes(y, mesh_));
            return;
        }
    }

    static bool splits(const Layout& layout, AxisId axis) { return layout.at(axis).kind != Kind::replicate; }
    bool in_loop(const Layout& layout) const {
        return mesh_.microbatches() > 1 && splits(layout, static_cast<AxisId>(mesh_.axes().size()) - 1);
    }

    /// Redistributes a new value as its marks require, or the param or state that it updates.
    void satisfy(ValueId value, int index) {
        const auto constraint = demand_of(value, 0);
        if (!constraint) return;
        const Layout natural = versions_.program.value(value).layout;
        std::vector<Target> targets;
        if (constraint->rest) {
            const ValueId target = targets_.at(value);
            const Reader reader{index, "update of " + label_of(annotated_, target),
                                "an updated value must lie as its target rests", annotated_.value(target).origin, true};
            versions_.held(value).preferred = *constraint->rest;
            versions_.reshard_to(value, *constraint->rest, reader);
            return;
        }
        Layout wanted = natural;
        for (const Target& target : constraint->targets) {
            const Layout next = with_targets(wanted, {target});
            if (target.optional && !versions_.resharder.path(*constraint->type, wanted, next)) continue;
            wanted = next;
            versions_.set_cause(value, target.axis, target.origin);
        }
        const Reader reader{index, "store of " + label_of(annotated_, value), "it is marked so",
                            constraint->targets.front().origin, true};
        versions_.reshard_to(value, wanted, reader);
        if (versions_.held(value).preferred == natural) versions_.held(value).preferred = preferred_for(value, wanted);
    }

    /// Sets what caused the placements of outputs. For each axis: the origin of the first input that the axis splits by
    /// the same factor, else of the first one that is not replicated over it.
    void blame(const FactorRule& rule, const Assignment& assignment, const std::vector<ValueId>& read,
               const std::vector<ValueId>& made) {
        std::vector<int> factor(mesh_.axes().size(), -1);
        for (size_t f = 0; f < assignment.splits.size(); ++f)
            for (AxisId axis : assignment.splits[f]) factor[axis] = static_cast<int>(f);
        std::vector<Origin> first(factor.size());
        std::vector<Origin> same(factor.size());
        for (size_t i = 0; i < read.size(); ++i) {
            const Layout& preferred = versions_.held(read[i]).preferred;
            for (const auto& partial : preferred.partials()) keep(first, partial.axis, read[i]);
            for (const Preference& w : preferences_of(preferred, rule.inputs[i], rule, mesh_)) {
                keep(first, w.axis, read[i]);
                if (w.factor == factor[w.axis]) keep(same, w.axis, read[i]);
            }
        }
        for (ValueId output : made)
            for (size_t a = 0; a < factor.size(); ++a)
                if (splits(versions_.program.value(output).layout, a))
                    versions_.set_cause(output, a, same[a] == Origin{} ? first[a] : same[a]);
    }
    void keep(std::vector<Origin>& causes, AxisId axis, ValueId input) const {
        Origin& cause = causes[axis];
        if (cause == Origin{}) cause = versions_.cause(input, axis);
    }

    /// The reason why an input of an op must have its layout, for error messages.
    std::string why(const Op& op, const FactorRule& rule, const Assignment& assignment,
                    const std::vector<ValueId>& read, size_t i) const {
        const Layout& preferred = versions_.held(read[i]).preferred;
        if (preferred == input_layout(rule, i, assignment)) return "";
        for (const Preference& w : preferences_of(preferred, rule.inputs[i], rule, mesh_))
            if (w.blocked == Blocked::whole) {
                const std::string name = name_of_factor(op, rule, w.factor);
                const int64_t turn = w.factor < 0 ? 0 : rule.factors[w.factor].turn;
                return fmt::format("{} reads dim {}{} whole{}", op.kind, w.dim, name.empty() ? "" : " (" + name + ")",
                                   turn == 0 ? "" : fmt::format(", as {} is not a multiple of a rank's block", turn));
            }
        for (size_t other = 0; other < read.size(); ++other) {
            if (other == i) continue;
            for (const Preference& w :
                 preferences_of(versions_.held(read[other]).preferred, rule.inputs[other], rule, mesh_)) {
                if (w.blocked != Blocked::no || preferred.at(w.axis) == Placement::replicated()) continue;
                const std::string cause = versions_.cause(read[other], w.axis).text();
                return fmt::format("{} lies {}:{}{}", label_of(versions_.program, read[other]), mesh_.axis(w.axis).name,
                                   Placement::split(w.dim).text(), cause.empty() ? "" : " (by " + cause + ")");
            }
        }
        return "its block would not be contiguous";
    }

    [[noreturn]] void refuse_sum_inside(const Op& op, const std::vector<ValueId>& read, ValueId late) const {
        std::string piece;
        for (ValueId input : read)
            if (input != late && in_loop(versions_.held(input).preferred)) piece = describe(versions_.program, input);
        throw Error(op.origin,
                    fmt::format("{} combines {}, a sum over all {} micro-batches, with {}, which exists for one "
                                "micro-batch at a time; compute it per sample, or use one micro-batch",
                                title(op), describe(versions_.program, late), mesh_.microbatches(),
                                piece.empty() ? "another value" : piece));
    }

    void finish() {
        Program& program = versions_.program;
        for (Result& result : program.results) result.value = complete(result.value, "result " + result.name);
        for (Update& update : program.updates) {
            const Layout rest = program.value(update.target).layout;
            const int index = std::max(annotated_.value(update.value).op, 0);
            const Reader reader{index, "update of " + label_of(annotated_, update.target),
                                "an updated value must lie as its target rests", annotated_.value(update.target).origin,
                                true};
            update.value = versions_.reshard_to(update.value, rest, reader);
        }
        for (ValueId param : annotated_.params()) {
            const ValueId grad = annotated_.grad_of(param);
            if (grad == none) continue;
            for (ValueId version : versions_.held(grad).versions)
                if (program.value(version).layout == versions_.held(grad).preferred) program.set_grad(param, version);
        }
    }

    ValueId complete(ValueId value, const std::string& cause) {
        Layout wanted = versions_.held(value).preferred;
        const auto partials = wanted.partials();
        for (const auto& partial : partials) wanted.set(partial.axis, Placement::replicated());
        const int index = std::max(annotated_.value(value).op, 0);
        return versions_.reshard_to(value, wanted,
                                    {index, cause, "the host reads it", annotated_.value(value).origin, true});
    }

    const Program& annotated_;
    const Mesh& mesh_;
    const PropagateOptions& options_;
    /// Counts for a decomposition of the script: ops of its kind; of these, calls for ops with an input split by its
    /// axis; of these, ops that it replaced.
    struct Tried {
        int64_t ops = 0, calls = 0, replaced = 0;
    };
    std::vector<Tried> tried_;  // by index in PropagateOptions::decompositions
    const Marks marks_;
    const ScalarSums sums_;
    Versions versions_;
    std::map<ValueId, ValueId> targets_;       // by new value: the param or state that it updates
    std::map<ValueId, Layout> redistributed_;  // layouts that a decomposition requires for its parts
    /// Outputs of ops that decompositions added, by kind, stage, whether the op is recomputed, and inputs; then by
    /// attributes.
    std::map<std::tuple<std::string, int, bool, std::vector<ValueId>>,
             std::vector<std::pair<Attributes, std::vector<ValueId>>>>
        parts_;
};

}  // namespace

Program propagate(const Program& placed, const Mesh& mesh, const PropagateOptions& options) {
    return Propagation(placed, mesh, options).run();
}

}  // namespace orrery
