#include "run/metrics/step_metrics.h"

#include <fmt/format.h>

#include <chrono>

#include "base/json.h"
#include "run/metrics/prometheus.h"

namespace orrery {
namespace {

double per_second(double of, const StepMetrics& m) { return m.seconds > 0 ? of / m.seconds : 0; }

bool of_tokens(const TrainedNumbers& has) { return has.tokens; }
bool in_nats(const TrainedNumbers& has) { return has.nats; }
bool in_own_unit(const TrainedNumbers& has) { return !has.nats; }
bool of_samples(const TrainedNumbers& has) { return !has.tokens; }
bool with_scale(const TrainedNumbers& has) { return has.scale; }
bool with_nominal(const TrainedNumbers& has) { return has.nominal; }
bool with_capacity(const TrainedNumbers& has) { return has.capacity; }
double loss_of(const StepMetrics& m) { return m.loss; }

constexpr StepColumn columns[] = {
    {"loss", "loss_metrics/global_avg_loss", "orrery_loss_nats", "Loss of the step, nats per token.", loss_of, false,
     in_nats},
    {"loss", "loss_metrics/global_avg_loss", "orrery_loss", "Loss of the step.", loss_of, false, in_own_unit},
    {"grad_norm", "grad_norm", "orrery_gradient_norm", "Norm of the gradients of all params.",
     [](const StepMetrics& m) { return m.grad_norm; }, false, [](const TrainedNumbers& has) { return has.norm; }},
    {"lr", "lr", "orrery_learning_rate", "Learning rate.", [](const StepMetrics& m) { return m.lr; }, false,
     [](const TrainedNumbers& has) { return has.rate; }},
    {"tok/s", "tok/s", "orrery_tokens_per_second", "Tokens per second of all ranks.",
     [](const StepMetrics& m) { return per_second(static_cast<double>(m.tokens), m); }, false, of_tokens},
    {"samples/s", "samples/s", "orrery_samples_per_second", "Samples per second of all ranks.",
     [](const StepMetrics& m) { return per_second(static_cast<double>(m.samples), m); }, false, of_samples},
    {"TFLOP/s", "TFLOP/s", "orrery_model_teraflops", "Model flops per second of all ranks, in 10^12.",
     [](const StepMetrics& m) { return per_second(m.flops, m) / 1e12; }},
    {"MFU", "MFU", "orrery_model_flops_utilization_ratio", "Share of the ranks' measured matrix rate; 0: unknown.",
     [](const StepMetrics& m) { return m.peak_flops > 0 ? per_second(m.flops, m) / m.peak_flops : 0; }},
    {"MFU_nominal", "MFU_nominal", "orrery_nominal_flops_utilization_ratio",
     "Share of the dense matrix rate in the devices' data sheet.",
     [](const StepMetrics& m) { return per_second(m.flops, m) / m.nominal_flops; }, false, with_nominal},
    {"memory", "memory", "orrery_memory_bytes", "Memory in use by rank 0.",
     [](const StepMetrics& m) { return static_cast<double>(m.memory_bytes); }, true},
    {"loss_scale", "loss_scale", "orrery_loss_scale", "Factor on the gradients.",
     [](const StepMetrics& m) { return m.loss_scale; }, false, with_scale},
    {"skipped", "skipped", "orrery_skipped_steps_total", "Steps without an update: their gradients overflowed.",
     [](const StepMetrics& m) { return static_cast<double>(m.skipped); }, true, with_scale, true},
    {"capacity", "capacity", "orrery_capacity", "Capacity of the step.",
     [](const StepMetrics& m) { return m.capacity; }, false, with_capacity},
    {"again", "again", "orrery_runs_again_total", "Times that a step ran again: it had overflowed its capacity.",
     [](const StepMetrics& m) { return static_cast<double>(m.again); }, true, with_capacity, true},
    {"time", "time", "orrery_step_end_timestamp_seconds", "When the step ended.",
     [](const StepMetrics& m) { return m.time; }},
    {"seconds", "time_metrics/end_to_end(s)", "orrery_step_seconds", "Duration of the step.",
     [](const StepMetrics& m) { return m.seconds; }},
    {"tokens", "n_tokens_seen", "orrery_tokens_total", "Tokens of all steps so far.",
     [](const StepMetrics& m) { return static_cast<double>(m.all_tokens); }, true, of_tokens, true},
    {"samples", "samples", "orrery_samples_total", "Samples of all steps so far.",
     [](const StepMetrics& m) { return static_cast<double>(m.all_samples); }, true, StepColumn::always, true},
    {"data_share", "time_shares/data", "orrery_data_wait_ratio", "Share of the step in which rank 0 waited for data.",
     [](const StepMetrics& m) { return per_second(m.data_s, m); }},
    {"communication_share", "time_shares/communication", "orrery_communication_ratio",
     "Share of the step that rank 0 spent communicating.",
     [](const StepMetrics& m) { return per_second(m.communication_s, m); }},
    {"waiting_share", "time_shares/waiting", "orrery_waiting_ratio",
     "Share of the step in which rank 0 waited for communication that kernels did not hide.",
     [](const StepMetrics& m) { return per_second(m.waiting_s, m); }},
    {"checkpoint_seconds", "checkpoint_seconds", "orrery_checkpoint_seconds",
     "Time of checkpoints since the previous step.", [](const StepMetrics& m) { return m.checkpoint_s; }},
    {"MFU_full", "MFU_full", "orrery_full_attention_flops_utilization_ratio",
     "Model FLOPs utilization, counting all query-key pairs of attention, masked or not.",
     [](const StepMetrics& m) { return m.peak_flops > 0 ? per_second(m.full_flops, m) / m.peak_flops : 0; }},
};

}  // namespace

StepResult::StepResult(const std::string& name, size_t count) : name(name), key(Json(name).dump()), values(count) {
    for (size_t i = 0; i < count; ++i) {
        tags.push_back(count == 1 ? "results/" + name : fmt::format("results/{}/{}", name, i));
        labels.push_back(fmt::format("name=\"{}\"", label_text(name)));
        if (count > 1) labels.back() += fmt::format(",index=\"{}\"", i);
    }
}

double wall_time() {
    using namespace std::chrono;
    const auto since = duration_cast<microseconds>(system_clock::now().time_since_epoch());
    return static_cast<double>(since.count()) / 1e6;
}

std::span<const StepColumn> step_columns() { return columns; }

}  // namespace orrery
