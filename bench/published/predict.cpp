#include "published/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "config/load.h"
#include "published/accelerators.h"
#include "published/keep.h"
#include "sim/cluster/cluster.h"
#include "sim/kernel_prices.h"
#include "sim/cluster/mapping.h"
#include "sim/cluster/wires.h"

namespace orrery::published {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

KernelSoftware software_of(const Job& job, const Constants& constants) {
    const std::string name(name_of(job.words.software));
    const bool own = job.words.software == Software::megatron || job.words.software == Software::eight_bit;
    KernelSoftware software;
    software.launch_s = constants.of("launch_s." + name);
    software.passes = constants.of("passes." + name);
    software.ramp = constants.of("product.ramp");
    software.attention_share = constants.of(job.words.software == Software::compiled ? "attention.compiled"
                                            : own                                    ? "attention.megatron"
                                                                                     : "attention.eager");
    software.own_attention = own;
    software.separate_attention = job.words.separate;
    software.eight_bit = job.words.software == Software::eight_bit;
    software.eight_bit_share = constants.of("product.eight_bit");
    software.wide = job.vocab / job.row.tp;
    return software;
}

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

Mesh mesh_of(const Job& job) {
    Config config = parse_config(job.toml, job.row.id);
    std::vector<Axis> axes;
    Config& mesh = config.table("mesh");
    for (const std::string& axis : mesh.keys()) axes.push_back({axis, mesh.integer(axis, 1), false});
    return Mesh(axes).with_microbatches(job.micros);
}

/// What of the words a graph depends on beside the configuration.
std::string graph_words(const Words& words, bool pipeline) {
    return fmt::format("\n{} {} {} {}", words.chunks_tp, words.gather_f32, words.reduce_bf16,
                       words.overlaps_data ? "true" : "late") +
           (pipeline && words.blocks_messages ? " blocks" : "") + (words.all_reduces ? " all_reduces" : "");
}

}  // namespace

std::vector<Prepared> prepare(const Row& row, const std::string& script, const std::string& keep) {
    std::vector<Prepared> all;
    const std::string code = keep.empty() ? "" : text_of_file(script);
    for (Job& job : jobs_of(row)) {
        Prepared one;
        one.mesh = mesh_of(job);
        const std::string key = job.toml + code + graph_words(job.words, job.row.pp > 1);
        std::optional<Graph> kept = keep.empty() ? std::nullopt : kept_graph(keep, key);
        if (!kept) {
            kept = condense(plan_of(job, script), job.words);
            if (!keep.empty()) keep_graph(keep, key, *kept);
        }
        one.graph = std::move(*kept);
        for (const Priced& priced : one.graph.prices)
            one.works.push_back(priced.kind == Priced::Kind::kernel ? work_of(priced.spec) : KernelWork{});
        one.job = std::move(job);
        wire(one, Constants());
        all.push_back(std::move(one));
    }
    return all;
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

namespace {

/// What part of a message a collective over data is, where the software keeps gradients and params in flat buffers.
double flat_part(const Prepared& prepared, const Priced& one) {
    const Words& words = prepared.job.words;
    const std::string& axis = one.kind == Priced::Kind::collective ? prepared.mesh.axis(one.axis).name : std::string();
    const bool data = axis.find("dp") != std::string::npos && axis.find('+') == std::string::npos;
    const bool flat = words.software != Software::eager && words.software != Software::compiled;
    if (!data || !flat || words.zero == 0 || words.zero == 3) return 1;
    if (one.opcode == Opcode::all_reduce && one.bytes < (1 << 20)) return 1;  // norms and losses
    const double elements = std::max(40e6, 1e6 * static_cast<double>(prepared.job.row.dp));
    const double whole = elements * (one.opcode == Opcode::all_gather ? 2 : 4);
    return std::min(1.0, static_cast<double>(one.bytes) / whole);
}

}  // namespace

void wire(Prepared& prepared, const Constants& constants) {
    Config config = parse_toml(cluster_toml(prepared.job.row), prepared.job.row.id);
    const Cluster cluster(config);
    const Mapping mapping(cluster, prepared.mesh);
    ClusterWires wires(cluster, prepared.mesh, mapping, constants);
    prepared.wire_s.assign(prepared.graph.prices.size(), 0);
    for (size_t p = 0; p < prepared.graph.prices.size(); ++p) {
        const Priced& one = prepared.graph.prices[p];
        const double part = flat_part(prepared, one);
        const auto bytes = static_cast<int64_t>(static_cast<double>(one.bytes) / part);
        Demand demand;
        if (one.kind == Priced::Kind::collective)
            demand = wires.collective(one.opcode, one.axis, bytes, prepared.mesh.group(one.from, one.axis), one.alike);
        else if (one.kind == Priced::Kind::message)
            demand = wires.message(one.axis, one.bytes, one.from, one.to, one.alike);
        double seconds = demand.least_s;
        for (const Demand::Load& load : demand.loads)
            seconds = std::max(seconds, load.amount / wires.capacity(load.resource));
        prepared.wire_s[p] = part * (demand.fixed_s + seconds);
    }
}

bool is_of_wires(const Constant& constant) {
    for (const char* kind : {"nvlink.", "pcie", "net.", "all_to_all", "ring.", "nvls."})
        if (constant.name.starts_with(kind)) return true;
    return false;
}

bool concerns(const Prepared& prepared, const Constant& constant) {
    const size_t dot = constant.name.find('.');
    const std::string kind = constant.name.substr(0, dot), of = constant.name.substr(dot + 1);
    const Software software = prepared.job.words.software;
    if (kind == "matrix") return of == accelerator_of(prepared.job.row.gpu) && stated_share(prepared.job.row.gpu) == 0;
    if (constant.name == "product.eight_bit") return software == Software::eight_bit;
    if (kind == "launch_s" || kind == "passes") return of == name_of(software);
    if (is_of_wires(constant)) return false;
    if (constant.name == "memory.context_gib" || constant.name == "memory.allocator") return false;
    return true;
}

double step_seconds(const Prepared& prepared, const Constants& constants, std::vector<double>* weights) {
    return prepared.job.batches * prepared.graph.play(price(prepared, constants), weights);
}

double plan_gib(const Prepared& prepared) { return static_cast<double>(prepared.graph.peak_bytes) / gib; }

double peak_gib(const Prepared& prepared, const Constants& constants) {
    return plan_gib(prepared) * constants.of("memory.allocator") + constants.of("memory.context_gib");
}

Prediction predict(const std::vector<Prepared>& jobs, const Constants& constants) {
    Prediction best;
    for (size_t j = 0; j < jobs.size(); ++j) {
        const Job& job = jobs[j].job;
        Prediction one;
        one.chosen = static_cast<int>(j);
        one.step_s = step_seconds(jobs[j], constants);
        one.tokens_per_s =
            static_cast<double>(job.row.batch * job.row.tokens) / one.step_s / static_cast<double>(job.row.gpus);
        one.peak_gib = peak_gib(jobs[j], constants);
        one.fits = one.peak_gib <= accelerator_facts(accelerator_of(job.row.gpu)).memory_gib;
        const bool better = one.fits != best.fits ? one.fits
                            : one.fits            ? one.step_s < best.step_s
                                                  : one.peak_gib < best.peak_gib;
        if (j == 0 || better) best = one;
    }
    return best;
}

std::vector<double> price(const Prepared& prepared, const Constants& constants) {
    const Job& job = prepared.job;
    const KernelPrices kernels(rates_of(job.row.gpu, constants), software_of(job, constants));
    std::vector<double> seconds;
    for (const Priced& one : prepared.graph.prices) {
        double s = 0;
        // The rows' software lays tensors out so that collectives take them as they are.
        const bool staged = one.spec.op == "transpose" || one.spec.op == "concat" || one.spec.op == "slice";
        if (one.kind == Priced::Kind::kernel && !staged) s = kernels.modelled(prepared.works[seconds.size()]);
        if (one.kind == Priced::Kind::copy) s = kernels.copy_seconds(one.bytes);
        if (one.kind == Priced::Kind::beside) {
            double products = 0;
            for (const int p : one.products) products += seconds[static_cast<size_t>(p)];
            const double wire = seconds[static_cast<size_t>(one.of)];
            s = std::max(wire, products) + std::min(wire, products) / 4 - products;
        }
        if (one.kind == Priced::Kind::collective || one.kind == Priced::Kind::message)
            s = prepared.wire_s[seconds.size()];
        seconds.push_back(s);
    }
    return seconds;
}

}  // namespace orrery::published
