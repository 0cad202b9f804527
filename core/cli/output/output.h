#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/process.h"

namespace orrery {

/// What the terminal shows of a rank's output. Of a rank that fails, it shows the end of stderr in any case.
enum class Shown : uint8_t {
    nothing,
    plain,     ///< as it is
    prefixed,  ///< each line with its rank: "[rank 3] text"
};

/// Starts the process that collects the output of this command: everything that this process and its children write to
/// stdout and stderr passes through it, also what libraries write and what was written before a crash. Call it before
/// the first thread. Throws Error, Fault::failed, if the process cannot be started.
void collect_output();

/// In a rank, if its launcher has started that process: takes up the connection to it.
void take_up_output();

/// Whether the output of this process is collected.
bool output_is_collected();

/// Streams of a rank process that the launcher is about to start.
class RankStreams {
public:
    /// Hands their other ends to the collecting process. `generation` 0: the rank says it later, with log_output().
    RankStreams(int64_t rank, Shown shown, const std::string& folder, int64_t generation);
    void give_to(ProcessStart& start) const;

private:
    Pipe output_, errors_;
    bool one_ = false;  ///< both streams are `output_`, which keeps their order
};

/// Sets which rank this process is (-1: a launcher) and how the terminal shows it. nullopt: nothing is shown if the
/// rank gets a log, else its lines are, prefixed.
void show_output(int64_t rank, std::optional<Shown> shown);

/// Tells into which log a rank's output goes. `generation` 0: not known yet.
void log_output(int64_t rank, const std::string& folder, int64_t generation);

/// Returns a function that sets the progress line; empty if no terminal shows it.
std::function<void(const std::string&)> progress_line();

/// Tells that a rank process was reaped; its output is on the terminal and in the log when this returns. `code`: 0 also
/// for a rank that was killed because others had failed. `killed`: by a signal, so that the rank has not printed why.
void rank_ended(int64_t rank, int code, bool killed);

/// Tells, in a rank that had joined the others, that it ends because another one has failed: its last lines are shown
/// only if no rank has printed yet why it ends.
void follows_another(int64_t rank);

/// Flushes this process's output and waits until it is written, for some seconds at most. `code`: of this process.
void finish_output(int code);

}  // namespace orrery
