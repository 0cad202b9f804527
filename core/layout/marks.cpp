#include "layout/marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/describe.h"

namespace orrery {

namespace {

using Kind = Placement::Kind;

std::string dim_text(const Value& value, int dim) {
    const size_t d = dim;
    const std::string name = d < value.dims.size() ? value.dims[d] : "";
    return name.empty() ? fmt::format("dim {} of size {}", dim, value.type.shape[d])
                        : fmt::format("dim {} ({}) of size {}", dim, name, value.type.shape[d]);
}

class Collector {
public:
    Collector(const Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {
        marks_.store.resize(program.values.size());
        marks_.use.resize(program.values.size());
    }

    Marks run() {
        for (const Mark& mark : program_.marks())
            if (mark.what == Mark::What::store) add(mark);
        inherit();
        // `use` marks come second, because each is checked together with all `store` marks of its value.
        for (const Mark& mark : program_.marks())
            if (mark.what == Mark::What::use) add(mark);
        order_batch();
        split_inputs();
        return std::move(marks_);
    }

private:
    void add(const Mark& mark) {
        const auto axis = mesh_.find(mark.axis);
        if (!axis || mesh_.size(*axis) == 1) return;
        const Value& value = program_.value(mark.value);
        if (mesh_.axis(*axis).sequential)
            throw Error(mark.origin, fmt::format("cannot mark {} on axis {}: micro-batches split only the dim batch of "
                                                 "inputs; set train.microbatches instead",
                                                 describe(program_, mark.value), mark.axis));
        const Pipeline& pipeline = program_.pipeline();
        if (mark.axis == pipeline.axis && mark.placement.kind != Kind::replicate)
            throw Error(mark.origin,
                        fmt::format("cannot mark {} {} over {}={}: the pipeline ({}) uses this axis, and its ranks run "
                                    "different layers\n  give the two strategies different axes of the mesh",
                                    describe(program_, mark.value), mark.placement.text(), mark.axis, mesh_.size(*axis),
                                    pipeline.origin.text()));
        if (mark.keep == Keep::part && mark.placement.kind != Kind::replicate)
            throw Error(mark.origin,
                        fmt::format("cannot mark the use of {} {} over {} with keep = \"part\": this value of keep is "
                                    "only for the placement R\n  mark it R, or leave keep = \"part\" out",
                                    describe(program_, mark.value), mark.placement.text(), mark.axis));
        const bool at_rest = value.role != Role::temporary;
        if (mark.placement.kind == Kind::partial && at_rest)
            throw Error(mark.origin,
                        fmt::format("cannot store {} as {} over {}: only outputs of ops can be partial; mark "
                                    "it S(dim) or R",
                                    describe(program_, mark.value), mark.placement.text(), mark.axis));
        const Target target{*axis, mark.placement, mark.keep, mark.optional, mark.origin};
        auto& targets = mark.what == Mark::What::store ? marks_.store[mark.value] : marks_.use[mark.value];
        Layout layout = with_targets(Layout(value.type.shape.size()), marks_.store[mark.value]);
        if (mark.what == Mark::What::use) layout = with_targets(layout, marks_.use[mark.value]);
        layout.set(target.axis, target.placement);
        if (divides(mark.value, layout, target)) targets.push_back(target);
    }

    /// True when a dim is divisible by all axes that split it. Throws Error when not, unless the mark is optional.
    bool divides(ValueId id, const Layout& layout, const Target& target) const {
        if (target.placement.kind != Kind::split) return true;
        const Value& value = program_.value(id);
        const size_t dim = target.placement.dim;
        int64_t parts = 1;
        std::string others;
        for (AxisId axis : layout.splits()[dim]) {
            parts *= mesh_.size(axis);
            if (axis != target.axis) others += fmt::format(" {}={}", mesh_.axis(axis).name, mesh_.size(axis));
        }
        if (value.type.shape[dim] % parts == 0) return true;
        if (target.optional) return false;
        throw Error(target.origin,
                    fmt::format("cannot split {} over {}={}: {} is not a multiple of {}{}; choose a size or an axis "
                                "that divides, or split another dim",
                                describe(program_, id), mesh_.axis(target.axis).name, mesh_.size(target.axis),
                                dim_text(value, target.placement.dim), parts,
                                others.empty() ? "" : fmt::format(" (it is also split over{})", others)));
    }

    void inherit() {
        for (size_t id = 0; id < program_.values.size(); ++id) {
            const Value& value = program_.values[id];
            if (value.role == Role::state && value.of != none) inherit(id, value.of);
            if (value.role != Role::param || marks_.store[id].empty()) continue;
            const ValueId grad = program_.grad_of(id);
            if (grad != none) inherit(grad, id);
        }
    }

    /// Gives a state or gradient the store marks of its param, except on axes on which it has a mark of its own.
    void inherit(ValueId id, ValueId param) {
        const Value& value = program_.value(id);
        if (program_.value(param).type.shape != value.type.shape) return;
        std::vector<Target> own = std::move(marks_.store[id]);
        std::vector<Target> both;
        for (const Target& target : marks_.store[param])
            if (std::none_of(own.begin(), own.end(), [&](const Target& t) { return t.axis == target.axis; }))
                both.push_back(target);
        // Checks the own marks again: now axes of the param split the dim, too, which add() did not know.
        for (Target& target : own) {
            Layout layout = with_targets(Layout(value.type.shape.size()), both);
            layout.set(target.axis, target.placement);
            if (divides(id, layout, target)) both.push_back(std::move(target));
        }
        marks_.store[id] = std::move(both);
    }

    bool splits_batch(ValueId input, const Target& target) const {
        return target.placement.kind == Kind::split && program_.dim(input, "batch") == target.placement.dim;
    }

    /// Finds the axes that an all-to-all moves from the batch to another dim (experts): they split the batch of inputs,
    /// and another dim of an activation. They are inside `micro`, and the axis that moves first is innermost.
    void order_batch() {
        std::set<AxisId> axes;
        for (const ValueId id : program_.inputs())
            for (const Target& target : marks_.store[id])
                if (splits_batch(id, target)) axes.insert(target.axis);
        for (const Op& op : program_.ops)
            for (const ValueId id : op.outputs)
                for (const Target& target : marks_.store[id])
                    if (target.placement.kind == Kind::split && program_.dim(id, "batch") &&
                        !splits_batch(id, target) && axes.erase(target.axis) > 0)
                        leaving_.push_back(target.axis);
        const auto depth = [&](const Target& target) {
            return leaving_.end() - std::ranges::find(leaving_, target.axis);
        };
        for (const ValueId id : program_.inputs()) std::ranges::stable_sort(marks_.store[id], {}, depth);
    }

    void split_inputs() {
        if (mesh_.microbatches() == 1) return;
        const auto micro = static_cast<AxisId>(mesh_.axes().size() - 1);
        for (size_t id = 0; id < program_.values.size(); ++id) {
            const Value& value = program_.values[id];
            if (value.role != Role::input) continue;
            const auto dim = program_.dim(id, "batch");
            if (!dim) continue;
            const Layout layout = with_targets(Layout(value.type.shape.size()), marks_.store[id]);
            int64_t parts = mesh_.microbatches();
            std::string others;
            for (AxisId axis : layout.splits()[*dim]) {
                parts *= mesh_.size(axis);
                others += fmt::format(" and {}={}", mesh_.axis(axis).name, mesh_.size(axis));
            }
            if (value.type.shape[*dim] % parts != 0)
                throw Error(
                    value.origin,
                    fmt::format("cannot split {} into {} micro-batches{}: {} is not a multiple of {}; change "
                                "the batch or the number of micro-batches",
                                describe(program_, id), mesh_.microbatches(), others, dim_text(value, *dim), parts));
            auto& targets = marks_.store[id];
            const auto inner = std::ranges::find_if(
                targets, [&](const Target& target) { return std::ranges::count(leaving_, target.axis) > 0; });
            targets.insert(inner, {micro, Placement::split(*dim), Keep::step, false, value.origin});
        }
    }

    const Program& program_;
    const Mesh& mesh_;
    Marks marks_;
    std::vector<AxisId> leaving_;  ///< axes that move from the batch to another dim, in this order
};

}  // namespace

Marks collect_marks(const Program& program, const Mesh& mesh) { return Collector(program, mesh).run(); }

Layout with_targets(Layout layout, const std::vector<Target>& targets) {
    for (const Target& target : targets)
        if (layout.at(target.axis) != target.placement) layout.set(target.axis, target.placement);
    return layout;
}

Layout with_uses(const Layout& lies, const Shape& shape, const std::vector<Target>& uses,
                 const std::vector<Target>& stores, const Mesh& mesh) {
    Layout preferred = lies;
    for (const Target& use : uses)
        if (use.keep != Keep::part) preferred = with_targets(preferred, {use});
    const auto names = [](const std::vector<Target>& targets, AxisId axis) {
        return std::any_of(targets.begin(), targets.end(),
                           [&](const Target& t) { return t.axis == axis && t.keep != Keep::part; });
    };
    for (const Target& use : uses) {
        if (use.placement.kind != Kind::split) continue;
        const size_t dim = use.placement.dim;
        const std::vector<AxisId> axes = preferred.splits()[dim];
        int64_t parts = 1;
        for (AxisId axis : axes) parts *= mesh.size(axis);
        for (size_t i = axes.size(); i-- > 0 && shape[dim] % parts != 0;) {
            if (names(uses, axes[i]) || names(stores, axes[i]) || mesh.axis(axes[i]).sequential) continue;
            parts /= mesh.size(axes[i]);
            preferred.set(axes[i], Placement::replicated());
        }
    }
    return preferred;
}

}  // namespace orrery
