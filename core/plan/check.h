#pragma once
#include <map>
#include <string>

#include "orrery/communicator.h"
#include "orrery/plan.h"

namespace orrery {

/// Proves that a plan runs, before any rank starts; derives everything from the streams again and trusts no table of
/// lowering. Throws Error naming class, instruction, op and script line:
///   form      operands fit kernels, buffers and arenas; messages' sizes fit their op and the transport's dtypes
///   contents  every byte read holds the value that is meant, of the right micro-batch; what the step must leave behind
///             (updates, results) is there
///   order     accesses of different queues to the same bytes are ordered by waits
///   groups    members of an axis run the same collectives with the same sizes in the same order
///   progress  sends meet receives; no deadlock under each transport's send semantics and lanes
///   memory    a rank's arenas fit in `memory_bytes` (0: not judged)
/// Near-linear in instructions; loops over ranks only to find which classes meet.
void check(const Plan& plan, const std::map<std::string, TransportContract>& contracts, int64_t memory_bytes = 0);

// Its parts.
void check_form(const Plan& plan, const std::map<std::string, TransportContract>& contracts);
void check_contents(const Plan& plan);
void check_groups(const Plan& plan);
void check_progress(const Plan& plan, const std::map<std::string, TransportContract>& contracts);
void check_memory(const Plan& plan, int64_t memory_bytes);

}  // namespace orrery
