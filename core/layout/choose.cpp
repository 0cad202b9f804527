#include "layout/choose.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <tuple>

namespace orrery {

namespace {

using Kind = Placement::Kind;
constexpr int64_t unreachable = int64_t{1} << 50;
constexpr int replicated = -1;
constexpr int passed_on = -2;

/// The layout of an input or a constraint, whose order of axes the choice may follow.
struct Source {
    const Layout* layout;
    const FactorRule::Dims* dims;
};

class Chooser {
public:
    Chooser(const FactorRule& rule, std::span<const Candidate> inputs, std::span<const Constraint> constraints,
            Resharder& resharder, const Mesh& mesh)
        : rule_(rule), inputs_(inputs), demands_(constraints), resharder_(resharder), mesh_(mesh) {
        wanted_.reserve(constraints.size());
        for (const Constraint& constraint : constraints)
            wanted_.push_back(constraint.from(Layout(constraint.type->shape.size()), mesh));
        for (size_t i = 0; i < inputs.size(); ++i) sources_.push_back({inputs[i].preferred, &rule.inputs[i]});
        for (size_t i = 0; i < constraints.size(); ++i)
            sources_.push_back({&wanted_[i], &rule.outputs[constraints[i].output]});
    }

    Assignment run() {
        collect_options();
        std::vector<int> pick(options_.size(), replicated);
        walk(0, pick);
        assert(best_);
        return *best_;
    }

private:
    void collect_options() {
        options_.resize(mesh_.axes().size());
        for (AxisId axis = 0; axis < std::ssize(options_); ++axis)
            if (mesh_.size(axis) > 1 && passes_on(axis)) options_[axis].push_back(passed_on);
        for (const Source& source : sources_)
            for (const Preference& preferred : preferences_of(*source.layout, *source.dims, rule_, mesh_)) {
                if (preferred.blocked != Blocked::no) continue;
                auto& options = options_[preferred.axis];
                if (std::find(options.begin(), options.end(), preferred.factor) == options.end())
                    options.push_back(preferred.factor);
            }
        for (auto& options : options_) options.push_back(replicated);
    }

    bool passes_on(AxisId axis) const {
        if (rule_.linear_in.empty() || mesh_.axis(axis).sequential) return false;
        return std::all_of(rule_.linear_in.begin(), rule_.linear_in.end(),
                           [&](int i) { return inputs_[i].preferred->at(axis) == Placement::partial(ReduceOp::sum); });
    }

    /// Tries all combinations of options in order, until one moves no bytes. Most ops have one or two combinations.
    void walk(size_t axis, std::vector<int>& pick) {
        if (done_) return;
        if (axis == options_.size()) return enforce_budget(pick);
        for (int option : options_[axis]) {
            pick[axis] = option;
            walk(axis + 1, pick);
        }
    }

    void enforce_budget(const std::vector<int>& pick) {
        std::vector<int> count(rule_.factors.size(), 0);
        bool ordered = false;
        for (int option : pick)
            if (option >= 0 && ++count[option] > 1) ordered = true;
        for (size_t leader = 0; leader < (ordered ? sources_.size() : 1); ++leader)
            enforce_budget(assemble(pick, leader));
    }

    /// Orders the axes of each factor as source `leader` does, then as the other sources do. `micro` is innermost, with
    /// one exception: an axis that a source has inside `micro` stays inside it.
    Assignment assemble(const std::vector<int>& pick, size_t leader) const {
        Assignment result;
        result.splits.resize(rule_.factors.size());
        AxisId last = -1;
        std::vector<AxisId> inside;
        for (size_t i = 0; i < sources_.size(); ++i) {
            const Source& source = sources_[i == 0 ? leader : i <= leader ? i - 1 : i];
            for (const auto& axes : source.layout->splits())
                for (size_t at = 0; at < axes.size(); ++at) {
                    const AxisId axis = axes[at];
                    const int factor = pick[axis];
                    if (factor < 0) continue;
                    if (mesh_.axis(axis).sequential) {
                        last = axis;
                        inside.insert(inside.end(), axes.begin() + at + 1, axes.end());
                        continue;
                    }
                    auto& list = result.splits[factor];
                    if (std::find(list.begin(), list.end(), axis) == list.end()) list.push_back(axis);
                }
        }
        if (last >= 0) {
            auto& list = result.splits[pick[last]];
            list.insert(std::ranges::find_first_of(list, inside), last);
        }
        for (size_t i = 0; i < pick.size(); ++i)
            if (pick[i] == passed_on) result.linear.push_back({static_cast<AxisId>(i), ReduceOp::sum});
        return result;
    }

    void enforce_budget(Assignment assignment) {
        if (!legal(rule_, assignment, mesh_)) return;
        int64_t pinned = 0;
        int64_t all = 0;
        for (size_t i = 0; i < inputs_.size(); ++i) {
            const int64_t cost = cost_of(inputs_[i], input_layout(rule_, i, assignment));
            all += cost;
            // An unreachable layout counts as pinned, so that a choice that only moves a pinned input is better.
            if (inputs_[i].pinned || cost >= unreachable) pinned += cost;
        }
        for (const Constraint& constraint : demands_) {
            const Layout natural = output_layout(rule_, constraint.output, assignment);
            const ReshardPath* path = resharder_.path(*constraint.type, natural, constraint.from(natural, mesh_));
            all += path ? path->cost : unreachable;
        }
        if (best_ && std::tie(pinned, all) >= std::tie(best_pinned_, best_all_)) return;
        best_ = std::move(assignment);
        best_pinned_ = pinned;
        best_all_ = all;
        done_ = all == 0;
    }

    int64_t cost_of(const Candidate& candidate, const Layout& needed) const {
        if (candidate.free) return 0;
        int64_t best = unreachable;
        for (const Layout* held : candidate.held) {
            Layout from = *held;
            for (const AxisId axis : candidate.parts)
                if (needed.at(axis) == Placement::replicated() && from.at(axis).kind == Kind::split)
                    from.set(axis, Placement::replicated());
            if (const ReshardPath* path = resharder_.path(*candidate.type, from, needed))
                best = std::min(best, path->cost);
        }
        return best;
    }

    const FactorRule& rule_;
    std::span<const Candidate> inputs_;
    std::span<const Constraint> demands_;
    Resharder& resharder_;
    const Mesh& mesh_;
    std::vector<Layout> wanted_;
    std::vector<Source> sources_;
    std::vector<std::vector<int>> options_;  // by axis: factors that it may split; passed_on; replicated
    std::optional<Assignment> best_;
    int64_t best_pinned_ = 0;
    int64_t best_all_ = 0;
    bool done_ = false;
};

}  // namespace

Layout Constraint::from(const Layout& natural, const Mesh& mesh) const {
    if (rest) return *rest;
    Layout layout = natural;
    for (const Target& target : targets) {
        const Layout next = with_targets(layout, {target});
        if (target.optional && target.placement.kind == Kind::split) {
            int64_t parts = 1;
            for (AxisId axis : next.splits()[target.placement.dim]) parts *= mesh.size(axis);
            if (type->shape[target.placement.dim] % parts != 0) continue;
        }
        layout = next;
    }
    return layout;
}

Assignment choose(const FactorRule& rule, std::span<const Candidate> inputs, std::span<const Constraint> constraints,
                  Resharder& resharder, const Mesh& mesh) {
    return Chooser(rule, inputs, constraints, resharder, mesh).run();
}

}  // namespace orrery
