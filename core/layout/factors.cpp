#include "layout/factors.h"

#include <algorithm>

namespace orrery {

namespace {

/// Whether an axis must not split a factor, of which the axes outside it leave `left` elements.
bool must_be_whole(const Factor& factor, AxisId axis, int64_t left, const Mesh& mesh) {
    if (factor.kind != Factor::Kind::whole) return false;
    if (factor.turn == 0) return true;
    const bool outermost = left == factor.size;
    return outermost && (mesh.axis(axis).sequential || factor.turn * mesh.size(axis) % factor.size != 0);
}

/// Appends a Preference for each axis that splits one dim: the factor that the axis splits.
void read_dim(const std::vector<AxisId>& axes, const std::vector<int>& factors, int dim, const FactorRule& rule,
              const Mesh& mesh, std::vector<Preference>& preferences) {
    size_t at = 0;
    const auto size = [&] { return at < factors.size() ? rule.factors[factors[at]].size : 1; };
    int64_t left = size();
    Blocked blocked = Blocked::no;
    for (AxisId axis : axes) {
        const int64_t n = mesh.size(axis);
        if (n == 1) continue;
        while (left == 1 && at + 1 < factors.size()) {
            ++at;
            left = size();
        }
        const int factor = at < factors.size() ? factors[at] : -1;
        if (blocked == Blocked::no) {
            if (factor < 0 || must_be_whole(rule.factors[factor], axis, left, mesh))
                blocked = Blocked::whole;
            else if (left % n != 0)
                blocked = Blocked::uneven;
        }
        preferences.push_back({axis, factor, dim, blocked});
        if (blocked == Blocked::no) left /= n;
    }
}

bool contiguous(const FactorRule::Dims& dims, const FactorRule& rule, const std::vector<int64_t>& parts) {
    for (const auto& factors : dims) {
        bool complete = true;
        for (int factor : factors) {
            if (parts[factor] > 1 && !complete) return false;
            complete = complete && parts[factor] == rule.factors[factor].size;
        }
    }
    return true;
}

bool has(const FactorRule::Dims& dims, int factor) {
    return std::any_of(dims.begin(), dims.end(), [&](const auto& factors) {
        return std::find(factors.begin(), factors.end(), factor) != factors.end();
    });
}

Layout layout_of(const FactorRule::Dims& dims, const Assignment& assignment) {
    Layout layout(dims.size());
    for (size_t dim = 0; dim < dims.size(); ++dim)
        for (int factor : dims[dim])
            for (AxisId axis : assignment.splits[factor]) layout.set(axis, Placement::split(dim));
    return layout;
}

}  // namespace

std::vector<Preference> preferences_of(const Layout& layout, const FactorRule::Dims& dims, const FactorRule& rule,
                                       const Mesh& mesh) {
    std::vector<Preference> preferences;
    for (size_t dim = 0; dim < dims.size(); ++dim)
        read_dim(layout.splits()[dim], dims[dim], dim, rule, mesh, preferences);
    return preferences;
}

bool legal(const FactorRule& rule, const Assignment& assignment, const Mesh& mesh) {
    std::vector<int64_t> parts(rule.factors.size(), 1);
    for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
        const int64_t size = rule.factors[factor].size;
        for (AxisId axis : assignment.splits[factor]) {
            if (mesh.size(axis) > 1 && must_be_whole(rule.factors[factor], axis, size / parts[factor], mesh))
                return false;
            parts[factor] *= mesh.size(axis);
        }
        if (parts[factor] == 1) continue;
        if (size % parts[factor] != 0) return false;
        if (rule.factors[factor].kind != Factor::Kind::parallel) continue;
        for (const auto& output : rule.outputs)
            if (!has(output, factor)) return false;
    }
    const auto good = [&](const FactorRule::Dims& dims) { return contiguous(dims, rule, parts); };
    return std::all_of(rule.inputs.begin(), rule.inputs.end(), good) &&
           std::all_of(rule.outputs.begin(), rule.outputs.end(), good);
}

Layout input_layout(const FactorRule& rule, size_t input, const Assignment& assignment) {
    Layout layout = layout_of(rule.inputs[input], assignment);
    if (std::find(rule.linear_in.begin(), rule.linear_in.end(), input) != rule.linear_in.end())
        for (const auto& partial : assignment.linear) layout.set(partial.axis, Placement::partial(partial.op));
    return layout;
}

Layout output_layout(const FactorRule& rule, size_t output, const Assignment& assignment) {
    Layout layout = layout_of(rule.outputs[output], assignment);
    for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
        if (assignment.splits[factor].empty() || has(rule.outputs[output], factor)) continue;
        for (AxisId axis : assignment.splits[factor]) layout.set(axis, Placement::partial(rule.factors[factor].reduce));
    }
    for (const auto& partial : assignment.linear) layout.set(partial.axis, Placement::partial(partial.op));
    return layout;
}

}  // namespace orrery
