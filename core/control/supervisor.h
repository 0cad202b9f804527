#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/loss.h"

namespace orrery {

/// What a check of a node has found. One that did not end in time says little of the node, which may be busy: while
/// the job waits it is made again, while it runs it counts as failed.
enum class Fitness : uint8_t {
    fit,
    unfit,
    late,
    wrong,  ///< unfit for a mistake of the configuration, as a plugin that is not there
};

/// What the supervisor of a job wants done.
struct Order {
    enum class Kind : uint8_t {
        check,      ///< whether `node` is fit; answered by checked()
        start,      ///< `generation` on `nodes`, which take the slots in this order; answered by ended() of each
        end_ranks,  ///< of this generation, on all nodes
        finish,     ///< the command: with `code`, for the reason `text`
        say,        ///< `text`
    };
    Kind kind = Kind::say;
    int64_t node = -1, generation = 0;
    std::vector<int64_t> nodes = {};
    int code = 0;
    Message text = {};
};

/// Decides what becomes of a job whose ranks, launchers and nodes fail: restarts within budgets, waits for nodes, puts
/// spares in their place, gives up. Has no clock, thread, socket or file: events go in with their time, in seconds of
/// any clock that does not go back; orders come out, to be carried out in this order.
class Supervisor {
public:
    struct Options {
        int64_t restarts = 0;         ///< after each cause, without a new step between
        int64_t nodes = 1;            ///< slots that a generation needs
        int64_t spares = 0;           ///< nodes beyond these, from number `nodes` on
        double own_first_s = 10;      ///< in the beginning a spare leaves a slot so long to its own node
        double wait_node_s = 300;     ///< with too few nodes
        double check_s = 12;          ///< checks that take longer keep neither a spare nor the end away
        double first_pause_s = 1;     ///< before the second restart without a new step; the first has none
        double longest_pause_s = 30;  ///< each is twice the one before, up to this
        int64_t generation = 0;       ///< the newest one taken: the next is beyond it
    };
    using Orders = std::vector<Order>;

    explicit Supervisor(const Options& options, double now);

    /// The launcher of `node` is there, and has no ranks.
    Orders came(int64_t node, double now);
    Orders checked(int64_t node, Fitness found, const Message& why, double now);
    Orders lost(int64_t node, const Message& how, double now);
    /// A launcher of `node`, which is not there, ended before it came. A mistake on a node that the job waits for, or
    /// will, ends it: the same again, however often.
    Orders failed_start(int64_t node, const Loss& loss, double now);
    /// A step was finished. Only one beyond all before renews the budgets.
    Orders step_done(int64_t step);
    /// The ranks of `node` have all ended and are reaped.
    Orders ended(int64_t node, const Loss& how, double now);
    /// The generation that was ordered last has this number: those before it were taken.
    void minted(int64_t generation) { options_.generation = generation; }
    /// The whole job is asked to stop: from now on nothing is started. Its ranks are asked by who calls.
    Orders stop(int code, const Message& why, double now);
    Orders tick(double now);

    /// When tick() has something to do, if nothing comes before; none: never.
    std::optional<double> next_tick() const;
    int64_t generation() const { return options_.generation; }
    int64_t best_step() const { return best_; }
    int64_t restarts() const { return restarts_; }  ///< so far, in all
    /// What the last restart was for; none: there was none, or a new step has been finished since.
    const std::optional<Loss>& last_failure() const { return last_; }
    bool over() const { return state_ == State::over; }
    /// "node 1 is missing", "node 2 failed its checks twice (...)"; "" where none is.
    Message missing() const;

private:
    enum class State : uint8_t { gathering, running, ending, over };
    enum class Node : uint8_t { absent, suspect, checking, ready, running, quarantined };
    struct Known {
        Node state = Node::absent;
        int64_t failed_checks = 0;
        bool told_late = false;
        double checked_until = 0;  ///< while it is checked
        Message why;
        std::optional<Loss> mistake = {};  ///< of a start that failed, or of its checks, since it was last there
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
    std::vector<int64_t> slots_;  ///< who holds them, -1: nobody yet
    std::optional<Loss> why_;     ///< the first failure of the generation that ends
    std::optional<Loss> last_;    ///< the failure before, without a new step since
    std::map<Cause, int64_t> spent_;
    std::optional<Loss> asked_;  ///< to stop
    double not_before_ = 0, wait_until_ = 0, spares_from_ = 0;
    int64_t best_ = 0, restarts_ = 0, in_a_row_ = 0;
};

}  // namespace orrery
