#include "orrery/plan.h"

#include <algorithm>

namespace orrery {

std::string_view name_of(Holds holds) {
    switch (holds) {
        case Holds::input: return "input";
        case Holds::param: return "param";
        case Holds::state: return "state";
        case Holds::result: return "result";
        case Holds::gradient: return "gradient";
        case Holds::activation: return "activation";
        case Holds::workspace: return "workspace";
    }
    return "?";
}

std::string_view name_of(Do what) {
    switch (what) {
        case Do::kernel: return "kernel";
        case Do::copy: return "copy";
        case Do::all_reduce: return "all_reduce";
        case Do::all_gather: return "all_gather";
        case Do::reduce_scatter: return "reduce_scatter";
        case Do::all_to_all: return "all_to_all";
        case Do::broadcast: return "broadcast";
        case Do::send: return "send";
        case Do::receive: return "receive";
    }
    return "?";
}

const RankClass& Plan::class_of(int64_t rank) const {
    for (const RankClass& c : classes)
        if (std::binary_search(c.ranks.begin(), c.ranks.end(), rank)) return c;
    throw Error("the plan has no rank " + std::to_string(rank) + "; its mesh is " + mesh.text());
}

KernelSpec kernel_for(const RankClass& rank_class, int index, const Mesh& mesh, int64_t rank) {
    KernelSpec spec = rank_class.kernels.at(static_cast<size_t>(index));
    const auto& patches = rank_class.per_rank;
    auto patch = std::lower_bound(patches.begin(), patches.end(), index,
                                  [](const PerRank& p, int kernel) { return p.kernel < kernel; });
    if (patch == patches.end() || patch->kernel != index) return spec;
    const std::vector<int64_t> coordinates = mesh.coordinates(rank);
    for (; patch != patches.end() && patch->kernel == index; ++patch) {
        const int64_t more = patch->step * coordinates.at(static_cast<size_t>(patch->axis));
        if (patch->dim == none) {
            spec.attributes.set(patch->key, spec.attributes.integer(patch->key) + more);
        } else {
            std::vector<int64_t> values = spec.attributes.integers(patch->key);
            values.at(static_cast<size_t>(patch->dim)) += more;
            spec.attributes.set(patch->key, std::move(values));
        }
    }
    return spec;
}

}  // namespace orrery
