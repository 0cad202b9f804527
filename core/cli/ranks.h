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

/// State of a rank's process that lasts longer than a session, which is one training of the script.
struct Sessions {
    int64_t begun = 0, trained = 0;
    bool met = false;  ///< true: a session has begun, which can report to the other ranks why this rank ends
    std::shared_ptr<RendezvousBackend> backend = {};  ///< rendezvous backend; null until the configuration is read
    std::unique_ptr<RendezvousService> server = {};   ///< the rendezvous of all sessions, if this rank serves it
    Loss end = {};                   ///< why the last session ended this rank; empty if the session succeeded
    std::unique_ptr<OwnPlace> told;  ///< where this rank reports progress to its launcher; null if none reads it
    std::mutex present_mutex;        ///< held by every thread that uses `present`
    Session* present = nullptr;      ///< the running session, so that another thread can end it; null between sessions
};

/// Renames a run's folder, which must not be in use: runs/gpt becomes runs/gpt.1, or the first free number.
void move_aside(std::string folder);

/// Joins the ranks that run `compiled` on the mesh of `settings`; returns the session in which they run it.
std::unique_ptr<Session> meet(ScriptRunner& script, const Settings& settings, const Compiled& compiled,
                              std::unique_ptr<Device> device, Sessions& sessions);

/// Runs `part`, this rank's work in a session. Reports an exception of `part` to the other ranks.
void in_session(const ScriptRunner& script, Session& session, Sessions& sessions, const std::function<void()>& part);

struct RankCommand {
    std::function<void(const Job& job, Sessions& sessions)> rank;
    std::function<std::unique_ptr<ScriptRunner>(const Job& job)> check;  ///< checks the script before ranks start
    std::function<void(ScriptRunner& checked)> claim;                    ///< reserves the run's folder, as late as
                                                                         ///< possible before ranks are started
    /// Reserves and returns a generation (number of a start) of the job that is greater than `after`. Empty: the job
    /// has no generations.
    std::function<int64_t(ScriptRunner& checked, int64_t after)> mint = {};
    /// Returns whether the job has ended already, so that this command does nothing. Empty: it never has.
    std::function<bool(ScriptRunner& checked)> over = {};
};

/// Runs the command on all ranks of its mesh: in processes that it starts, in threads if a transport needs that, or in
/// this process if there is one rank or a launcher started it. Returns the exit code.
int run_on_ranks(const ScriptCommand& command, const RankCommand& ranks);

}  // namespace orrery
