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

/// Numbered messages of the launchers of a job, in the store of a rendezvous that is theirs alone: node 0 orders, the
/// others report. What has come wakes this process by SIGCHLD, so that who waits for its ranks sees it at once.
class LauncherMail {
public:
    /// Joins as `node`. `reads`: "order" or "report". Throws Fault::peer where it cannot within `limit`.
    LauncherMail(RendezvousBackend& backend, const Job& job, int64_t node, int64_t nodes, std::string reads,
                 std::chrono::milliseconds limit, std::function<bool()> give_up);
    ~LauncherMail();
    LauncherMail(const LauncherMail&) = delete;

    std::optional<Json> next();
    /// Why there will be no more, where it is one: a launcher was lost, or its network; maybe before this one came.
    Loss loss() const;
    /// Of this start of the job, as node 0 has it.
    std::string run() const { return link_->run(); }
    void order(const Json& text);
    void report(const Json& text);
    /// This one goes, which is no loss.
    void leave();

private:
    void read();
    const std::unique_ptr<Member> link_;
    const std::string reads_;
    int64_t ordered_ = 0;
    mutable std::mutex mutex_;  // guards what follows
    std::deque<Json> come_;
    Loss lost_;
    bool stopping_ = false;
    std::thread reader_;
};

/// Something that became known of another node.
struct NodeNews {
    enum class Kind : uint8_t { here, lost, report };
    Kind kind = Kind::report;
    int64_t node = -1;
    Message how = {};  ///< of lost
    Json text = {};    ///< of here and report
};

/// Node 0's side. A rendezvous ends with the loss of one member: then all launchers end their ranks, and meet in a new
/// one. Who does not come again within 15 s is lost, too.
class Agents {
public:
    Agents(std::shared_ptr<RendezvousBackend> backend, const Job& job, int64_t nodes);
    /// What has come since; nothing after finish().
    std::vector<NodeNews> news();
    void order(const Json& text);
    /// Counts the times that they have met: an order is kept for those who come later, as long as the meeting is the
    /// same.
    int64_t meeting() const { return meeting_; }
    /// The last order; returns when the others have taken it, or after 5 s. Where one is lost before, they meet once
    /// more and take it there.
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
    std::map<int64_t, Clock::time_point> awaited_;  ///< of the meeting before, until when
};

/// Whether that is node 0's launcher, which says why it gives up: the job is over.
bool ended_by_node_0(const Loss& loss);

/// A launcher of `node` that ends before it has met the others reports why: event "failed", with to_json(loss). False
/// where it cannot within `limit`, or is refused.
bool report_failure(RendezvousBackend& backend, const Job& job, int64_t node, const Loss& loss,
                    std::chrono::milliseconds limit, const std::function<bool()>& give_up);
// How launchers send it to each other.
Json to_json(const Loss& loss);
Loss loss_of(const Json& text);

}  // namespace orrery
