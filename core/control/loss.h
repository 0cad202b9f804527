#pragma once
#include <string>
#include <string_view>

#include "orrery/error.h"

namespace orrery {

const char* text_of(Cause cause);

/// "rank 1", "node 2"; "" where it is of neither.
std::string subject_of(const Loss& loss);
/// "rank 1 was killed by signal 9 (Killed)".
Message sentence_of(const Loss& loss);

/// Whether two ended in the same way: by cause, site, step and exit code, and of the same rank or node. An error or a
/// mistake that all ranks find may come from any of them. Texts say nothing of it.
bool same_failure(const Loss& one, const Loss& other);

/// All of it as text, the fields on the first line: rendezvous, launchers and a rank's board carry it so.
std::string encode(const Loss& loss);
/// Throws Error of Fault::peer where the fields are not those of a loss.
Loss decode_loss(std::string_view text);

}  // namespace orrery
