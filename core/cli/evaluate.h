#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cli/commands.h"

namespace orrery {

/// Flags of `orrery evaluate`, besides the run, published folder or script to evaluate.
struct EvaluateCommand {
    std::string file;               ///< a text, or a token file (.bin); "": none
    std::string choices;            ///< file of multiple-choice questions as lines of JSON; "": none
    std::optional<int64_t> window;  ///< tokens per window; unset: the length of the run's sequences
    std::optional<int64_t> stride;  ///< tokens from one window to the next; unset: windows do not overlap
    std::optional<int64_t> step;    ///< step of the checkpoint; unset: the newest
    std::string delimiter = " ";    ///< text between a context and its ending
    std::string out;                ///< a JSON file with every log-likelihood; "": none
    bool skip_bad = false;   ///< true: leave out lines of choices that cannot be scored; false: such a line is an error
    bool published = false;  ///< true: use the weights of checkpoint.load instead of a checkpoint of the run
};

int evaluate_command(const ScriptCommand& script, const EvaluateCommand& command);

}  // namespace orrery
