#pragma once
#include <chrono>
#include <string>

#include "cli/commands.h"
#include "run/job.h"

namespace orrery {

// A process that ends before it meets the others of its job tells them why, through the rendezvous: they would wait for
// it until run.join_timeout_s.

/// The exit code for an error of a rank that has met nobody yet. Prints it, unless another rank has told the same: of
/// what all ranks find, one speaks. `what` goes to the others; where this rank serves the rendezvous it stays for 2 s.
int end_rank(const Job& job, const std::string& what, int code);

/// Prints the error of a launcher of several nodes, and tells the others' ranks: node 0 for 2 s to those who come,
/// where they are to meet; another one as soon as it reaches that place, within 30 s.
int end_launcher(const ScriptCommand& command, const std::string& what, int code);

/// Node `node`'s launcher, of another host than the rendezvous, tells that a rank of its is gone.
void tell_gone(const Job& shared, int64_t node, int64_t rank, const std::string& how);

/// The name under which the processes of a command meet: its script's.
std::string job_name(const ScriptCommand& command);

}  // namespace orrery
