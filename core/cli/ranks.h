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

/// What a process knows of the sessions that it has been in.
struct Sessions {
    int64_t begun = 0, trained = 0;
    bool met = false;                                 ///< the others learn from the present one why this rank ends
    std::shared_ptr<RendezvousBackend> backend = {};  ///< how they meet, once the configuration has said it
    std::unique_ptr<RendezvousService> server = {};   ///< when this rank serves it: for every session of the script
    Loss end = {};                                    ///< how the last session ended this rank, where it did
    std::unique_ptr<OwnPlace> told;                   ///< where this rank tells its launcher what it does; may be none
    std::mutex present_mutex;                         ///< held where `present` is set, and where it is ended
    Session* present = nullptr;                       ///< for another thread that ends this rank
};

/// Joins the other ranks that run `compiled` on the mesh of `settings`.
std::unique_ptr<Session> meet(ScriptRunner& script, const Settings& settings, const Compiled& compiled,
                              std::unique_ptr<Device> device, Sessions& sessions);

/// This rank's part of a session, to its end; where it throws, the others learn why.
void in_session(const ScriptRunner& script, Session& session, Sessions& sessions, const std::function<void()>& part);

/// A command that all ranks of a mesh run.
struct RankCommand {
    std::function<void(const Job& job, Sessions& sessions)> rank;        ///< what one of them does
    std::function<std::unique_ptr<ScriptRunner>(const Job& job)> check;  ///< before they are started
    std::function<void(ScriptRunner& checked)> claim;                    ///< as late as possible before that
    /// Takes a generation of the job beyond `after` for good, and returns it; empty: nothing is kept of it.
    std::function<int64_t(ScriptRunner& checked, int64_t after)> mint = {};
};

/// Runs the command on all ranks of its mesh: on processes that it starts, on threads where a transport needs them, on
/// this process where there is one rank or where a launcher has started it as one of them. Returns the exit code.
int run_on_ranks(const ScriptCommand& command, const RankCommand& ranks);

}  // namespace orrery
