#include "sim/cluster_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "sim/local/local_costs.h"

namespace orrery {

namespace {

double rate_or_0(const Accelerator& accelerator, const std::string& dtype) {
    const auto found = accelerator.dense_flops.find(dtype);
    return found == accelerator.dense_flops.end() ? 0 : found->second;
}

/// "NVIDIA H100-80GB" -> nvidia, h100, 80gb.
std::set<std::string> words_of(const std::string& text) {
    std::set<std::string> words;
    std::string word;
    for (const char c : text + ' ') {
        if (std::isalnum(static_cast<unsigned char>(c)))
            word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (!word.empty())
            words.insert(std::exchange(word, {}));
    }
    return words;
}

}  // namespace

std::string measured_on(const CostTable& table) {
    for (const std::string& line : split(table.machine, '\n'))
        for (const std::string_view name : {"processor=", "model name="})
            if (trim(line).starts_with(name)) return std::string(trim(line).substr(name.size()));
    return table.device;
}

bool measured_on(const CostTable& table, const std::string& accelerator) {
    return accelerator == table.device || std::ranges::includes(words_of(measured_on(table)), words_of(accelerator));
}

AcceleratorRates rates_of(const Accelerator& accelerator, const Constants& constants, bool tf32) {
    AcceleratorRates rates;
    rates.name = accelerator.name;
    rates.matrix_flops = rate_or_0(accelerator, "bf16");
    rates.f16_flops = rate_or_0(accelerator, "f16");
    rates.f32_flops = rate_or_0(accelerator, tf32 ? "tf32" : "f32");
    rates.f64_flops = rate_or_0(accelerator, "f64");
    rates.eight_bit_flops = rate_or_0(accelerator, "fp8");
    rates.memory_bytes_per_s = accelerator.memory_bytes_s;
    if (accelerator.multiprocessors > 0) rates.multiprocessors = accelerator.multiprocessors;
    rates.memory_share = constants.of("memory.share");
    if (const std::string name = "matrix." + accelerator.measured_as; constants.has(name))
        rates.matrix_share = constants.of(name);
    if (accelerator.matrix_share > 0) rates.matrix_share = accelerator.matrix_share;
    if (accelerator.matrix_share > 0 || !accelerator.measured_as.empty())
        rates.matrix_share *= constants.of("product.sustained");
    return rates;
}

ClusterPrices::ClusterPrices(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping,
                             const Constants& constants, const SoftwareRun& software, bool tf32,
                             const CostTable* measured)
    : cluster_(cluster),
      mapping_(mapping),
      software_(software),
      like_(cluster.as_fast()),
      wires_(cluster, mesh, mapping, constants),
      sent_(software, mesh, wires_) {
    if (measured) measured_.emplace(*measured, static_cast<int>(fact_of(*measured, "threads", 1)), 1, 1);
    for (const NodeKind& kind : cluster.kinds) {
        kernels_.emplace_back(rates_of(kind.accelerator, constants, tf32), kernels_of(software, constants));
        is_measured_.push_back(measured && measured_on(*measured, kind.accelerator.name));
    }
}

Demand ClusterPrices::kernel(const KernelSpec& spec, int64_t rank) {
    if (!software_.software.planned && lays_out(spec)) return {};
    if (is_measured_[kind_of(rank)]) {
        if (measured_->knows(spec)) return {.fixed_s = measured_->price(spec).alone_s, .loads = {}, .how = ""};
        by_formula_.insert(fmt::format("{} {}", spec.op, name_of(work_of(spec).type)));
    }
    return of(rank).kernel(spec);
}

std::vector<std::string> ClusterPrices::sources() const {
    if (!measured_) return {};
    std::vector<std::string> lines = {measured_->sources()};
    if (!by_formula_.empty())
        lines.push_back(
            fmt::format("ops and types without a row in the table, estimated from the accelerator's rates: {}",
                        join_few({by_formula_.begin(), by_formula_.end()}, 8)));
    return lines;
}

}  // namespace orrery
