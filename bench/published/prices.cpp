#include "published/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "published/accelerators.h"

namespace orrery::published {
namespace {

KernelSoftware software_of(const Job& job, const Constants& constants) {
    const SoftwareDefaults& by = job.words.software;
    KernelSoftware software;
    software.launch_s = constants.of("launch_s." + launches_of(by));
    software.passes = constants.of("passes." + elementwise_of(by));
    software.ramp = constants.of("product.ramp");
    software.attention_share = constants.of("attention." + attention_of(by));
    software.own_attention = !by.older_attention;
    software.separate_attention = by.separate_attention;
    software.eight_bit = job.words.eight_bit;
    software.casts_weights = by.casts_each_use;
    software.eight_bit_share = constants.of("product.eight_bit");
    software.wide = job.vocab / job.row.tp;
    return software;
}

}  // namespace

std::string launches_of(const SoftwareDefaults& software) {
    return software.launches == SoftwareDefaults::Launches::eager ? "eager" : "queued";
}
std::string elementwise_of(const SoftwareDefaults& software) {
    return software.separate_elementwise ? "separate" : "fused";
}
std::string attention_of(const SoftwareDefaults& software) { return software.older_attention ? "older" : "own"; }

bool is_free(const KernelSpec& spec) { return spec.op == "transpose" || spec.op == "concat" || spec.op == "slice"; }

KernelPrices kernel_prices(const Job& job, const Constants& constants) {
    return {rates_of(job.row.gpu, constants), software_of(job, constants)};
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
    : job_(job),
      mesh_(mesh),
      config_(parse_toml(cluster_toml(job.row), job.row.id)),
      cluster_(config_),
      mapping_(cluster_, mesh),
      wires_(cluster_, mesh, mapping_, constants) {}

/// What part of a message a collective over data is, where the software keeps gradients and params in flat buffers.
double RowWires::flat_part(Opcode opcode, AxisId over, int64_t bytes) const {
    const Words& words = job_.words;
    bool data = false;
    for (const AxisId part : mesh_.parts(over)) {
        const std::string& axis = mesh_.axis(part).name;
        if (axis != "dp" && axis != "ep" && axis != "cp") return 1;
        data |= axis != "cp";
    }
    if (opcode == Opcode::all_to_all) return 1;  // of experts
    const SoftwareDefaults& software = words.software;
    if (!data || !software.flat || words.zero == 0 || words.zero == 3) return 1;
    if (opcode == Opcode::all_reduce && bytes < (1 << 20)) return 1;  // norms and losses
    const int64_t asked =
        std::max(software.message_elements, software.message_elements_a_rank * job_.row.dp * job_.row.cp);
    const double elements = asked > 0 ? static_cast<double>(asked) : 1e12;  // 0: one message
    const int bytes_each = opcode == Opcode::all_gather ? (software.eight_bit_params ? 1 : 2)
                           : words.reduce_bf16          ? 2
                                                        : 4;
    const double whole = elements * bytes_each;
    return std::min(1.0, static_cast<double>(bytes) / whole);
}

double RowWires::seconds(const Demand& demand) const {
    double seconds = demand.least_s;
    for (const Demand::Load& load : demand.loads)
        seconds = std::max(seconds, load.amount / wires_.capacity(load.resource));
    return demand.fixed_s + seconds;
}

double RowWires::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                            const std::vector<int64_t>& alike) {
    const double part = flat_part(opcode, axis, bytes);
    const auto sent = static_cast<int64_t>(static_cast<double>(bytes) / part);
    return part * seconds(wires_.collective(opcode, axis, sent, group, alike));
}

double RowWires::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    const std::optional<AxisId> tp = mesh_.find("tp");
    if (!job_.words.scatters || !tp || mesh_.axis(axis).name != "pp")
        return seconds(wires_.message(axis, bytes, from, to, alike));
    // Ranks of tp send a part each, and the receivers gather.
    const std::vector<int64_t> gatherers = mesh_.group(to, *tp);
    return seconds(wires_.message(axis, bytes / mesh_.size(*tp), from, to, alike)) +
           seconds(wires_.collective(Opcode::all_gather, *tp, bytes, gatherers, gatherers));
}

}  // namespace orrery::published
