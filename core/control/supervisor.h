#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/loss.h"

namespace orrery {

/// Result of a node's check.
enum class Fitness : uint8_t {
    fit,
    unfit,
    late,   ///< has not ended; the node may only be busy, so this does not count as failed
    wrong,  ///< unfit because of an error in the configuration, such as a missing plugin
};

/// An instruction of the supervisor to its owner.
struct Order {
    enum class Kind : uint8_t {
        check,       ///< check whether `node` is fit; answered by checked()
        start,       ///< start ranks of `generation` on `nodes`, one per slot (place in the job); answered by ended()
        end_ranks,   ///< end the ranks of this generation, on all nodes
        stop_ranks,  ///< ask the ranks of this generation, on all nodes, to save and stop
        leave,       ///< end the launcher of `node` with `code`, for the reason `text`; none of its ranks runs
        finish,      ///< end the command with `code`, for the reason `text`
        say,         ///< print `text`
    };
    Kind kind = Kind::say;
    int64_t node = -1, generation = 0;
    std::vector<int64_t> nodes = {};
    int code = 0;
    Message text = {};
};

/// Decides what becomes of a job whose ranks, launchers and nodes fail: it restarts the job within budgets, waits for
/// nodes, replaces nodes by spares, or gives up. It has no clock, thread, socket or file. The caller reports events
/// with their time, in seconds of any monotonic clock, and carries out the returned orders in order.
class Supervisor {
public:
    struct Options {
        int64_t restarts = 0;  ///< max restarts for each cause without a new step in between
        int64_t nodes = 1;     ///< number of nodes that a generation needs, one for each slot (place in the job)
        int64_t spares = 0;    ///< number of further nodes, numbered from `nodes` on
        /// seconds at start-up for which a slot waits for its own node before a spare may take the slot
        double own_first_s = 10;
        double wait_node_s = 300;     ///< max seconds to wait for missing nodes
        double check_s = 12;          ///< seconds after which a check no longer delays a spare or the end of the job
        double first_pause_s = 1;     ///< seconds before the second restart without a new step; the first has no pause
        double longest_pause_s = 30;  ///< max seconds of a pause; each pause is twice the one before
        int64_t generation = 0;       ///< number of the newest generation so far; the next number is larger
        bool drains = false;          ///< whether the job resumes without a node that is asked to stop
    };
    using Orders = std::vector<Order>;

    explicit Supervisor(const Options& options, double now);

    /// Event: the launcher of `node` has joined, and runs no ranks yet.
    Orders came(int64_t node, double now);
    Orders checked(int64_t node, Fitness found, const Message& why, double now);
    Orders lost(int64_t node, const Message& how, double now);
    /// Event: the launcher of `node` ended before it joined. A configuration error ends the job if the job waits for
    /// this node, or will wait for it, because the error would repeat.
    Orders failed_start(int64_t node, const Loss& loss, double now);
    /// Event: a training step was finished. Only a step beyond all earlier steps renews the budgets of restarts.
    Orders step_done(int64_t step);
    /// Event: all ranks of `node` have ended and are reaped.
    Orders ended(int64_t node, const Loss& how, double now);
    /// Sets the number of the generation ordered last, if it was started under a larger one, as the ordered was taken.
    void minted(int64_t generation) { options_.generation = generation; }
    /// Event: the job is asked to stop. No rank is started from now on; the caller stops the running ranks.
    Orders stop(int code, const Message& why, double now);
    /// Event: a node is asked to stop, because its machine will be taken away. If the job drains nodes, all ranks save
    /// and stop, the node's launcher leaves, and the job resumes with a spare, or once the node has joined again.
    /// Otherwise, and for node 0, which runs the supervisor, the job is asked to stop.
    Orders drain(int64_t node, const Message& why, double now);
    Orders tick(double now);

    /// Time at which tick() has something to do unless an event comes first; nullopt: never.
    std::optional<double> next_tick() const;
    int64_t generation() const { return options_.generation; }
    int64_t best_step() const { return best_; }
    int64_t restarts() const { return restarts_; }
    /// Whether the generation that runs or has just ended stops because of a drained node.
    bool draining() const { return drained_.has_value(); }
    /// The cause of the last restart, of Cause::stopped for a drained node; none if there was none, or if a new step
    /// has been finished since.
    const std::optional<Loss>& restarted_by() const { return restarted_by_; }
    /// The loss to record for a node with ranks that ended as `how`, before ended(): `how`, or the loss of another node
    /// that this end only follows.
    Loss recorded(const Loss& how) const;
    bool over() const { return state_ == State::over; }
    /// Describes missing nodes: "node 1 is missing", "node 2 failed its checks twice (...)"; "" if none is.
    Message missing() const;

private:
    enum class State : uint8_t { gathering, running, ending, over };
    enum class Node : uint8_t { absent, suspect, checking, ready, running, quarantined };
    struct Known {
        Node state = Node::absent;
        int64_t failed_checks = 0;
        bool told_late = false;
        bool drained = false;      ///< its launcher leaves once its ranks have ended
        double checked_until = 0;  ///< deadline of the node's current check
        Message why;
        /// configuration error of the node's start or checks since its launcher last joined
        std::optional<Loss> mistake = {};
    };

    void check(int64_t node, double now, Orders& orders);
    double checked_until() const;
    void gather(double now, Orders& orders);
    void failed(const Loss& how, Orders& orders);
    void leave(int64_t node, Orders& orders);
    void restart(const Loss& how, double pause, double now, Orders& orders);
    void settle(double now, Orders& orders);
    void finish(int code, const Message& why, Orders& orders);
    bool refuse(const Loss& how, Orders& orders);
    std::vector<int64_t> chosen(double now) const;
    bool refuse_mistake(Orders& orders);
    Message missing(int64_t node) const;
    bool any_running() const;

    Options options_;
    State state_ = State::gathering;
    std::map<int64_t, Known> nodes_;
    std::vector<int64_t> slots_;  ///< node of each slot; -1: none yet
    std::optional<Loss> why_;     ///< the first failure of the generation that is ending
    std::optional<Loss> last_;    ///< the last failure that was restarted, if there was no new step since
    std::optional<Loss> restarted_by_;
    std::optional<Loss> drained_;  ///< the first drain of a node of the generation that runs or is ending
    std::map<Cause, int64_t> spent_;
    std::optional<Loss> asked_;  ///< the stop that was requested
    double not_before_ = 0, wait_until_ = 0, spares_from_ = 0;
    int64_t best_ = 0, restarts_ = 0, in_a_row_ = 0;
};

}  // namespace orrery
