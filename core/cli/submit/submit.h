#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

struct ScriptCommand;  // defined in cli/commands.h

struct SubmitCommand {
    std::string engine;
    bool print = false;  ///< print the engine's text instead of handing the job over
};

/// A job that `orrery submit` has handed over, or that an engine has started.
struct JobCommand {
    std::string run;                ///< the run's folder; with `engine` the engine's name of the job
    std::string engine;             ///< "": as the run's folder says
    std::string config;             ///< TOML file with [submit.ENGINE]; "": that of the run's folder, if there is one
    std::vector<std::string> sets;  ///< "submit.ENGINE.key=value"
    std::optional<int64_t> rank;    ///< logs: of this rank; unset: of rank 0
    bool follow = false;            ///< logs: also what is written from now on
    bool now = false;               ///< stop: ranks do not save first
};

// Each command has one function. It returns the exit code and throws errors.
int submit_command(const ScriptCommand& script, const SubmitCommand& command);
int status_command(const JobCommand& command);
int logs_command(const JobCommand& command);
int stop_command(const JobCommand& command);

}  // namespace orrery
