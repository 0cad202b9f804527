#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery {

/// Returns the wall-clock time in seconds since 1970, UTC, to the microsecond.
double wall_time();

/// A result that the script declares, as metrics record it. It is created once; `values` are overwritten in each step.
struct StepResult {
    /// `count`: number of the result's elements.
    StepResult(const std::string& name, size_t count);

    std::string name;
    std::string key;                  ///< the result's name as JSON text
    std::vector<std::string> tags;    ///< TensorBoard tags, one for each element
    std::vector<std::string> labels;  ///< Prometheus labels, one for each element: name="rows",index="3"
    std::vector<double> values;
    bool shown = false;  ///< the printed line of a step has its largest element
};

/// The optional numbers that a training has. Missing ones are left out of files and stay blank in printed lines.
struct TrainedNumbers {
    bool tokens = true;     ///< inputs are token ids
    bool nats = true;       ///< the loss is in nats per token
    bool norm = true;       ///< the optimizer declares the result grad_norm
    bool rate = true;       ///< the optimizer declares the result lr, the learning rate
    bool scale = false;     ///< gradients are scaled by a loss scale
    bool capacity = false;  ///< a step that overflows its capacity runs again
    bool nominal = false;   ///< the data sheet's rate of the devices is known
};

/// Measurements of one training step. `flops`: model FLOPs of the step on all ranks; `full_flops`: the same, counting
/// masked pairs of attention.
struct StepMetrics {
    int64_t step = 0, steps = 0;
    TrainedNumbers has;
    double loss = 0;  ///< loss_sum / count; nats per token where inputs are token ids
    double grad_norm = 0;
    double lr = 0;
    double time = 0;  ///< end of the step: seconds since 1970, UTC
    double seconds = 0;
    int64_t tokens = 0, samples = 0;  ///< tokens and samples of this step on all ranks
    double flops = 0, full_flops = 0;
    double peak_flops = 0;                    ///< measured matrix rate of all ranks together; 0: MFU unknown
    double nominal_flops = 0;                 ///< the same by the devices' data sheet
    int64_t memory_bytes = 0;                 ///< resident set of this rank
    double loss_scale = 0;                    ///< factor on this step's gradients
    int64_t skipped = 0;                      ///< steps without an update so far, including those before a restart
    bool skips = false;                       ///< this step had no update: its gradients overflowed and have no norm
    double capacity = 0;                      ///< the capacity that was large enough for this step
    int64_t again = 0;                        ///< times that a step ran again so far, including before a restart
    int64_t all_tokens = 0, all_samples = 0;  ///< totals of the run, restarts included, up to the end of this step
    double data_s = 0, communication_s = 0, waiting_s = 0;  ///< parts of `seconds`, as in the table at the end of a run
    double checkpoint_s = 0;                                ///< seconds that saves delayed steps since the last one
    std::span<const StepResult> results = {};
};

/// A mean over held-out data: "eval" is the loss, "eval_NAME" a result of the model, any other name a metric.
struct EvaluatedMean {
    std::string name;
    double sum = 0, count = 0;

    double value() const { return sum / count; }
};

/// A measurement of a step (a column of the metrics) and its name in each output.
struct StepColumn {
    const char* key;   ///< key in metrics.jsonl
    const char* tag;   ///< TensorBoard tag; torchtitan's if it means the same
    const char* name;  ///< Prometheus name
    const char* help;  ///< Prometheus help text
    double (*value)(const StepMetrics& metrics);
    bool whole = false;                                  ///< the number is an integer
    bool (*exists)(const TrainedNumbers& has) = always;  ///< whether a training with these numbers has the column
    bool grows = false;                                  ///< the number only grows: a Prometheus counter

    static bool always(const TrainedNumbers&) { return true; }
};
/// All columns, in the order of a line in metrics.jsonl.
std::span<const StepColumn> step_columns();

}  // namespace orrery
