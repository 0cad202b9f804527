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
/// Returns the rendezvous backend that the configuration from `read` names. If `read` throws, returns the default
/// backend, so that the other processes can be informed.
std::shared_ptr<RendezvousBackend> meeting_of(const std::function<Config()>& read);

// A process that ends before it joins the others of its job reports why through the rendezvous; otherwise the others
// would wait for this process until run.join_timeout_s.

/// Reports the error `what` of a rank outside any session to the other ranks and returns the exit code. `job.session`
/// is the number of sessions so far. The error is printed unless another rank failed in the same way, so an error of
/// all ranks appears once. If this rank serves the rendezvous, it keeps serving for 2 s, by `server` if that exists
/// already; a signal ends this wait without changing the code. `backend` is nullptr if the configuration could not be
/// read.
int end_rank(const Job& job, const std::string& what, Fault fault, const std::shared_ptr<RendezvousBackend>& backend,
             RendezvousService* server);

/// Prints the error of a launcher of several nodes and reports it to the others: node 0 serves their rendezvous for 2
/// s, unless a signal arrives; another node reports as soon as it can join, within 30 s. If another process has joined
/// as this node, this launcher is refused and the job is not informed.
int end_launcher(const ScriptCommand& command, const std::string& what, Fault fault);

/// Reports an error of node 0's launcher to the processes that join `server`, which it serves.
void tell_end(RendezvousService& server, const std::string& what, Fault fault);

/// Reports from a launcher to the rendezvous, which is on another host, that the rank in slot `slot` has ended.
void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t slot, const Loss& how);

/// Prints what ended the job on another node; returns the exit code, which is the same on all nodes.
int end_by(const Loss& loss);

/// Returns the name under which a command's processes join the rendezvous: the name of its script.
std::string job_name(const ScriptCommand& command);

}  // namespace orrery
