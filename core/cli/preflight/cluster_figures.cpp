#include "cli/preflight/cluster_figures.h"

#include <algorithm>

namespace orrery {
namespace {

ExpectedFigures figures_of(const NodeKind& kind) {
    ExpectedFigures figures;
    const auto rate = [&](const char* dtype) {
        const auto found = kind.accelerator.dense_flops.find(dtype);
        return found == kind.accelerator.dense_flops.end() ? 0.0 : found->second;
    };
    figures.matrix_f32 = rate("f32");
    figures.matrix_bf16 = rate("bf16");
    figures.memory_bytes = kind.accelerator.memory_bytes_s;
    figures.node_link_bytes = kind.scale_up.bytes_s;
    // Rank pairs measured at once have no common node, so a rank has a whole NIC, or several if its node has enough.
    const int64_t own = std::max<int64_t>(1, kind.nics.count / kind.accelerators);
    figures.fabric_bytes = kind.nics.count > 0 ? kind.nics.bytes_s * static_cast<double>(own) : 0;
    return figures;
}

}  // namespace

ExpectedFigures figures_of(const Cluster& cluster) {
    using E = ExpectedFigures;
    ExpectedFigures least;
    for (const auto part : {&E::matrix_f32, &E::matrix_bf16, &E::memory_bytes, &E::node_link_bytes, &E::fabric_bytes}) {
        int64_t node = 0;
        std::vector<E::Unsaid> unsaid;
        for (const NodeKind& kind : cluster.kinds) {
            const double said = figures_of(kind).*part;
            if (said > 0)
                least.*part = least.*part > 0 ? std::min(least.*part, said) : said;
            else
                unsaid.push_back({part, node, node + kind.count});
            node += kind.count;
        }
        if (least.*part > 0) least.unsaid.insert(least.unsaid.end(), unsaid.begin(), unsaid.end());
    }
    least.storage_write_bytes = cluster.storage.write_bytes_s;
    least.storage_read_bytes = cluster.storage.read_bytes_s;
    return least;
}

}  // namespace orrery
