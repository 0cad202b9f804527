#include "sim/software/profile.h"

#include <algorithm>

#include "plan/print.h"
#include "sim/software/passes.h"

namespace orrery {

AxisFlags axes_named(const Mesh& mesh, const std::vector<std::string>& names) {
    AxisFlags named;
    for (AxisId axis = 0; axis < mesh.ids(); ++axis) {
        const std::string all = "+" + mesh.axis(axis).name + "+";
        named.push_back(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return all.find("+" + name + "+") != std::string::npos;
        }));
    }
    return named;
}

Plan with_profile(Plan plan, const SoftwareProfile& profile) {
    const AxisFlags data = axes_named(plan.mesh, profile.data);
    for (RankClass& c : plan.classes) {
        change_sums(c, data, {profile.reduces_bf16, profile.all_reduces, profile.cuts_all_params});
        if (profile.keeps_memory) wait_for_reads(c);
        if (profile.blocks_messages) wait_for_messages(c, profile.sends_in_pairs);
        if (profile.gathers_f32) gather_f32(c, data);
        if (profile.gathers_8_bit) gather_8_bit(c, data);
        if (profile.adds_apart) add_gradients_apart(c, profile.reduces_bf16);
        if (profile.recomputes_whole) recompute_whole(c, plan.program, data);
        if (profile.copies_parts > 0) copy_parts(c, plan.mesh, data, profile.copies_parts);
    }
    if (profile.sums_late || profile.gradients_late || profile.params_late)
        put_behind_fragments(plan, data, {profile.sums_late, profile.gradients_late, profile.params_late});
    plan.fingerprint = for_prices_alone;
    return plan;
}

}  // namespace orrery
