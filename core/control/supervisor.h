#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orrery/error.h"

namespace orrery {

const char* text_of(Cause cause);

/// What is known of a generation, or of one node's part of it, that has ended.
struct Ended {
    Cause cause = Cause::done;
    int code = 0;          ///< what the command ends with if this is its end
    std::string who;       ///< "rank 1"
    std::string how;       ///< "was killed by signal 9 (Killed)"
    int64_t step = 0;      ///< the last that was finished before it, 0: none
    bool hearsay = false;  ///< what ranks say of another host's: what that one says comes before it
};

/// Whether two generations ended at the same step of the same: of cause, rank and words, without what differs each
/// time, as numbers of processes, ports, generations and seconds. An error that all ranks tell may come from any of
/// them.
bool same_failure(const Ended& one, const Ended& other);

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
    std::string text = {};
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
    Orders checked(int64_t node, Fitness found, const std::string& why, double now);
    Orders lost(int64_t node, const std::string& how, double now);
    /// A launcher of `node`, which is not there, ended before it came. A mistake on a node that the job waits for, or
    /// will, ends it: the same again, however often.
    Orders failed_start(int64_t node, const Loss& loss, double now);
    /// A step was finished. Only one beyond all before renews the budgets.
    Orders step_done(int64_t step);
    /// The ranks of `node` have all ended and are reaped.
    Orders ended(int64_t node, const Ended& how, double now);
    /// The generation that was ordered last has this number: those before it were taken.
    void minted(int64_t generation) { options_.generation = generation; }
    /// The whole job is asked to stop: from now on nothing is started. Its ranks are asked by who calls.
    Orders stop(int code, const std::string& why, double now);
    Orders tick(double now);

    /// When tick() has something to do, if nothing comes before; none: never.
    std::optional<double> next_tick() const;
    int64_t generation() const { return options_.generation; }
    int64_t best_step() const { return best_; }
    int64_t restarts() const { return restarts_; }  ///< so far, in all
    /// What the last restart was for; none: there was none, or a new step has been finished since.
    const std::optional<Ended>& last_failure() const { return last_; }
    bool over() const { return state_ == State::over; }
    /// "node 1 is missing", "node 2 failed its checks twice (...)"; "" where none is.
    std::string missing() const;

private:
    enum class State : uint8_t { gathering, running, ending, over };
    enum class Node : uint8_t { absent, suspect, checking, ready, running, quarantined };
    struct Known {
        Node state = Node::absent;
        int64_t failed_checks = 0;
        bool told_late = false;
        double checked_until = 0;  ///< while it is checked
        std::string why;
        std::optional<Loss> mistake = {};  ///< of a start that failed, or of its checks, since it was last there
    };

    void check(int64_t node, double now, Orders& orders);
    double checked_until() const;
    void gather(double now, Orders& orders);
    void failed(const Ended& how, Orders& orders);
    void settle(double now, Orders& orders);
    void finish(int code, std::string why, Orders& orders);
    bool refuse(const Ended& how, Orders& orders);
    std::vector<int64_t> chosen(double now) const;
    bool refuse_mistake(Orders& orders);
    std::string missing(int64_t node) const;
    bool any_running() const;

    Options options_;
    State state_ = State::gathering;
    std::map<int64_t, Known> nodes_;
    std::vector<int64_t> slots_;  ///< who holds them, -1: nobody yet
    std::optional<Ended> why_;    ///< the first failure of the generation that ends
    std::optional<Ended> last_;   ///< the failure before, without a new step since
    std::map<Cause, int64_t> spent_;
    std::optional<Ended> asked_;  ///< to stop
    double not_before_ = 0, wait_until_ = 0, spares_from_ = 0;
    int64_t best_ = 0, restarts_ = 0, in_a_row_ = 0;
};

}  // namespace orrery
