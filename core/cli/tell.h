#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "orrery/config.h"
#include "run/control/job.h"
#include "run/control/rendezvous.h"

namespace orrery {

/// How the ranks of a job meet, by run.rendezvous: its plugin, loaded. Throws Error as the loader does.
std::shared_ptr<RendezvousBackend> meeting_by(Config& config);
/// The same by what `read` returns; where it throws, by the default, so that the others can be told.
std::shared_ptr<RendezvousBackend> meeting_of(const std::function<Config()>& read);

// A process that ends before it meets the others of its job tells them why, through the rendezvous: they would wait for
// it until run.join_timeout_s.

/// The exit code for an error of a rank that is in no session, `job.session` being how many it has been in. Prints it,
/// unless another rank has failed in the same way: what all ranks find is printed by one. `what` goes to the others;
/// where this rank serves the rendezvous, by `server` if that is there already, it stays for 2 s. A signal hurries it,
/// and changes no code; the same holds for end_launcher. `backend`: nullptr where the configuration could not be read.
int end_rank(const Job& job, const std::string& what, Fault fault, const std::shared_ptr<RendezvousBackend>& backend,
             RendezvousService* server);

/// Prints the error of a launcher of several nodes, and tells the others: node 0 for 2 s to those who come, where they
/// are to meet; another one as soon as it reaches that place, within 30 s. Where another process is that node, it is
/// refused, and the job does not hear of it.
int end_launcher(const ScriptCommand& command, const std::string& what, Fault fault);

/// To those who come to `server`, which node 0's launcher holds.
void tell_end(RendezvousService& server, const std::string& what, Fault fault);

/// The launcher of another host than the rendezvous', whose ranks have slot `slot` of the job, tells that one is gone.
void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t slot, const Loss& how);

/// Prints what has ended the job on another node; returns the exit code, which is that of all nodes.
int end_by(const Loss& loss);

/// The name under which the processes of a command meet: its script's.
std::string job_name(const ScriptCommand& command);

}  // namespace orrery
