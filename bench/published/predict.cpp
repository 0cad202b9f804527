#include "published/predict.h"

#include <algorithm>
#include <cmath>

#include "published/accelerators.h"
#include "sim/kernel_prices.h"

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
    software.packed = job.words.packed;
    software.eight_bit = job.words.software == Software::eight_bit;
    software.eight_bit_share = constants.of("product.eight_bit");
    software.wide = job.vocab / job.row.tp;
    return software;
}

}  // namespace

std::vector<Prepared> prepare(const Row& row, const std::string& script) {
    std::vector<Prepared> all;
    for (Job& job : jobs_of(row)) {
        const Plan plan = plan_of(job, script);
        Prepared one;
        one.mesh = plan.mesh;
        one.graph = condense(plan, job.words);
        one.job = std::move(job);
        all.push_back(std::move(one));
    }
    return all;
}

bool concerns(const Prepared& prepared, const Constant& constant) {
    const size_t dot = constant.name.find('.');
    const std::string kind = constant.name.substr(0, dot), of = constant.name.substr(dot + 1);
    const Software software = prepared.job.words.software;
    if (kind == "matrix") return of == accelerator_of(prepared.job.row.gpu) && stated_share(prepared.job.row.gpu) == 0;
    if (constant.name == "product.eight_bit") return software == Software::eight_bit;
    if (kind == "launch_s" || kind == "passes") return of == name_of(software);
    if (constant.name == "memory.context_gib" || constant.name == "memory.allocator") return false;
    return true;
}

double step_seconds(const Prepared& prepared, const Constants& constants, std::vector<double>* weights) {
    return prepared.job.batches * prepared.graph.play(price(prepared, constants), weights);
}

double peak_gib(const Prepared& prepared, const Constants& constants) {
    return static_cast<double>(prepared.graph.peak_bytes) / gib * constants.of("memory.allocator") +
           constants.of("memory.context_gib");
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
    const AcceleratorFacts& facts = accelerator_facts(accelerator_of(job.row.gpu));
    std::vector<double> seconds;
    for (const Priced& one : prepared.graph.prices) {
        double s = 0;
        if (one.kind == Priced::Kind::kernel) s = kernels.seconds(one.spec);
        if (one.kind == Priced::Kind::copy) s = kernels.copy_seconds(one.bytes);
        if (one.kind == Priced::Kind::beside) {
            double products = 0;
            for (const int p : one.products) products += seconds[static_cast<size_t>(p)];
            const double wire = seconds[static_cast<size_t>(one.of)];
            s = std::max(wire, products) + std::min(wire, products) / 4 - products;
        }
        if (one.kind == Priced::Kind::collective || one.kind == Priced::Kind::message) {
            const bool message = one.kind == Priced::Kind::message;
            const std::vector<int64_t> group =
                message ? std::vector<int64_t>{one.from, one.to} : prepared.mesh.group(one.from, one.axis);
            const auto node = [&](int64_t rank) { return rank / facts.domain; };
            const auto near =
                std::count_if(group.begin(), group.end(), [&](int64_t rank) { return node(rank) == node(group[0]); });
            const double n = static_cast<double>(group.size());
            const double nic = (job.row.nic_bytes_per_s > 0 ? job.row.nic_bytes_per_s : facts.nic_gb_s * 1e9) * 0.9;
            const double nvlink = facts.nvlink_gb_s * 1e9 * 0.8;
            const bool inside = near == static_cast<int64_t>(n);
            const double rate = inside ? nvlink : std::min(nvlink, nic * static_cast<double>(near));
            const double parts = message ? 1 : (n - 1) / n * (one.opcode == Opcode::all_reduce ? 2 : 1);
            const double hops = inside ? 12e-6 : 20e-6 + 4e-6 * std::log2(n);
            s = hops + parts * static_cast<double>(one.bytes) / rate;
        }
        seconds.push_back(s);
    }
    return seconds;
}

}  // namespace orrery::published
