#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/loss.h"

namespace orrery {

/// The result of a node's check. A late check says little about the node, which may be busy: it is repeated while the
/// job waits, and counts as failed while the job runs.
enum class Fitness : uint8_t {
    fit,
    unfit,
    late,
    wrong,  ///< unfit because of an error in the configuration, such as a missing plugin
};

/// An instruction of the supervisor to its owner.
struct Order {
    enum class Kind : uint8_t {
        check,      ///< check whether `node` is fit; answered by checked()
        start,      ///< start `generation` on `nodes`, which take the slots in this order; answered by ended() for each
        end_ranks,  ///< end the ranks of this generation, on all nodes
        finish,     ///< end the command with `code`, for the reason `text`
        say,        ///< print `text`
    };
    Kind kind = Kind::say;
    int64_t node = -1, generation = 0;
    std::vector<int64_t> nodes = {};
    int code = 0;
    Message text = {};
};

/// Decides what becomes of a job whose ranks, launchers and nodes fail: restarts within budgets, waits for nodes,
/// replaces nodes by spares, gives up. Has no clock, thread, socket or file: events go in with their time, in seconds
/// of any monotonic clock; orders come out, to be carried out in order.
class Supervisor {
public:
    struct Options {
        int64_t restarts = 0;  ///< for each cause, without a new step between
        int64_t nodes = 1;     ///< slots that a generation needs
        int64_t spares = 0;    ///< nodes beyond these, numbered from `nodes` on
        /// at start-up, how long a slot is reserved for its own node before a spare may take it
        double own_first_s = 10;
        double wait_node_s = 300;     ///< how long to wait for missing nodes
        double check_s = 12;          ///< a check that takes longer no longer delays a spare or the end of the job
        double first_pause_s = 1;     ///< before the second restart without a new step; the first has none
        double longest_pause_s = 30;  ///< each pause is twice the one before, up to this
        int64_t generation = 0;       ///< the newest generation taken: the next is larger
    };
    using Orders = std::vector<Order>;

    explicit Supervisor(const Options& options, double now);

    /// The launcher of `node` has come, without ranks.
    Orders came(int64_t node, double now);
    Orders checked(int64_t node, Fitness found, const Message& why, double now);
    Orders lost(int64_t node, const Message& how, double now);
    /// The launcher of `node` ended before it came. A configuration error on a node that the job waits for, or will
    /// wait for, ends the job, because it would repeat.
    Orders failed_start(int64_t node, const Loss& loss, double now);
    /// A step was finished. Only a step beyond all before renews the budgets.
    Orders step_done(int64_t step);
    /// All ranks of `node` have ended and are reaped.
    Orders ended(int64_t node, const Loss& how, double now);
    /// The generation ordered last has this number, because those before it were taken.
    void minted(int64_t generation) { options_.generation = generation; }
    /// The job is asked to stop: nothing is started from now on. The caller stops the ranks.
    Orders stop(int code, const Message& why, double now);
    Orders tick(double now);

    /// When tick() has something to do unless an event comes first; none: never.
    std::optional<double> next_tick() const;
    int64_t generation() const { return options_.generation; }
    int64_t best_step() const { return best_; }
    int64_t restarts() const { return restarts_; }  ///< in total so far
    /// The cause of the last restart; none when there was none, or when a new step has been finished since.
    const std::optional<Loss>& last_failure() const { return last_; }
    bool over() const { return state_ == State::over; }
    /// "node 1 is missing", "node 2 failed its checks twice (...)"; "" when no node is missing.
    Message missing() const;

private:
    enum class State : uint8_t { gathering, running, ending, over };
    enum class Node : uint8_t { absent, suspect, checking, ready, running, quarantined };
    struct Known {
        Node state = Node::absent;
        int64_t failed_checks = 0;
        bool told_late = false;
        double checked_until = 0;  ///< deadline of the current check
        Message why;
        /// a configuration error of its start or its checks, since it was last there
        std::optional<Loss> mistake = {};
    };

    void check(int64_t node, double now, Orders& orders);
    double checked_until() const;
    void gather(double now, Orders& orders);
    void failed(const Loss& how, Orders& orders);
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
    std::vector<int64_t> slots_;  ///< the node of each slot, -1: none yet
    std::optional<Loss> why_;     ///< the first failure of the generation that is ending
    std::optional<Loss> last_;    ///< the previous failure, when there was no new step since
    std::map<Cause, int64_t> spent_;
    std::optional<Loss> asked_;  ///< the stop that was asked for
    double not_before_ = 0, wait_until_ = 0, spares_from_ = 0;
    int64_t best_ = 0, restarts_ = 0, in_a_row_ = 0;
};

}  // namespace orrery
