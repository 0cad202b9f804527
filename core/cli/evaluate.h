#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cli/commands.h"

namespace orrery {

/// What `orrery evaluate` is asked for beside a run, a published folder or a script.
struct EvaluateCommand {
    std::string file;               ///< a text, or a token file (.bin); "": none
    std::string choices;            ///< lines of JSON; "": none
    std::optional<int64_t> window;  ///< tokens; none: of the run's sequences
    std::optional<int64_t> stride;  ///< none: windows do not overlap
    std::optional<int64_t> step;    ///< of a checkpoint; none: the newest
    std::string delimiter = " ";    ///< between a context and its ending
    std::string out;                ///< a JSON file, with every log-likelihood; "": none
    bool published = false;         ///< the weights are those of checkpoint.load, not of a checkpoint
};

int evaluate_command(const ScriptCommand& script, const EvaluateCommand& command);

}  // namespace orrery
