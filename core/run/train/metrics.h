#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// What one training step showed. `flops`: model flops of the step on all ranks.
struct StepMetrics {
    int64_t step = 0, steps = 0;
    double loss = 0;  ///< nats per token
    double grad_norm = 0;
    double lr = 0;
    double seconds = 0;
    int64_t tokens = 0;  ///< in this step, all ranks
    double flops = 0;
    double peak_flops = 0;     ///< matrix rate of all ranks together; 0: MFU unknown
    int64_t memory_bytes = 0;  ///< resident set of this rank
    bool scaled = false;       ///< there is a loss scale; then:
    double loss_scale = 0;     ///< that the gradients of this step were multiplied by
    int64_t skipped = 0;       ///< steps without an update so far, with those before a restart
    bool skips = false;        ///< this is one: its gradients overflowed and have no norm
    /// Further results that the script has recorded: one number, or as many as the result has elements.
    std::vector<std::pair<std::string, std::vector<float>>> results = {};
};

/// A mean over held-out data: of the loss, as "eval", or of a metric of the script's.
struct EvaluatedMean {
    std::string name;
    double sum = 0, count = 0;

    double value() const { return sum / count; }
};

/// A result that a script records beside what every step shows.
struct RecordedResult {
    std::string name;
    std::string why_not;  ///< a line that says why metrics.jsonl does not have it; "": it does
};
/// Of a compiled train step. Throws Error at a result that is called as a key of metrics.jsonl is.
std::vector<RecordedResult> recorded_results(const Program& program);
/// Throws Error where a step of a ramp has other results than the full one.
void require_same_results(const Program& full, const Program& smaller);
/// Whether its gradients are scaled: "loss_scale" and "skipped" are columns then, not a script's own results.
bool has_loss_scale(const Program& program);

/// Writes step lines, a progress bar on a terminal, and metrics.jsonl. Only rank 0 has one. Throws Fault::failed,
/// naming path and reason, when a line cannot be written.
class MetricsWriter {
public:
    /// `path` "" writes no file.
    MetricsWriter(const std::string& path, std::FILE* terminal);
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;

    /// Opens the file. Its lines of steps after `resumed_step` go: those steps will be run again. Until then, and after
    /// a power cut here, it is as it was.
    void resume(int64_t resumed_step);
    /// `scaled`: with the columns loss_scale and skipped.
    void header(bool scaled);
    void step(const StepMetrics& metrics, bool print_line);
    /// The loss comes first, then metrics of the script's own.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means);
    /// A line of its own, not torn by the progress bar.
    void note(const std::string& line);

private:
    void clear_bar();
    void bar(const StepMetrics& metrics);
    void write(const std::string& line);

    std::string path_;
    std::FILE* file_ = nullptr;
    std::FILE* terminal_;
    bool interactive_;
    bool bar_shown_ = false;
};

/// Seconds of a run by what they were spent on, for the closing table.
struct TimeShare {
    std::string what;  ///< "compute: matmul", "communication", "waiting"
    double seconds = 0;
};
/// A table, largest first, shares of the total.
std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds);

/// Resident set size of this process in bytes.
int64_t resident_bytes();

}  // namespace orrery
