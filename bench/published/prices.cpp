#include "published/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "published/accelerators.h"

namespace orrery::published {

KernelPrices kernel_prices(const Job& job, const Constants& constants) {
    return {rates_of(job.row.gpu, constants), kernels_of(job.words, constants)};
}

std::string cluster_toml(const Row& row) {
    const AcceleratorFacts& facts = accelerator_facts(accelerator_of(row.gpu));
    const int64_t node = std::min<int64_t>(row.gpus, facts.domain > 8 ? 4 : 8);
    const int64_t nodes = (row.gpus + node - 1) / node;
    const int64_t domain_nodes = std::max<int64_t>(1, facts.domain / node);
    const std::string domain =
        facts.domain > 8 ? fmt::format("domain_accelerators = {}\n", domain_nodes * node) : std::string();
    const double nic = row.nic_bytes_per_s > 0 ? row.nic_bytes_per_s / 1e9 : facts.nic_gb_s;
    return fmt::format(
        "name = \"{}\"\n[accelerator.a]\ngeneration = \"{}\"\nmemory_gib = {}\nmemory_gb_s = {}\n[accelerator.a."
        "dense_tflops]\nbf16 = {}\n[node.n]\naccelerator = \"a\"\naccelerators = {}\ncount = {}\n[node.n.scale_up]\n"
        "kind = \"nvswitch\"\ngb_s = {}\nnvls = {}\n{}[node.n.nics]\nkind = \"{}\"\ncount = {}\ngb_s = {}\n[fabric]\n"
        "kind = \"single_switch\"\n",
        row.id, facts.generation, facts.memory_gib, facts.memory_gb_s, facts.matrix_tflops, node, nodes,
        facts.nvlink_gb_s, facts.nvls, domain, words_of(row).ethernet ? "ethernet" : "infiniband", node, nic);
}

RowWires::RowWires(const Job& job, const Mesh& mesh, const Constants& constants)
    : config_(parse_toml(cluster_toml(job.row), job.row.id)),
      cluster_(config_),
      mapping_(cluster_, mesh),
      wires_(cluster_, mesh, mapping_, constants),
      sent_(job.words, mesh, wires_) {}

double RowWires::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                            const std::vector<int64_t>& alike) {
    return sent_.seconds(sent_.collective(opcode, axis, bytes, group, alike));
}

double RowWires::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    return sent_.seconds(sent_.message(axis, bytes, from, to, alike));
}

}  // namespace orrery::published
