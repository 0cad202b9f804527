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
/// unless another rank has printed the same: what all ranks find is printed by one. `what` goes to the others; where
/// this rank serves the rendezvous, by `server` if that is there already, it stays for 2 s. A signal hurries it, and
/// changes no code; the same holds for end_launcher. `backend`: nullptr where the configuration could not be read.
int end_rank(const Job& job, const std::string& what, int code, const std::shared_ptr<RendezvousBackend>& backend,
             RendezvousService* server);

/// Prints the error of a launcher of several nodes, and tells the others' ranks: node 0 for 2 s to those who come,
/// where they are to meet; another one as soon as it reaches that place, within 30 s.
int end_launcher(const ScriptCommand& command, const std::string& what, int code);

/// To the ranks that come to `server`, which node 0's launcher holds.
void tell_end(RendezvousService& server, const std::string& what);

/// Node `node`'s launcher, of another host than the rendezvous, tells that a rank of its is gone.
void tell_gone(RendezvousBackend& backend, const Job& shared, int64_t node, int64_t rank, const std::string& how);

/// The name under which the processes of a command meet: its script's.
std::string job_name(const ScriptCommand& command);

}  // namespace orrery
