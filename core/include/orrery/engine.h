#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orrery/api.h"
#include "orrery/launcher.h"

namespace orrery {

/// A job for an engine, as the mesh and [submit] describe it. `orrery submit` makes it.
struct EngineJob {
    std::string name;                  ///< of the run: letters, digits, "-", "_" and "."
    std::string folder;                ///< absolute path of the run's folder
    std::string work;                  ///< absolute path of the folder where `command` is started
    std::vector<std::string> command;  ///< orrery run SCRIPT and flags, the same on each node
    int64_t ranks = 1, nodes = 1, ranks_per_node = 1;
    int64_t gpus_per_node = 0;
    int64_t threads = 0;     ///< CPU threads of each rank; 0: not set
    int64_t spares = 0;      ///< nodes besides `nodes`, each of which waits for the loss of another
    bool agents = false;     ///< one task per node, which starts and watches the node's ranks; else one task per rank
    int64_t time_s = 0;      ///< limit of the job's duration; 0: the engine's default
    double grace_s = 0;      ///< time in s that ranks need from a signal to their end; 0: not known
    std::string token_file;  ///< file of mode 0600 with the job's secret; "": the run's folder is not visible here
    std::vector<std::string> before;                               ///< lines of shell before `command`
    std::vector<std::pair<std::string, std::string>> environment;  ///< variables of all ranks
};

/// A program of the engine's own, to be found in PATH, with its arguments and the text of its standard input.
struct EngineCall {
    std::vector<std::string> arguments;
    std::string input;
};

/// Hands jobs to a program that schedules machines or starts processes on them (sbatch, kubectl, mpirun, ssh): a plugin
/// engine/NAME. Its functions return texts and calls; they start nothing and read no file but those that its table
/// [submit.NAME] names, so that `orrery submit --print` shows all that would happen. Wrong settings throw Error.
class ORRERY_API Engine {
public:
    virtual ~Engine();
    /// Returns the batch script, manifest or command of a job. Throws Error for a job that the engine cannot start.
    virtual std::string text(const EngineJob& job) const = 0;
    /// Returns the call that hands `text` to the engine. Exit code 2: a user error, and its stderr is the message.
    virtual EngineCall submit(const EngineJob& job, const std::string& text) const = 0;
    /// Returns the engine's name of the job from the output of that call. Throws Error if it has none.
    virtual std::string name_in(const EngineJob& job, const std::string& output) const = 0;
    /// Returns the engine's name of the job in which this process runs; "" if this engine did not start it.
    virtual std::string own_name(const Environment& environment) const = 0;
    /// Returns the call that prints the state of a job. The job has ended if it fails or does not print `name`.
    virtual EngineCall status(const std::string& name) const = 0;
    /// Returns the calls that end a job, one after the other. Unless `now`, its ranks save first.
    virtual std::vector<EngineCall> stop(const std::string& name, bool now) const = 0;
    /// Returns the call that prints the output of a job, or of one rank; nullopt: only the run's folder has it.
    virtual std::optional<EngineCall> logs(const std::string&, std::optional<int64_t> /*rank*/, bool /*follow*/) const {
        return std::nullopt;
    }
};

}  // namespace orrery
