#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "run/control/job.h"
#include "run/control/rendezvous.h"

namespace orrery {

/// Sends numbered messages between the launchers of a job, through the store of a rendezvous of their own: node 0 sends
/// orders, other nodes send reports. A new message raises SIGCHLD in this process, so that a launcher that waits for
/// its ranks sees the message at once.
class LauncherMail {
public:
    /// Joins the launchers' rendezvous as `node`. `reads`: kind of the messages to read, "order" or "report". Throws
    /// Fault::peer if it cannot join within `limit`.
    LauncherMail(RendezvousBackend& backend, const Job& job, int64_t node, int64_t nodes, std::string reads,
                 std::chrono::milliseconds limit, std::function<bool()> give_up);
    ~LauncherMail();
    LauncherMail(const LauncherMail&) = delete;

    std::optional<Json> next();
    /// Why no more messages will come; empty as long as messages can come. The cause is a lost launcher, or a lost
    /// network connection to a launcher, which may have happened before this launcher joined.
    Loss loss() const;
    /// Id of this start of the job, as node 0 recorded it.
    std::string run() const { return link_->run(); }
    void order(const Json& text);
    void report(const Json& text);
    /// Leaves the rendezvous; the other launchers then do not count this one as lost.
    void leave();

private:
    void read();
    const std::unique_ptr<Member> link_;
    const std::string reads_;
    int64_t ordered_ = 0;
    mutable std::mutex mutex_;  // guards come_, lost_ and stopping_
    std::deque<Json> come_;
    Loss lost_;
    bool stopping_ = false;
    std::thread reader_;
};

struct NodeNews {
    enum class Kind : uint8_t { here, lost, report };
    Kind kind = Kind::report;
    int64_t node = -1;
    Message how = {};  ///< why the node was lost, for Kind::lost
    Json text = {};    ///< the node's message, for Kind::here and Kind::report
};

/// Node 0's connection to the launchers of other nodes. The rendezvous ends when a launcher is lost: all others then
/// end their ranks and join a new one. A launcher that does not join it within 1.5 times run.silence_s is lost, too.
class Agents {
public:
    Agents(std::shared_ptr<RendezvousBackend> backend, const Job& job, int64_t nodes);
    /// Events of other nodes since the last call; none after finish().
    std::vector<NodeNews> news();
    void order(const Json& text);
    /// `node` was ordered to leave, so that from now on nothing waits for it.
    void let_go(int64_t node);
    /// Number of rendezvous so far. A launcher that joins a rendezvous late can still read the orders sent in it.
    int64_t meeting() const { return meeting_; }
    /// Sends the last order. Returns when the others have received it, or after half of run.silence_s. If a launcher is
    /// lost before that, the others join one more rendezvous and receive the order there.
    void finish(const Json& text);

private:
    using Clock = std::chrono::steady_clock;
    void meet();
    void meet_again(std::vector<NodeNews>& news);

    const std::shared_ptr<RendezvousBackend> backend_;
    const Job job_;
    const int64_t nodes_;
    int64_t meeting_ = 0;
    std::unique_ptr<RendezvousService> server_;
    std::unique_ptr<LauncherMail> mail_;
    std::set<int64_t> here_;
    std::map<int64_t, Clock::time_point> awaited_;  ///< lost nodes that may join again, with time limits
};

/// Whether a loss means that node 0's launcher has given up, so that the job is over.
bool ended_by_node_0(const Loss& loss);

/// Joins the launchers' rendezvous as `node` to report, as event "failed" with to_json(loss), why its launcher ends
/// early. Returns false if it is refused or cannot join within `limit`.
bool report_failure(RendezvousBackend& backend, const Job& job, int64_t node, const Loss& loss,
                    std::chrono::milliseconds limit, const std::function<bool()>& give_up);
// Converts a loss to and from the JSON in which launchers send it.
Json to_json(const Loss& loss);
Loss loss_of(const Json& text);

}  // namespace orrery
