#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/evaluate/evaluate.h"
#include "cli/script_runner.h"
#include "run/score/choices.h"
#include "run/score/token_files.h"
#include "run/score/windows.h"

namespace orrery {

/// A text as windows of its tokens, and the program that takes them.
struct ScoredText {
    std::string program;  ///< of a full batch
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by id, those that a mask says are no targets; empty: none
    TextWindows windows;
    int64_t predicted = 0;         ///< tokens
    int64_t size = 0, stride = 0;  ///< of a window, in tokens
    int64_t bytes = 0;             ///< of text that the predicted tokens stand for; 0: not known
};

/// An ending as a row, and the program of one row that is long enough.
struct ScoredEnding {
    size_t choice = 0;
    EncodedEnding row;
    std::string program;
};

/// What is scored.
struct Scored {
    std::optional<ScoredText> text;
    std::vector<MultipleChoice> choices;
    std::vector<ScoredEnding> endings;
};

/// Reads what is scored, when the script compiles its program, and compiles what scores it: nothing that trains.
/// `looks`: in the process that starts ranks, which scores nothing. The command and `scored` must outlive the script's
/// run.
std::unique_ptr<ScriptRunner> scoring_script(const ScriptCommand& script, const EvaluateCommand& command,
                                             const Job& job, bool looks, Scored& scored);

}  // namespace orrery
