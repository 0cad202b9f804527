#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "compile/round.h"

namespace orrery {

/// Where a resumed run continues in its round. A checkpoint is made after all programs that belong to a step, so the
/// number of steps since the round began is enough.
struct SavedRound {
    int64_t after = 0;         ///< step after which the round begins
    std::string message = {};  ///< user message if the round differs from the saved one; "" otherwise
};

/// Adds the round of a run and the place after `step` to the JSON of a manifest; nothing for a plain round.
void save_round(Json& host, const Round& round, int64_t after, int64_t step);
/// Returns where `round` continues after `step`, from the manifest's JSON. If the saved round has another text, `round`
/// begins after `step`. Throws Error if the texts differ and `step` is not at the end of the saved round, or if the
/// JSON is invalid. `place`: the checkpoint store, for messages.
SavedRound saved_round(const Json& host, const Round& round, int64_t step, const std::string& place);

}  // namespace orrery
