#pragma once
#include <string>
#include <string_view>

#include "orrery/error.h"

namespace orrery {

const char* text_of(Cause cause);

/// Names the rank or node that was lost: "rank 1", "node 2"; "" if the loss concerns neither.
std::string subject_of(const Loss& loss);
/// Describes a loss in a sentence: "rank 1 was killed by signal 9 (Killed)".
Message sentence_of(const Loss& loss);

/// Whether two losses of processes are the same failure: same cause, site, step and exit code, and the same rank or
/// node; losses that name neither are never the same. The rank does not count for errors that all ranks find. Texts are
/// not compared.
bool same_failure(const Loss& one, const Loss& other);

/// Encodes the loss as text, fields on the first line; rendezvous, launchers and a rank's progress table use this form.
std::string encode(const Loss& loss);
/// Decodes the text of encode(). Throws Error of Fault::peer for malformed text.
Loss decode_loss(std::string_view text);

}  // namespace orrery
