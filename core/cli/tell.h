#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "orrery/config.h"
#include "run/control/job.h"
#include "run/control/rendezvous.h"

namespace orrery {

/// The rendezvous backend of run.rendezvous, with its plugin loaded. Throws Error as the loader does.
std::shared_ptr<RendezvousBackend> meeting_by(Config& config);
/// The same for the configuration that `read` returns; if it throws, the default backend, so that the others can be
/// informed.
std::shared_ptr<RendezvousBackend> meeting_of(const std::function<Config()>& read);

// A process that ends before it joins the others of its job reports why through the rendezvous; otherwise they would
// wait for it until run.join_timeout_s.

/// Reports the error of a rank outside any session and returns the exit code; `job.session` is the number of sessions
/// so far. Prints it unless another rank failed in the same way: an error that all ranks have is printed once. `what`
/// is sent to the others; if this rank serves the rendezvous, by `server` if that exists already, it keeps serving for
/// 2 s. A signal shortens that, without changing the code; the same holds for end_launcher. `backend`: nullptr if the
/// configuration could not be read.
int end_rank(const Job& job, const std::string& what, Fault fault, const std::shared_ptr<RendezvousBackend>& backend,
             RendezvousService* server);

/// Prints the error of a launcher of several nodes and reports it to the others: node 0 serves their rendezvous for 2
/// s; another node reports as soon as it can join, within 30 s. If another process has taken that node, it is refused
/// and the job is not informed.
int end_launcher(const ScriptCommand& command, const std::string& what, Fault fault);

/// Reports it to those that join `server`, which node 0's launcher serves.
void tell_end(RendezvousService& server, const std::string& what, Fault fault);

/// The launcher of a host other than the rendezvous's reports that its rank in slot `slot` is gone.
void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t slot, const Loss& how);

/// Prints what ended the job on another node; returns the exit code, which is the same on all nodes.
int end_by(const Loss& loss);

/// The name under which the processes of a command join: its script's.
std::string job_name(const ScriptCommand& command);

}  // namespace orrery
