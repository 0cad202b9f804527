#pragma once
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

class Round;
struct Islands;

/// Whether a program of the round sends: it sets a sent state (ir/sent.h).
bool sends(const Program& program);

/// Tells the round which programs send, and which wait for them, and proves that they alternate. `programs`: by index
/// of their names in the round; nullptr: an action. Throws Error if a sent state is set by two programs, if no program
/// waits for it, if one waits that nothing sends to, or if it is used in another way.
void prove_messages(Round& round, const std::vector<const Program*>& programs);

/// Throws Error where islands sum what they moved a param by (update:moved), and what encoding left out before is not
/// in it though the param has feedback (update:owed): it would be lost. `programs`: as above, without layouts.
void check_owed(const std::vector<const Program*>& programs);

/// Gives the sums of sent states, in an annotated update of whole arrays, the layout that completes them over the
/// islands at once.
void complete_messages(Program& marked, const Islands& islands);

/// Throws Error if a plan reads a sent state after its opening: then the message could not start when it is sent.
void check_opening(const Plan& plan, const Islands& islands);

}  // namespace orrery
