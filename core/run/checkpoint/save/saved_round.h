#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "compile/round.h"

namespace orrery {

/// The place in a round of a run that resumes. A save holds a step with all programs that belong to it, so the place is
/// the number of steps since the round began.
struct SavedRound {
    int64_t after = 0;      ///< step after which the round begins
    std::string said = {};  ///< a message if it is another round than that of the run that saved; "" otherwise
};

/// Adds the round of a run and the place after `step` to the JSON of a manifest; nothing for a plain round.
void save_round(Json& host, const Round& round, int64_t after, int64_t step);
/// The place of this run's round after a step that a run with the manifest's JSON has saved. Another round begins
/// there. Throws Error if the saved round is not at its end then, or the JSON is invalid. `place`: of the store, for
/// messages.
SavedRound saved_round(const Json& host, const Round& round, int64_t step, const std::string& place);

}  // namespace orrery
