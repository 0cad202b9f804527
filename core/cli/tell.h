#pragma once
#include <functional>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "orrery/config.h"
#include "run/control/job.h"
#include "run/control/rendezvous.h"

namespace orrery {

/// Returns the backend of run.rendezvous and loads its plugin. Throws Error as the loader does.
std::shared_ptr<RendezvousBackend> meeting_by(Config& config);
/// Returns the rendezvous backend in the configuration that `read` returns, or the default backend if `read` throws, so
/// that the job's other processes can be informed.
std::shared_ptr<RendezvousBackend> meeting_of(const std::function<Config()>& read);

// A process that ends before it joins the others of its job reports why through the rendezvous; otherwise the others
// would wait for this process until run.join_timeout_s.

/// Reports the error `what` of a rank outside a session to the other ranks; returns the exit code. `job.session`:
/// number of sessions so far. Prints the error unless another rank failed in the same way, so that an error of all
/// ranks appears once. A rank that serves the rendezvous serves it for 2 s more, by `server` if that exists; a signal
/// ends this time without changing the code. `backend`: nullptr if the configuration could not be read.
int end_rank(const Job& job, const std::string& what, Fault fault, const std::shared_ptr<RendezvousBackend>& backend,
             RendezvousService* server);

/// Prints the error of a launcher of several nodes and reports it to the others. Node 0 serves their rendezvous for 2
/// s, unless a signal arrives; other nodes report as soon as they can join, within 30 s. If another process has joined
/// as this node already, the error is only printed.
int end_launcher(const ScriptCommand& command, const std::string& what, Fault fault);

/// For node 0's launcher: reports its error to the processes that join `server`.
void tell_end(RendezvousService& server, const std::string& what, Fault fault);

/// For a launcher whose job's rendezvous is on another host: reports to it that the rank in slot `slot` has ended.
void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t slot, const Loss& how);

/// Prints what ended the job on another node; returns the exit code, which is the same on all nodes.
int end_by(const Loss& loss);

std::string job_name(const ScriptCommand& command);

}  // namespace orrery
