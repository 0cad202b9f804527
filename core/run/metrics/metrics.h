#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/metrics/event_file.h"
#include "run/metrics/kept_lines.h"
#include "run/metrics/prometheus.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// Paths to which a run's metrics are written; "": not written.
struct MetricsPlaces {
    std::string lines;
    std::string events = {};      ///< folder of TensorBoard event files
    std::string prometheus = {};  ///< file in Prometheus' text format
    std::string run = {};         ///< value of the label "run" in the Prometheus file
};

/// Writes step lines, a progress line, metrics.jsonl, TensorBoard event files and a Prometheus file. Only
/// rank 0 has one. Throws Fault::failed, naming path and reason, if files cannot be opened or metrics.jsonl cannot be
/// written. A later failure of the other files is reported once and does not end the run; a file that was removed is
/// created again.
class MetricsWriter {
public:
    /// `progress` sets the progress line of a terminal; empty: there is none.
    MetricsWriter(MetricsPlaces places, std::FILE* terminal, std::function<void(const std::string&)> progress = {});
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;

    /// Opens the files and drops lines of steps after `resumed_step`, which will run again. A crash or power cut before
    /// or during the call leaves metrics.jsonl unchanged.
    void resume(int64_t resumed_step);
    /// Prints the column heads: samples/s instead of tok/s without tokens, loss_scale and skipped with a loss scale,
    /// capacity and again with capacities, and the names of results that are shown.
    void header(const TrainedNumbers& has, std::span<const StepResult> results = {});
    /// Takes less than 50 us, not counting the terminal and the Prometheus file, which is written at most once a
    /// second. Allocates nothing, except for a printed line, once lines have had their largest size.
    void step(const StepMetrics& metrics, bool print_line);
    /// Writes an evaluation; the loss comes first, then further means. A run that is restarted at its end may evaluate
    /// the resumed step again: equal means are only printed, different ones replace the old line. `nats`: the loss is
    /// in nats per token and its count are tokens; otherwise both have the units of the script.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means, bool nats = true);
    /// Prints a line.
    void note(const std::string& line);
    void finish();

private:
    void tell_progress(const StepMetrics& metrics);
    void write_line(const StepMetrics& metrics);
    void write_events(const StepMetrics& metrics);
    void write_evaluation(int64_t step, const Json& line);
    void write_to_lines(int64_t step, std::string_view line);
    template <class Write>
    void go_on(std::string& told, const Write& write);

    const MetricsPlaces places_;
    std::unique_ptr<AppendedFile> lines_;
    std::unique_ptr<EventFile> events_;
    std::unique_ptr<PrometheusFile> prometheus_;
    KeptLines kept_;  ///< lines of metrics.jsonl about the step resumed from
    int64_t resumed_ = 0;
    fmt::memory_buffer line_;
    std::string events_failed_, prometheus_failed_;  ///< message about the last write's failure; "": it succeeded
    std::FILE* terminal_;
    const std::function<void(const std::string&)> progress_;
    std::chrono::steady_clock::time_point step_ended_{};
    double pace_s_ = 0;  ///< recent mean time from step to step, with saves and evaluations
};

}  // namespace orrery
