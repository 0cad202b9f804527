#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "run/metrics/event_file.h"
#include "run/metrics/kept_lines.h"
#include "run/metrics/prometheus.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// Where a run's numbers go. "": nowhere.
struct MetricsPlaces {
    std::string lines;            ///< metrics.jsonl
    std::string events = {};      ///< folder of TensorBoard's event files
    std::string prometheus = {};  ///< file
    std::string run = {};         ///< what it is called there
};

/// Writes step lines, a progress bar on a terminal, metrics.jsonl, TensorBoard's files and Prometheus'. Only rank 0 has
/// one. Throws Fault::failed, naming path and reason, when something cannot be written.
class MetricsWriter {
public:
    MetricsWriter(MetricsPlaces places, std::FILE* terminal);
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;

    /// Opens the files. Lines of steps after `resumed_step` go: those steps will be run again. Until then, and after a
    /// power cut here, metrics.jsonl is as it was.
    void resume(int64_t resumed_step);
    /// `scaled`: with the columns loss_scale and skipped.
    void header(bool scaled);
    /// Below 50 us but for the terminal and, once a second, Prometheus' file; allocates nothing once lines have had
    /// their largest size, but for the printed one.
    void step(const StepMetrics& metrics, bool print_line);
    /// The loss comes first, then further means. Of the step resumed from, as in a run that is started again at its
    /// end: one that is there already is only told, another one takes its place.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means);
    /// A line of its own, not torn by the progress bar.
    void note(const std::string& line);
    /// All that was kept for later is written.
    void finish();

private:
    void clear_bar();
    void bar(const StepMetrics& metrics);
    void write_line(const StepMetrics& metrics);
    void write_events(const StepMetrics& metrics);
    void write_evaluation(int64_t step, const Json& line);

    const MetricsPlaces places_;
    std::unique_ptr<AppendedFile> lines_;
    std::unique_ptr<EventFile> events_;
    std::unique_ptr<PrometheusFile> prometheus_;
    KeptLines kept_;  ///< of the step resumed from
    int64_t resumed_ = 0;
    fmt::memory_buffer line_;
    std::FILE* terminal_;
    bool interactive_;
    bool bar_shown_ = false;
};

}  // namespace orrery
