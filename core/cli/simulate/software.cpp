#include "cli/simulate/software.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/load.h"
#include "ir/op.h"
#include "lua/script.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// The folder of configurations, next to the script library: in the source tree or where it is installed.
fs::path configs() { return script_library("").parent_path() / "configs"; }

bool is_file(const std::string& asked) { return asked.ends_with(".toml"); }

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(configs() / "software"))
        if (entry.path().extension() == ".toml") all.push_back(entry.path().stem().string());
    std::ranges::sort(all);
    return all;
}

SoftwareDefaults read(const fs::path& path) {
    Config file = load_toml(path);
    return software_defaults(path.stem().string(), file);
}

/// Whether each group of tp is in one domain of fast links.
bool tp_is_near(const Mesh& mesh, const Cluster& cluster, const Mapping& mapping) {
    const auto tp = mesh.find("tp");
    const auto domain = [&](int64_t rank) { return cluster.place(mapping.slot(rank)).domain; };
    for (int64_t rank = 0; tp && rank < mapping.ranks(); ++rank)
        if (domain(rank) != domain(mesh.group(rank, *tp).front())) return false;
    return true;
}

bool has_experts(const Program& program) {
    for (ValueId id = 0; id < std::ssize(program.values); ++id)
        if (program.value(id).role == Role::param && program.dim(id, "experts")) return true;
    return false;
}

bool has_work(const Plan& plan, Work work) {
    return std::ranges::any_of(plan.classes, [&](const RankClass& c) {
        return std::ranges::any_of(c.kernels, [&](const KernelSpec& spec) {
            const OpDef* def = find_op_def(spec.op);
            return def && def->work == work;
        });
    });
}

std::string text_of(SoftwareDefaults::Selective selective) {
    switch (selective) {
        case SoftwareDefaults::Selective::core: return "the core of attention";
        case SoftwareDefaults::Selective::ops: return "cheap ops and every second GEMM";
        case SoftwareDefaults::Selective::every_second: return "every second block";
    }
    return "";
}

}  // namespace

std::vector<SoftwareDefaults> all_software() {
    std::vector<SoftwareDefaults> all;
    for (const std::string& name : names()) all.push_back(read(configs() / "software" / (name + ".toml")));
    check_matches(all);
    return all;
}

SoftwareDefaults software_named(const std::string& asked) {
    if (is_file(asked)) return read(asked);
    const std::vector<std::string> known = names();
    const std::string guess = did_you_mean(asked, known);
    if (std::ranges::find(known, asked) == known.end())
        throw Error(fmt::format("--software {}: unknown software\n  found in {}: {}{}{}\n"
                                "  name one of them, or give a path that ends in .toml",
                                asked, (configs() / "software").string(), join(known, ", "),
                                guess.empty() ? "" : "        ", guess),
                    Fault::usage);
    return read(configs() / "software" / (asked + ".toml"));
}

StepSpread spread_of(const std::string& asked) {
    Config file = load_toml(configs() / "software_errors.toml");
    const bool known = !is_file(asked) && file.has(asked) && file.table(asked).require_integer("rows") >= fewest_runs;
    Config& row = file.table(known ? asked : "all");
    StepSpread spread;
    spread.low = row.number("p10", 0);
    spread.high = row.number("p90", 0);
    spread.rows = row.require_integer("rows");
    if (known) spread.software = asked;
    if (!(spread.low > 0 && spread.high >= spread.low))
        throw Error(row.where("p10"),
                    fmt::format("p10 is {} and p90 is {}, expected 0 < p10 <= p90", spread.low, spread.high));
    return spread;
}

SoftwareRun software_run(const SoftwareDefaults& software, const Plan& plan, const Cluster& cluster,
                         const Mapping& mapping, DType precision) {
    SoftwareRun run = run_of(software, plan);
    run.eight_bit = precision == DType::f8e4m3;
    settle(run, {plan.mesh.size("tp"), tp_is_near(plan.mesh, cluster, mapping), has_experts(plan.program),
                 precision == DType::f16});
    return run;
}

std::vector<std::string> differences(const SoftwareRun& run, const Plan& plan, const Host::Options& options) {
    const SoftwareDefaults& by = run.software;
    std::vector<std::string> lines;
    if (by.planned) return lines;  // tensors where the plan has them: the script decides the rest, too
    const auto option = [&](const char* key) {
        const auto found = options.find(key);
        return found == options.end() ? "" : found->second.value;
    };
    const auto add = [&](const std::string& software, const std::string& script) {
        lines.push_back(fmt::format("{} {}; the script {}", by.name, software, script));
    };
    if (plan.mesh.size("tp") > 1 && by.splits_sequence != run.sequence) {
        const char* const chunks = by.chunks_tp ? " and overlaps chunks of tp's collectives with GEMMs" : "";
        if (run.sequence)
            add("does not split the sequence over tp", "does");
        else
            add(fmt::format("splits the sequence over tp{}", chunks), "does not (script.sequence)");
    }
    if (run.sequence && by.splits_sequence && by.gathers_again != run.gathers_again) {
        const std::string again = "gathers inputs of matrix products over tp again in the backward pass";
        const std::string saves = "saves inputs of matrix products as tp gathered them";
        add(by.gathers_again ? again : saves, (by.gathers_again ? saves : again) + " (strategy tensor: keep)");
    }
    const std::string recompute = option("recompute");
    const OpDef* recomputed = find_op_def(recompute);
    const bool core =
        by.selective == SoftwareDefaults::Selective::core && recomputed && recomputed->work == Work::attention;
    if (!recompute.empty() && recompute != "none" && recompute != "all" && !core)
        add("recomputes " + text_of(by.selective) + " in selective recomputation", "recomputes " + recompute);
    if (const std::string codec = option("codec"); !codec.empty() && codec != "none" && !run.reduce_bf16)
        add("sums gradients in f32", fmt::format("sends them as {} (script.codec)", codec));
    if (!by.separate_attention && option("fused") == "false")
        add("runs attention as one kernel", "runs it as separate ops (script.fused)");
    if (by.loss != SoftwareDefaults::Loss::fused && has_work(plan, Work::tiled_loss))
        add("computes the loss over all logits at once", "computes logits in tiles (script.loss_tile)");
    const std::set<std::string> known = {"pp", "dp", "rep", "ep", "cp", "tp"};
    for (const Axis& axis : plan.mesh.axes())
        if (axis.size > 1 && !axis.sequential && known.count(axis.name) == 0)
            add("has defaults only for axes pp, dp, rep, ep, cp and tp",
                "also uses " + axis.name + ", which is priced as in the script's plan");
    return lines;
}

}  // namespace orrery
