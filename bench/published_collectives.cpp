// Predicts published all-reduces (shared/data/published_collectives.csv) and compares:
//   published_collectives FILE.csv [configs/clusters] [--set NAME=VALUE ...]
// The predictor sees gpu, n_nodes, n_gpus, collective, algo, size_bytes and fabric; time and rates are read afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "config/load.h"
#include "sim/cluster/wires.h"

namespace {

using namespace orrery;

/// torch.distributed's call beside a collective, where its all_reduce_bench.py measured. From sizes below 1 MiB, which
/// are not judged: 32 KiB on eight H200 take 39.8 us there and 19.3 us in nccl-tests.
constexpr double torch_call_s = 20e-6;

using Row = std::map<std::string, std::string>;

/// One line of CSV; a comma may stand in quotes.
std::vector<std::string> fields(const std::string& line) {
    std::vector<std::string> out(1);
    bool quoted = false;
    for (const char c : line) {
        if (c == '"')
            quoted = !quoted;
        else if (c == ',' && !quoted)
            out.emplace_back();
        else if (c != '\r')
            out.back() += c;
    }
    return out;
}

std::vector<Row> read(const std::string& path) {
    std::ifstream in(path);
    if (!in) throw Error(fmt::format("cannot read {}", path));
    std::string line;
    std::getline(in, line);
    const std::vector<std::string> names = fields(line);
    std::vector<Row> rows;
    while (std::getline(in, line)) {
        const std::vector<std::string> values = fields(line);
        Row& row = rows.emplace_back();
        for (size_t i = 0; i < std::min(names.size(), values.size()); ++i) row[names[i]] = values[i];
    }
    return rows;
}

/// Without what was measured.
Row configuration(const Row& row) {
    Row out;
    for (const char* name : {"source", "gpu", "n_nodes", "n_gpus", "collective", "algo", "size_bytes", "fabric"})
        out[name] = row.at(name);
    return out;
}

std::optional<std::string> cluster_file(const Row& row) {
    const std::string& gpu = row.at("gpu");
    if (gpu == "A100-80G-SXM") return row.at("fabric").find("EFA") != std::string::npos ? "a100_80g_efa" : "a100_80g";
    static const std::map<std::string, std::string> files = {
        {"H100-80G-SXM", "h100"}, {"H200-141G-SXM", "h200"}, {"B200-HGX8", "b200"}};
    const auto found = files.find(gpu);
    if (found == files.end()) return {};
    return found->second;
}

/// What the row says of NCCL's settings. "default" and the like leave the choice to it.
NcclSettings settings_of(const std::string& algo) {
    if (algo == "Ring (NVLS off)") return {.algorithm = {}, .nvls = false};
    if (algo == "Ring") return {.algorithm = NcclAlgorithm::ring, .nvls = false};
    if (algo == "NVLSTree") return {.algorithm = NcclAlgorithm::nvls_tree, .nvls = true};
    return {};
}

struct Prediction {
    double seconds = 0;
    std::string how;
};

Prediction predict(const Row& row, const std::filesystem::path& clusters, const Constants& constants,
                   bool own_choice = false) {
    const int64_t nodes = std::stoll(row.at("n_nodes")), ranks = std::stoll(row.at("n_gpus"));
    Config file = load_toml(clusters / (*cluster_file(row) + ".toml"));
    const Cluster cluster = Cluster(file).with_nodes(nodes);
    const Mesh mesh({{"dp", ranks}});
    const Mapping mapping(cluster, mesh);
    ClusterWires wires(cluster, mesh, mapping, constants, own_choice ? NcclSettings{} : settings_of(row.at("algo")));
    const std::vector<int64_t> group = mesh.group(0, 0);
    const Demand demand = wires.collective(Opcode::all_reduce, 0, std::stoll(row.at("size_bytes")), group, group);
    Prediction out{demand.fixed_s, demand.how};
    double wire = 0;
    for (const Demand::Load& load : demand.loads) wire = std::max(wire, load.amount / wires.capacity(load.resource));
    out.seconds += wire;
    const bool torch = row.at("source").find("stas00/ml-engineering") != std::string::npos && nodes == 1;
    if (torch) out.seconds += torch_call_s;
    return out;
}

struct Errors {
    std::vector<double> all;
    void add(double error) { all.push_back(std::abs(error)); }
    double median() {
        std::ranges::sort(all);
        return all.empty() ? 0 : (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
    }
    double within(double bar) const {
        const auto in = std::ranges::count_if(all, [&](double error) { return error <= bar; });
        return static_cast<double>(in) / static_cast<double>(std::max<size_t>(all.size(), 1));
    }
};

bool judged(const Row& row) {
    return row.at("complete") == "yes" && row.at("collective") == "all_reduce" && !row.at("size_bytes").empty() &&
           std::stod(row.at("size_bytes")) >= 1024 * 1024 && cluster_file(row);
}

/// "4 MiB"; "3.8 MiB" where it is no whole number.
std::string mib(const std::string& bytes) { return fmt::format("{:.4g} MiB", std::stod(bytes) / 1024 / 1024); }

void print(const std::string& path, const std::filesystem::path& clusters, const Constants& constants) {
    std::map<std::string, Errors> groups;
    std::vector<std::string> order;
    Errors all;
    int chosen = 0, asked = 0;
    std::cout << "| gpu | GPUs | algo | size | measured us | predicted us | error | by "
                 "|\n|---|---|---|---|---|---|---|---|\n";
    for (const Row& row : read(path)) {
        if (!judged(row)) continue;
        const Prediction found = predict(configuration(row), clusters, constants);
        const double measured = std::stod(row.at("time_us"));
        const double error = found.seconds * 1e6 / measured - 1;
        std::cout << fmt::format("| {} | {} | {} | {} | {:.1f} | {:.1f} | {:+.1f} % | {} |\n", row.at("gpu"),
                                 row.at("n_gpus"), row.at("algo"), mib(row.at("size_bytes")), measured,
                                 found.seconds * 1e6, 100 * error, found.how);
        const std::string name =
            fmt::format("{} | {} | {} | {}", row.at("gpu"), row.at("n_gpus"), row.at("fabric"), row.at("algo"));
        if (!groups.contains(name)) order.push_back(name);
        groups[name].add(error);
        all.add(error);
        if (row.at("algo") == "NVLSTree") {
            ++asked;
            chosen += predict(configuration(row), clusters, constants, true).how == "NVLS tree";
        }
    }
    std::cout
        << "\n| gpu | GPUs | fabric | algo | points | median error | within 20 % |\n|---|---|---|---|---|---|---|\n";
    for (const std::string& name : order)
        std::cout << fmt::format("| {} | {} | {:.1f} % | {:.0f} % |\n", name, groups[name].all.size(),
                                 100 * groups[name].median(), 100 * groups[name].within(0.2));
    std::cout << fmt::format("\nall: {} points, median error {:.1f} %, within 20 %: {:.0f} %\n", all.all.size(),
                             100 * all.median(), 100 * all.within(0.2));
    if (asked)
        std::cout << fmt::format("NVLSTree, asked for by {} points, is NCCL's own choice in this model for {}\n", asked,
                                 chosen);
}

void set(Constants& constants, const std::string& name, double value) {
    constants.of(name);  // throws where there is none
    for (size_t i = 0; i < constants.all().size(); ++i) {
        if (constants.all()[i].name == name) constants.set(i, value);
    }
}

}  // namespace

int main(int count, char** arguments) try {
    std::vector<std::string> plain;
    Constants constants;
    for (int i = 1; i < count; ++i) {
        const std::string text = arguments[i];
        const size_t equals = text.find('=');
        if (text == "--set") continue;
        if (equals == std::string::npos)
            plain.push_back(text);
        else
            set(constants, text.substr(0, equals), std::stod(text.substr(equals + 1)));
    }
    if (plain.empty())
        throw Error("usage: published_collectives FILE.csv [FOLDER OF CLUSTERS] [--set CONSTANT=VALUE ...]");
    print(plain[0], plain.size() > 1 ? plain[1] : "configs/clusters", constants);
    return 0;
} catch (const std::exception& problem) {
    std::cerr << "published_collectives: " << problem.what() << "\n";
    return 2;
}
