#include "sim/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/suggest.h"
#include "base/text.h"
#include "sim/constants.h"

namespace orrery {

namespace {

constexpr int64_t most_nodes = 1'000'000;  // max nodes of one kind, so that the number of accelerators fits an integer

std::string path_of(const Config& table, std::string_view key) {
    return table.path().empty() ? std::string(key) : table.path() + "." + std::string(key);
}

void need(Config& table, std::string_view key, std::string_view expected) {
    if (!table.has(key))
        throw Error(table.origin(), fmt::format("missing {}, expected {}", path_of(table, key), expected));
}

[[noreturn]] void out_of_range(Config& table, std::string_view key, double found, std::string_view expected) {
    throw Error(table.where(key), fmt::format("{} is {}, expected {}", path_of(table, key), found, expected));
}

/// Rejects unknown keys of a table before any is read, so that a misspelt key is reported instead of a missing one.
void only(const Config& table, const std::vector<std::string>& known) {
    const std::string place = table.path().empty() ? "" : " in [" + table.path() + "]";
    for (const std::string& key : table.keys())
        if (std::ranges::find(known, key) == known.end())
            throw Error(table.where(key),
                        fmt::format("unknown key {}{}{}", quote(key), place, choices("known here", key, known)));
}

/// Rejects a key's value that no machine has, usually a number in another unit.
void plausible(Config& table, std::string_view key, double value, double most) {
    if (!(value <= most))
        out_of_range(table, key, value,
                     fmt::format("at most {:.6g}; check the unit, which the key's name gives", most));
}

double rate(Config& table, std::string_view key, double most) {
    need(table, key, "a number above 0");
    const double value = table.number(key, 0);
    if (!(value > 0)) out_of_range(table, key, value, "more than 0");
    plausible(table, key, value, most);
    return value;
}

double amount(Config& table, std::string_view key, double most) {
    const double value = table.number(key, 0);
    if (!(value >= 0)) out_of_range(table, key, value, "at least 0");
    plausible(table, key, value, most);
    return value;
}

int64_t count(Config& table, std::string_view key) {
    need(table, key, "a whole number of at least 1");
    const int64_t value = table.integer(key, 0);
    if (value < 1) out_of_range(table, key, static_cast<double>(value), "at least 1");
    plausible(table, key, static_cast<double>(value), static_cast<double>(most_nodes));
    return value;
}

int64_t count(Config& table, std::string_view key, int64_t fallback) {
    return table.has(key) ? count(table, key) : table.integer(key, fallback);
}

template <class T>
T word(Config& table, std::string_view key, const std::vector<std::pair<std::string, T>>& words) {
    std::vector<std::string> names;
    for (const auto& [name, value] : words) names.push_back(name);
    if (!table.has(key))
        throw Error(table.origin(), fmt::format("missing {}{}", path_of(table, key), choices("it can be", "", names)));
    const std::string found = table.text(key, "");
    for (const auto& [name, value] : words) {
        if (name == found) return value;
    }
    throw Error(table.where(key),
                fmt::format("{} is \"{}\"{}", path_of(table, key), found, choices("it can be", found, names)));
}

Config& needed_table(Config& parent, std::string_view key, std::string_view expected) {
    need(parent, key, expected);
    return parent.table(key);
}

/// Reads `measured_as`, the name of an accelerator for which the simulator has fitted constants; "": none.
std::string measured_as(Config& table) {
    std::string found = table.text("measured_as", "");
    std::vector<std::string> names;
    const Constants constants;
    for (const Constant& constant : constants.all())
        if (constant.name.starts_with("matrix.")) names.push_back(constant.name.substr(7));
    if (!found.empty() && std::ranges::find(names, found) == names.end())
        throw Error(table.where("measured_as"),
                    fmt::format("{} is {}, for which no rate is known{}\n  or leave it out and set matrix_share",
                                path_of(table, "measured_as"), quote(found), choices("known are", found, names)));
    return found;
}

Accelerator read_accelerator(const std::string& name, Config& table) {
    Accelerator out;
    out.name = name;
    only(table, {"generation", "memory_gib", "memory_gb_s", "power_w", "multiprocessors", "measured_as", "matrix_share",
                 "price_per_hour", "driver_names", "dense_tflops"});
    if (table.has("generation"))
        out.generation = word<Generation>(table, "generation",
                                          {{"volta", Generation::volta},
                                           {"ampere", Generation::ampere},
                                           {"hopper", Generation::hopper},
                                           {"blackwell", Generation::blackwell}});
    Config& flops = needed_table(table, "dense_tflops", "a table of rates by dtype, as bf16 = 989");
    // Dtypes of matrix products for which a cluster file may state a rate.
    static const std::vector<std::string> dtypes = {"f64", "f32", "tf32", "bf16", "f16", "fp8"};
    for (const std::string& dtype : flops.keys()) {
        if (std::ranges::find(dtypes, dtype) == dtypes.end())
            throw Error(flops.where(dtype), fmt::format("unknown dtype \"{}\" in [{}]{}", dtype, flops.path(),
                                                        choices("known here", dtype, dtypes)));
        out.dense_flops[dtype] = rate(flops, dtype, 1e6) * 1e12;
    }
    if (out.dense_flops.empty())
        throw Error(flops.origin(), fmt::format("[{}] is empty, expected a rate, as bf16 = 989", flops.path()));
    out.memory_bytes = rate(table, "memory_gib", 1e5) * 1024 * 1024 * 1024;
    out.memory_bytes_s = rate(table, "memory_gb_s", 1e6) * 1e9;
    out.power_w = amount(table, "power_w", 1e5);
    out.multiprocessors = count(table, "multiprocessors", 0);
    out.measured_as = measured_as(table);
    out.matrix_share = amount(table, "matrix_share", 1);
    if (!out.measured_as.empty() && out.matrix_share > 0)
        throw Error(table.where("matrix_share"),
                    fmt::format("{} and measured_as are both set\n  each gives the share of the dense "
                                "rate that matrix products reach; leave one out",
                                path_of(table, "matrix_share")));
    out.price_hour = amount(table, "price_per_hour", 1e6);
    if (table.has("driver_names")) out.driver_names = table.texts("driver_names");
    return out;
}

ScaleUp read_scale_up(Config& table) {
    ScaleUp out;
    only(table, {"kind", "gb_s", "nvls", "domain_accelerators"});
    out.kind = word<ScaleUp::Kind>(table, "kind",
                                   {{"nvswitch", ScaleUp::Kind::nvswitch},
                                    {"nvlink_mesh", ScaleUp::Kind::nvlink_mesh},
                                    {"pcie", ScaleUp::Kind::pcie},
                                    {"host", ScaleUp::Kind::host}});
    if (out.kind == ScaleUp::Kind::host) return out;
    out.bytes_s = rate(table, "gb_s", 1e5) * 1e9;
    out.nvls = table.flag("nvls", false);
    if (out.nvls && out.kind != ScaleUp::Kind::nvswitch)
        throw Error(table.where("nvls"), fmt::format("{} is true, but NVLS needs an NVSwitch\n  "
                                                     "set kind = \"nvswitch\" or nvls = false",
                                                     path_of(table, "nvls")));
    return out;
}

Nics read_nics(Config& table) {
    Nics out;
    only(table, {"kind", "count", "gb_s", "latency_us", "ordered"});
    out.kind = word<Nics::Kind>(
        table, "kind",
        {{"infiniband", Nics::Kind::infiniband}, {"ethernet", Nics::Kind::ethernet}, {"efa", Nics::Kind::efa}});
    out.count = count(table, "count");
    out.bytes_s = rate(table, "gb_s", 1e5) * 1e9;
    out.latency_s = amount(table, "latency_us", 1e6) * 1e-6;
    out.ordered = table.flag("ordered", out.kind != Nics::Kind::efa);
    return out;
}

/// Returns failures per node and day, from key `mtbf_days` or `failures_per_1000_node_days`.
double read_failures(Config& table) {
    if (!table.has("mtbf_days")) return amount(table, "failures_per_1000_node_days", 1e6) / 1000;
    if (table.has("failures_per_1000_node_days"))
        throw Error(table.where("mtbf_days"),
                    fmt::format("{} and failures_per_1000_node_days are both set\n  leave one out",
                                path_of(table, "mtbf_days")));
    return 1 / rate(table, "mtbf_days", 1e6);
}

NodeKind read_node(const std::string& name, Config& table, const std::map<std::string, Accelerator>& accelerators) {
    NodeKind out;
    out.name = name;
    only(table,
         {"accelerator", "accelerators", "count", "failures_per_1000_node_days", "mtbf_days", "scale_up", "nics"});
    std::vector<std::pair<std::string, Accelerator>> known(accelerators.begin(), accelerators.end());
    out.accelerator = word<Accelerator>(table, "accelerator", known);
    out.accelerators = count(table, "accelerators");
    out.count = count(table, "count");
    out.scale_up = read_scale_up(needed_table(table, "scale_up", "a table with kind and gb_s"));
    const int64_t domain = count(table.table("scale_up"), "domain_accelerators", out.accelerators);
    if (domain % out.accelerators)
        throw Error(
            table.table("scale_up").where("domain_accelerators"),
            fmt::format("{} accelerators in one domain are not divisible by {} a node\n  expected a multiple of {}",
                        domain, out.accelerators, out.accelerators));
    out.scale_up.domain_nodes = domain / out.accelerators;
    if (table.has("nics")) out.nics = read_nics(table.table("nics"));
    if (!table.has("nics") && out.count > out.scale_up.domain_nodes)
        throw Error(table.origin(),
                    fmt::format("missing [{}.nics]: {} nodes need NICs to reach each other\n  its keys are kind, "
                                "count (a node) and gb_s (of each NIC)",
                                table.path(), out.count));
    out.failures_per_node_day = read_failures(table);
    return out;
}

Fabric read_fabric(Config& table) {
    Fabric out;
    only(table, {"kind", "rail_optimized", "nodes_per_leaf", "leaf_oversubscription", "nodes_per_pod",
                 "pod_oversubscription", "nodes_per_router", "router_oversubscription", "nodes_per_group",
                 "group_oversubscription", "hop_latency_us"});
    out.kind = word<Fabric::Kind>(table, "kind",
                                  {{"single_switch", Fabric::Kind::single_switch},
                                   {"fat_tree", Fabric::Kind::fat_tree},
                                   {"dragonfly", Fabric::Kind::dragonfly}});
    out.hop_latency_s = amount(table, "hop_latency_us", 1e6) * 1e-6;
    if (out.kind == Fabric::Kind::single_switch) return out;
    const bool tree = out.kind == Fabric::Kind::fat_tree;
    if (tree) out.rails = table.flag("rail_optimized", false);
    const auto level = [&](const char* nodes, const char* over) {
        Fabric::Level made{count(table, nodes), table.has(over) ? rate(table, over, 1e3) : table.number(over, 1)};
        if (made.oversubscription < 1)
            out_of_range(table, over, made.oversubscription, "at least 1, which is full rate");
        if (!out.levels.empty() && made.nodes <= out.levels.back().nodes)
            out_of_range(table, nodes, static_cast<double>(made.nodes),
                         fmt::format("more than the {} nodes of the level below", out.levels.back().nodes));
        out.levels.push_back(made);
    };
    if (tree) {
        level("nodes_per_leaf", "leaf_oversubscription");
        if (table.has("nodes_per_pod")) level("nodes_per_pod", "pod_oversubscription");
    } else {
        level("nodes_per_router", "router_oversubscription");
        level("nodes_per_group", "group_oversubscription");
    }
    return out;
}

std::string_view name_of(Fabric::Kind kind) {
    if (kind == Fabric::Kind::fat_tree) return "fat tree";
    return kind == Fabric::Kind::dragonfly ? "dragonfly" : "one switch";
}

}  // namespace

Cluster::Cluster(Config& file) {
    only(file, {"name", "accelerator", "node", "fabric", "storage"});
    name = file.text("name", "");
    Config& accelerator_tables = needed_table(file, "accelerator", "a table for each kind, as [accelerator.h100]");
    std::map<std::string, Accelerator> accelerators;
    for (const std::string& key : accelerator_tables.keys())
        accelerators.emplace(key, read_accelerator(key, accelerator_tables.table(key)));
    Config& node_tables = needed_table(file, "node", "a table for each kind, as [node.dgx]");
    for (const std::string& key : node_tables.keys())
        kinds.push_back(read_node(key, node_tables.table(key), accelerators));
    for (const auto& [key, accelerator] : accelerators)
        if (std::ranges::none_of(kinds, [&](const NodeKind& kind) { return kind.accelerator.name == key; }))
            throw Error(accelerator_tables.where(key),
                        fmt::format("unused accelerator {}: no node has it\n  give it to a node, or remove its table",
                                    quote(key)));
    if (kinds.empty())
        throw Error(node_tables.origin(),
                    "missing nodes: the cluster has none\n  write a table for each kind, as [node.dgx]");
    if (nodes() > 1) need(file, "fabric", "a table with its kind");
    if (file.has("fabric")) fabric = read_fabric(file.table("fabric"));
    if (file.has("storage")) {
        only(file.table("storage"), {"read_gb_s", "write_gb_s"});
        storage.read_bytes_s = rate(file.table("storage"), "read_gb_s", 1e8) * 1e9;
        storage.write_bytes_s = rate(file.table("storage"), "write_gb_s", 1e8) * 1e9;
    }
    file.reject_unused();
}

int64_t Cluster::nodes() const {
    int64_t sum = 0;
    for (const NodeKind& kind : kinds) sum += kind.count;
    return sum;
}

int64_t Cluster::accelerators() const {
    int64_t sum = 0;
    for (const NodeKind& kind : kinds) sum += kind.count * kind.accelerators;
    return sum;
}

Cluster Cluster::with_nodes(int64_t count) const {
    if (kinds.size() != 1)
        throw Error(
            fmt::format("{} nodes requested, but the cluster has {} kinds of nodes\n  set node.NAME.count of each kind",
                        count, kinds.size()));
    if (count < 1 || count > most_nodes)
        throw Error(fmt::format("a cluster of {} nodes, expected 1 to {}", count, most_nodes));
    Cluster out = *this;
    out.kinds.front().count = count;
    return out;
}

Cluster::Place Cluster::place(int64_t slot) const {
    Place out;
    for (const NodeKind& kind : kinds) {
        if (slot < kind.count * kind.accelerators) {
            const int64_t node = slot / kind.accelerators;
            out.node += node;
            out.domain += node / kind.scale_up.domain_nodes;
            out.local = slot % kind.accelerators;
            out.nic = out.local * kind.nics.count / kind.accelerators;
            return out;
        }
        slot -= kind.count * kind.accelerators;
        out.node += kind.count;
        out.domain += (kind.count + kind.scale_up.domain_nodes - 1) / kind.scale_up.domain_nodes;
        ++out.kind;
    }
    throw Error(
        fmt::format("accelerator {} is out of range: the cluster has {}", slot + accelerators(), accelerators()));
}

std::vector<int64_t> Cluster::ranks_by_kind(int64_t ranks) const {
    std::vector<int64_t> all;
    for (const NodeKind& kind : kinds) {
        all.push_back(std::min(ranks, kind.count * kind.accelerators));
        ranks -= all.back();
    }
    return all;
}

std::vector<int> Cluster::as_fast() const {
    const auto same = [](const NodeKind& a, const NodeKind& b) {
        const auto rates = [](const Accelerator& one) {
            return std::tie(one.generation, one.dense_flops, one.memory_bytes_s, one.multiprocessors, one.matrix_share,
                            one.measured_as);
        };
        return rates(a.accelerator) == rates(b.accelerator) && a.accelerators == b.accelerators &&
               a.scale_up == b.scale_up && a.nics == b.nics;
    };
    std::vector<int> first;
    for (const NodeKind& kind : kinds)
        first.push_back(static_cast<int>(
            std::find_if(kinds.begin(), kinds.end(), [&](const NodeKind& other) { return same(kind, other); }) -
            kinds.begin()));
    return first;
}

double Cluster::failures_per_s() const {
    double sum = 0;
    for (const NodeKind& kind : kinds) sum += kind.failures_per_node_day * static_cast<double>(kind.count);
    return sum / 86400;
}

std::string Cluster::text() const {
    std::string out;
    for (const NodeKind& kind : kinds)
        out += fmt::format("{} node{} of {} {} ({})\n", kind.count, kind.count == 1 ? "" : "s", kind.accelerators,
                           kind.accelerator.name, kind.name);
    out.pop_back();
    if (nodes() == 1) return out;
    out += fmt::format(", {}", name_of(fabric.kind));
    for (size_t i = 0; i < fabric.levels.size(); ++i) {
        const Fabric::Level& level = fabric.levels[i];
        out += fmt::format(" {} {} nodes", i == 0 ? "of" : "in", level.nodes);
        if (level.oversubscription > 1) out += fmt::format(" ({:g}:1)", level.oversubscription);
    }
    return out;
}

}  // namespace orrery
