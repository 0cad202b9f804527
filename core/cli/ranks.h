#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "cli/script_runner.h"
#include "cli/supervise/board.h"
#include "run/control/rendezvous.h"
#include "run/session.h"

namespace orrery {

/// State of a rank's process across its sessions; each training of the script is a session.
struct Sessions {
    int64_t begun = 0, trained = 0;
    bool met = false;                                 ///< the session can report to other ranks why this rank ends
    std::shared_ptr<RendezvousBackend> backend = {};  ///< backend of the rendezvous, once the configuration is read
    std::unique_ptr<RendezvousService> server = {};   ///< the rendezvous, if this rank serves it, for all sessions
    Loss end = {};                                    ///< how the last session ended this rank; empty if it succeeded
    std::unique_ptr<OwnPlace> told;                   ///< where this rank reports progress to its launcher; may be null
    std::mutex present_mutex;                         ///< held by every thread that uses `present`
    Session* present = nullptr;                       ///< the running session, which another thread may end; null
                                                      ///< between sessions
};

/// Joins the ranks that run `compiled` on the mesh of `settings`; returns the session in which they run it.
std::unique_ptr<Session> meet(ScriptRunner& script, const Settings& settings, const Compiled& compiled,
                              std::unique_ptr<Device> device, Sessions& sessions);

/// Runs `part`, this rank's work in a session; an exception is reported to the other ranks.
void in_session(const ScriptRunner& script, Session& session, Sessions& sessions, const std::function<void()>& part);

/// A command that runs on all ranks of a mesh.
struct RankCommand {
    std::function<void(const Job& job, Sessions& sessions)> rank;        ///< runs one rank
    std::function<std::unique_ptr<ScriptRunner>(const Job& job)> check;  ///< checks the script before ranks are started
    std::function<void(ScriptRunner& checked)> claim;                    ///< reserves the run's folder, as late as
                                                                         ///< possible before ranks are started
    /// Reserves and returns a new generation (number of a start) of the job, greater than `after`. Empty function:
    /// generations are not stored.
    std::function<int64_t(ScriptRunner& checked, int64_t after)> mint = {};
};

/// Runs the command on all ranks of its mesh: in processes that it starts, in threads if a transport needs that, or in
/// this process if there is one rank or a launcher started it. Returns the exit code.
int run_on_ranks(const ScriptCommand& command, const RankCommand& ranks);

}  // namespace orrery
