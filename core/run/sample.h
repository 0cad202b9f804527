#pragma once
#include <string>

#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// Draws text token by token from the `logits` program of a one-rank session: the window of the last `seq` tokens goes
/// in, the row of the last one comes out. With a vocabulary of 256, tokens are bytes; otherwise the prompt and the
/// result are token ids separated by spaces. Same seed, same text.
/// Throws Error when the prompt is no list of ids of the vocabulary.
std::string draw_text(Session& session, const SampleOptions& options);

}  // namespace orrery
