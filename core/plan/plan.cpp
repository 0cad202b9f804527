#include "orrery/plan.h"

#include <algorithm>

namespace orrery {

std::string_view name_of(BufferUse use) {
    switch (use) {
        case BufferUse::input: return "input";
        case BufferUse::param: return "param";
        case BufferUse::state: return "state";
        case BufferUse::result: return "result";
        case BufferUse::gradient: return "gradient";
        case BufferUse::activation: return "activation";
        case BufferUse::workspace: return "workspace";
    }
    return "?";
}

std::string_view name_of(Opcode opcode) {
    switch (opcode) {
        case Opcode::kernel: return "kernel";
        case Opcode::copy: return "copy";
        case Opcode::all_reduce: return "all_reduce";
        case Opcode::all_gather: return "all_gather";
        case Opcode::reduce_scatter: return "reduce_scatter";
        case Opcode::all_to_all: return "all_to_all";
        case Opcode::send: return "send";
        case Opcode::receive: return "receive";
    }
    return "?";
}

const RankClass& Plan::class_of(int64_t rank) const {
    for (const RankClass& c : classes)
        if (std::binary_search(c.ranks.begin(), c.ranks.end(), rank)) return c;
    throw Error("the plan has no rank " + std::to_string(rank) + "; its mesh is " + mesh.text());
}

KernelSpec kernel_for(const RankClass& rank_class, int index, const Mesh& mesh, int64_t rank, int64_t micro) {
    KernelSpec spec = rank_class.kernels.at(index);
    const auto& patches = rank_class.per_rank;
    auto patch = std::lower_bound(patches.begin(), patches.end(), index,
                                  [](const PerRank& p, int kernel) { return p.kernel < kernel; });
    if (patch == patches.end() || patch->kernel != index) return spec;
    const std::vector<int64_t> coordinates = mesh.coordinates(rank);
    for (; patch != patches.end() && patch->kernel == index; ++patch) {
        const bool sequential = mesh.axis(patch->axis).sequential;
        const int64_t more = patch->step * (sequential ? micro : coordinates.at(patch->axis));
        if (patch->dim == none) {
            spec.attributes.set(patch->key, spec.attributes.integer(patch->key) + more);
        } else {
            std::vector<int64_t> values = spec.attributes.integers(patch->key);
            values.at(patch->dim) += more;
            spec.attributes.set(patch->key, std::move(values));
        }
    }
    return spec;
}

}  // namespace orrery
