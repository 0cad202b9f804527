#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery {

/// Seconds since 1970, UTC, whole microseconds.
double wall_time();

/// A further result of the script's in a step: made once, its numbers are written over in each step.
struct StepResult {
    /// `count`: its elements.
    StepResult(const std::string& name, size_t count);

    std::string name;
    std::string key;                  ///< its name as a JSON text
    std::vector<std::string> tags;    ///< of TensorBoard, one an element
    std::vector<std::string> labels;  ///< of Prometheus, one an element: name="rows",index="3"
    std::vector<double> values;
};

/// What one training step showed. `flops`: model flops of the step on all ranks.
struct StepMetrics {
    int64_t step = 0, steps = 0;
    double loss = 0;  ///< nats per token
    double grad_norm = 0;
    double lr = 0;
    double time = 0;     ///< of its end: seconds since 1970, UTC
    double seconds = 0;  ///< that it took
    int64_t tokens = 0;  ///< in this step, all ranks
    double flops = 0;
    double peak_flops = 0;                    ///< matrix rate of all ranks together; 0: MFU unknown
    int64_t memory_bytes = 0;                 ///< resident set of this rank
    bool scaled = false;                      ///< there is a loss scale; then:
    double loss_scale = 0;                    ///< that the gradients of this step were multiplied by
    int64_t skipped = 0;                      ///< steps without an update so far, with those before a restart
    bool skips = false;                       ///< this is one: its gradients overflowed and have no norm
    int64_t all_tokens = 0, all_samples = 0;  ///< up to its end, with those before a restart
    double data_s = 0, communication_s = 0, waiting_s = 0;  ///< of `seconds`, of this rank, as the breakdown has them
    double checkpoint_s = 0;                                ///< of checkpoints since the step before
    std::span<const StepResult> results = {};
};

/// A mean over held-out data: of the loss, as "eval", of a result of the model's as "eval_NAME", or of a metric.
struct EvaluatedMean {
    std::string name;
    double sum = 0, count = 0;

    double value() const { return sum / count; }
};

/// A number of a step, whoever is told it.
struct StepColumn {
    const char* key;   ///< of a line of metrics.jsonl
    const char* tag;   ///< of TensorBoard: torchtitan's where it means the same
    const char* name;  ///< of Prometheus
    const char* help;  ///< there
    double (*value)(const StepMetrics& metrics);
    bool whole = false;    ///< an integer
    bool scaling = false;  ///< only where there is a loss scale
    bool grows = false;    ///< a counter
};
/// In the order of a line.
std::span<const StepColumn> step_columns();

}  // namespace orrery
