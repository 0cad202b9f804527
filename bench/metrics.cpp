// What telling a step costs rank 0: metrics.jsonl, TensorBoard's and Prometheus' files, all of it on. The median and
// the 99th of a hundred of STEPS steps (10,000), without and with 64 results of the script's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "run/metrics/breakdown.h"
#include "run/metrics/metrics.h"

using namespace orrery;

namespace {

void measure(const std::string& folder, int64_t steps, size_t count) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::FILE* const nothing = std::fopen("/dev/null", "w");
    MetricsWriter writer({folder + "/metrics.jsonl", folder + "/tensorboard", folder + "/run.prom", folder}, nothing);
    writer.resume(0);
    const ResidentSet resident;
    std::vector<StepResult> results;
    for (size_t i = 0; i < count; ++i) results.emplace_back(fmt::format("result_{}", i), 1);
    std::vector<double> took;
    StepMetrics m;
    m.steps = steps;
    m.results = results;
    m.tokens = 65536;
    m.flops = 1e12;
    m.peak_flops = 1e14;
    for (m.step = 1; m.step <= steps; ++m.step) {
        const auto began = std::chrono::steady_clock::now();
        m.time = wall_time();
        m.memory_bytes = resident.bytes();
        m.loss = 10 / (1 + 1e-3 * static_cast<double>(m.step));
        m.grad_norm = 1 / m.loss;
        m.lr = 1e-4 * m.grad_norm;
        m.seconds = 0.1 + 1e-6 * m.lr;
        m.data_s = m.communication_s = m.waiting_s = 0.01 * m.loss;
        m.all_samples = 32 * m.step;
        m.all_tokens = m.tokens * m.step;
        for (StepResult& result : results) result.values[0] = m.loss;
        writer.step(m, false);
        took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
    }
    std::sort(took.begin(), took.end());
    std::printf("%s\n",
                fmt::format("{:>4} results  {:>6} steps  median {:>6.1f} us  99 % {:>6.1f} us  most {:>8.1f} us", count,
                            steps, took[took.size() / 2], took[took.size() * 99 / 100], took.back())
                    .c_str());
    std::fclose(nothing);
    std::filesystem::remove_all(folder);
}

}  // namespace

int main(int count, char** arguments) {
    const int64_t steps = count > 1 ? std::atoll(arguments[1]) : 10'000;
    const std::string folder = (std::filesystem::temp_directory_path() / "orrery_bench_metrics").string();
    for (const size_t results : {0, 64}) measure(folder, std::max<int64_t>(1, steps), results);
    return 0;
}
