#include "published/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/hash.h"
#include "lua/script.h"
#include "published/accelerators.h"
#include "published/keep.h"
#include "published/prices.h"
#include "sim/simulate.h"

namespace orrery::published {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// What the script requires; it does not change while this runs.
const std::string& library_code() {
    static const std::string hash = sha256(text_of_scripts((script_library("") / "orrery").string()));
    return hash;
}

Prediction prediction_of(const Job& job, double step_s, int64_t bytes, const Constants& constants) {
    Prediction one;
    one.step_s = step_s;
    one.tokens_per_s = static_cast<double>(job.row.batch * job.row.tokens) / step_s / static_cast<double>(job.row.gpus);
    one.peak_gib = needed_gib(bytes, constants);
    const double device_gib = accelerator_facts(accelerator_of(job.row.gpu)).memory_gib;
    one.published_gib = published_gib(bytes, job.words.software.peak, device_gib, constants);
    one.recomputes_all = job.recompute == "full";
    one.fits = one.peak_gib <= device_gib;
    return one;
}

/// Keeps the better one: what fits, of those what recomputes less, and the fastest; else the smallest.
void choose(Prediction& best, Prediction one, int number) {
    one.chosen = number;
    const bool better = one.fits != best.fits                       ? one.fits
                        : !one.fits                                 ? one.peak_gib < best.peak_gib
                        : one.recomputes_all != best.recomputes_all ? best.recomputes_all
                                                                    : one.step_s < best.step_s;
    if (number == 0 || better) best = one;
}

}  // namespace

Prediction predict(const Row& row, const std::string& script, const Constants& constants) {
    accelerator_facts(accelerator_of(row.gpu));
    Prediction best;
    int number = 0;
    for (const Job& job : jobs_of(row)) {
        Plan own = plan_of(job, script);
        const int64_t bytes = peak_bytes(own, job);
        const TpChunked software = with_software(std::move(own), job.words);
        const Mesh& mesh = software.plan.mesh;
        RowPrices prices(job, mesh, constants);
        SimulateOptions options;
        options.mapped = software.chunks;
        const double step_s = job.batches * simulate(software.plan, contracts_of(mesh), prices, options).step_s;
        choose(best, prediction_of(job, step_s, bytes, constants), number++);
    }
    return best;
}

std::vector<Prepared> prepare(const Row& row, const std::string& script, const std::string& keep) {
    std::vector<Prepared> all;
    const std::string code = keep.empty() ? "" : text_of_file(script) + library_code();
    for (Job& job : jobs_of(row)) {
        Prepared one;
        one.mesh = mesh_of(job);
        const std::string key = job.toml + code + text_of_profile(job);
        std::optional<Kept> kept = keep.empty() ? std::nullopt : kept_graph(keep, key);
        if (!kept) {
            Plan own = plan_of(job, script);
            const int64_t bytes = peak_bytes(own, job);
            const TpChunked software = with_software(std::move(own), job.words);
            kept = Kept{condense(software.plan, contracts_of(one.mesh), software.chunks), bytes};
            if (!keep.empty()) keep_graph(keep, key, *kept);
        }
        one.graph = std::move(kept->graph);
        one.peak_bytes = kept->peak_bytes;
        one.job = std::move(job);
        wire(one, Constants());
        all.push_back(std::move(one));
    }
    return all;
}

void wire(Prepared& prepared, const Constants& constants) {
    RowWires wires(prepared.job, prepared.mesh, constants);
    prepared.wire_s.assign(prepared.graph.prices.size(), 0);
    for (size_t p = 0; p < prepared.graph.prices.size(); ++p) {
        const Priced& one = prepared.graph.prices[p];
        if (one.kind == Question::Kind::collective)
            prepared.wire_s[p] =
                wires.collective(one.opcode, one.axis, one.bytes, prepared.mesh.group(one.from, one.axis), one.alike);
        else if (one.kind == Question::Kind::message)
            prepared.wire_s[p] = wires.message(one.axis, one.bytes, one.from, one.to, one.alike);
    }
}

bool is_of_wires(const Constant& constant) {
    for (const char* kind : {"nvlink.", "pcie", "net.", "all_to_all", "ring.", "nvls."})
        if (constant.name.starts_with(kind)) return true;
    return false;
}

bool concerns(const Prepared& prepared, const Constant& constant) {
    if (constant.least == constant.most) return false;
    const size_t dot = constant.name.find('.');
    const std::string kind = constant.name.substr(0, dot), of = constant.name.substr(dot + 1);
    const Words& words = prepared.job.words;
    if (constant.name == "product.eight_bit") return words.eight_bit;
    if (kind == "launch_s") return of == launches_of(words.software);
    if (kind == "passes") return of == elementwise_of(words.software);
    if (kind == "attention") return of == attention_of(words.software);
    if (is_of_wires(constant)) return false;
    if (constant.name == "memory.context_gib" || constant.name == "memory.allocator") return false;
    return true;
}

std::vector<double> price(const Prepared& prepared, const Constants& constants) {
    const KernelPrices kernels = kernel_prices(prepared.job, constants);
    std::vector<double> seconds = prepared.wire_s;
    for (size_t p = 0; p < seconds.size(); ++p) {
        const Priced& one = prepared.graph.prices[p];
        if (one.kind == Question::Kind::kernel) seconds[p] = kernels.modelled(one.work);
        if (one.kind == Question::Kind::copy) seconds[p] = kernels.copy_seconds(one.bytes);
    }
    return seconds;
}

double step_seconds(const Prepared& prepared, const Constants& constants, std::vector<double>* slopes) {
    return prepared.job.batches * prepared.graph.dag.play(price(prepared, constants), slopes);
}

double needed_gib(int64_t bytes, const Constants& constants) {
    return static_cast<double>(bytes) / gib + constants.of("memory.context_gib");
}

double published_gib(int64_t bytes, SoftwareDefaults::Peak counts, double device_gib, const Constants& constants) {
    const double tensors = static_cast<double>(bytes) / gib, context = constants.of("memory.context_gib");
    if (counts == SoftwareDefaults::Peak::allocated) return tensors;
    const double reserved =
        std::min(tensors * constants.of("memory.allocator"), std::max(tensors, device_gib - context));
    return counts == SoftwareDefaults::Peak::reserved ? reserved : reserved + context;
}

Prediction predict(const std::vector<Prepared>& jobs, const Constants& constants) {
    Prediction best;
    for (size_t j = 0; j < jobs.size(); ++j)
        choose(best, prediction_of(jobs[j].job, step_seconds(jobs[j], constants), jobs[j].peak_bytes, constants),
               static_cast<int>(j));
    return best;
}

}  // namespace orrery::published
