#include "sim/manners/manners.h"

#include <algorithm>

#include "plan/print.h"
#include "sim/manners/passes.h"

namespace orrery {
namespace {

/// A joined axis such as "rep+dp" counts as data if one of its parts does.
AxisFlags data_axes(const Mesh& mesh, const std::vector<std::string>& names) {
    AxisFlags data;
    for (AxisId axis = 0; axis < mesh.ids(); ++axis) {
        const std::string all = "+" + mesh.axis(axis).name + "+";
        data.push_back(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return all.find("+" + name + "+") != std::string::npos;
        }));
    }
    return data;
}

}  // namespace

Plan with_manners(Plan plan, const Manners& manners) {
    const AxisFlags data = data_axes(plan.mesh, manners.data);
    for (RankClass& c : plan.classes) {
        change_sums(c, data, {manners.reduces_bf16, manners.all_reduces, manners.cuts_all_params});
        if (manners.keeps_memory) wait_for_reads(c);
        if (manners.blocks_messages) wait_for_messages(c);
        if (manners.gathers_f32) gather_f32(c, data);
        if (manners.adds_apart) add_gradients_apart(c);
    }
    if (manners.sums_late || manners.data_late) put_behind_fragments(plan, data, manners.sums_late, manners.data_late);
    plan.fingerprint = for_prices_alone;
    return plan;
}

}  // namespace orrery
