// The supervisor of a job in a made world: what it orders is carried out in virtual time, while processes die, nodes go
// and come back and steps are finished, as a seed says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

#include "control_supervisor.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// A job of some steps on nodes that fail. Time is virtual; all that is random comes from the seed.
class World {
public:
    explicit World(uint32_t seed) : random_(seed) {
        options_.restarts = pick(0, 3);
        options_.nodes = pick(1, 4);
        options_.spares = pick(0, 1);
        options_.wait_node_s = static_cast<double>(pick(5, 60));
        options_.generation = pick(0, 7);
        steps_ = pick(1, 40);
        interval_ = pick(1, 10);
        poisoned_ = chance(0.15) ? pick(1, steps_) : -1;
        failing_ = pick(0, 30) / 100.0;
        losing_ = options_.nodes > 1 ? pick(0, 10) / 100.0 : 0;
        unfit_ = pick(0, 40) / 100.0;
        returns_ = pick(0, 100) / 100.0;
        mistaken_ = chance(0.03);
        stop_at_ = chance(0.1) ? pick(0, 200) : -1;
        options_.drains = chance(0.5);
        draining_ = options_.drains && options_.nodes > 1 ? pick(0, 5) / 100.0 : 0;
        generation_ = options_.generation;
    }

    void run() {
        supervisor_.emplace(options_, now_);
        const int64_t all = options_.nodes + options_.spares;
        for (int64_t node = 0; node < all; ++node) up_.insert(node);
        for (int64_t node = 0; node < all; ++node) take(supervisor_->came(node, now_));
        for (int events = 0; !over_; ++events) {
            REQUIRE(events < 100'000);  // it ends always
            advance();
        }
        CHECK(supervisor_->over());
        CHECK(running_.empty());
        CHECK((code_ != 0 || done_));
        // Nothing comes after the end.
        CHECK(supervisor_->came(0, now_ + 1).empty());
        CHECK(supervisor_->tick(now_ + 1e6).empty());
    }

private:
    int64_t pick(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
    bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }

    void take(const Supervisor::Orders& orders) {
        for (const Order& order : orders) {
            if (order.kind == Kind::check) checks_.push_back(order.node);
            if (order.kind == Kind::start) start(order);
            if (order.kind == Kind::end_ranks) ending_ = true;
            if (order.kind == Kind::stop_ranks) stopping_ = true;
            if (order.kind == Kind::leave) leave(order);
            if (order.kind == Kind::finish) finish(order);
        }
    }

    void start(const Order& order) {
        REQUIRE(!over_);
        REQUIRE(running_.empty());  // the ranks of the generation before are reaped
        REQUIRE(order.generation > generation_);
        REQUIRE(order.nodes.size() == static_cast<size_t>(options_.nodes));
        const std::set<int64_t> distinct(order.nodes.begin(), order.nodes.end());
        REQUIRE(distinct.size() == order.nodes.size());
        for (const int64_t node : order.nodes) {
            REQUIRE(up_.count(node) == 1);
            REQUIRE(quarantined_.count(node) == 0);
            REQUIRE(std::find(checks_.begin(), checks_.end(), node) == checks_.end());
        }
        for (const auto& [cause, count] : failures_) REQUIRE(count <= options_.restarts);
        generation_ = order.generation;
        running_ = distinct;
        ending_ = stopping_ = has_stopped_ = false;
        first_failure_.reset();
        step_ = best_ - best_ % interval_;  // from the last checkpoint
        finished_ = 0;
        idle_since_ = -1;
    }

    /// An end must be deserved: by the budget, a failure that repeats, a mistake, a signal, or nodes that do not come.
    void finish(const Order& order) {
        REQUIRE(!over_);
        over_ = true;
        code_ = order.code;
        INFO(order.text.shown());
        if (order.code == 0) {
            CHECK(done_);
            return;
        }
        if (stopped_ || mistaken_) return;
        if (first_failure_ && (failures_[first_failure_->cause] > options_.restarts || repeated_)) return;
        if (order.code == 75) {
            CHECK(now_ - idle_since_ >= options_.wait_node_s - 1e-6);
            CHECK(order.text.shown().find("node ") == 0);
            return;
        }
        FAIL("budget and progress are there");
    }

    /// Its ranks have ended, or it has none.
    void leave(const Order& order) {
        REQUIRE(drained_.erase(order.node) == 1);
        REQUIRE(running_.count(order.node) == 0);
        CHECK(order.code == 75);
        up_.erase(order.node);
        std::erase(checks_, order.node);
    }

    void drain(int64_t node) {
        if (drained_.insert(node).second) take(supervisor_->drain(node, "its machine goes", now_));
    }

    /// A loss of a node after others have stopped, and saved, is not a failure of the job.
    void fail(const Loss& how) {
        has_stopped_ = has_stopped_ || how.cause == Cause::stopped;
        if (first_failure_ || how.cause == Cause::stopped || (has_stopped_ && how.cause == Cause::node)) return;
        first_failure_ = how;
        ++failures_[how.cause];
        repeated_ = last_ && same_failure(*last_, how);
        last_ = how;
    }

    void end_node(int64_t node, const Loss& how) {
        running_.erase(node);
        if (how.cause != Cause::done) fail(how);
        if (running_.empty()) idle_since_ = now_;
        take(supervisor_->ended(node, how, now_));
    }

    void lose(int64_t node) {
        up_.erase(node);
        drained_.erase(node);
        std::erase(checks_, node);
        if (running_.erase(node) > 0) {
            fail({.cause = Cause::node, .node = node, .code = 75, .step = best_, .text = "is lost"});
            if (running_.empty()) idle_since_ = now_;
        }
        take(supervisor_->lost(node, "is lost", now_));
    }

    int64_t any_of(const std::set<int64_t>& nodes) {
        return *std::next(nodes.begin(), pick(0, static_cast<int64_t>(nodes.size()) - 1));
    }

    void advance() {
        now_ += 0.5;
        if (stop_at_ >= 0 && now_ >= static_cast<double>(stop_at_) && !stopped_) {
            stopped_ = true;
            take(supervisor_->stop(75, "stopped by signal 15", now_));
        } else if (!up_.empty() && chance(losing_)) {
            lose(any_of(up_));
        } else if (const int64_t node = pick(1, 8); up_.count(node) == 1 && chance(draining_)) {
            drain(node);
        } else if (const int64_t node = pick(0, options_.nodes + options_.spares - 1);
                   up_.count(node) == 0 && chance(returns_ / 10)) {
            up_.insert(node);
            take(supervisor_->came(node, now_));
        } else if (!checks_.empty() && chance(0.5)) {
            check(checks_.front());
        } else if (ending_ && !running_.empty()) {
            end_node(any_of(running_), killed(-1, finished_));
        } else if (!running_.empty()) {
            train();
        } else if (const auto due = supervisor_->next_tick()) {
            now_ = std::max(now_, *due);
            take(supervisor_->tick(now_));
        }
    }

    void check(int64_t node) {
        std::erase(checks_, node);
        const Fitness found = !chance(unfit_) ? Fitness::fit : chance(0.5) ? Fitness::unfit : Fitness::late;
        if (found == Fitness::fit) failed_checks_[node] = 0;
        if (found == Fitness::unfit) ++failed_checks_[node];
        if (failed_checks_[node] == 2) quarantined_.insert(node);
        take(supervisor_->checked(node, found, "disk full", now_));
    }

    void train() {
        const int64_t node = any_of(running_);
        if (stopped_ || (stopping_ && chance(0.8)))
            return end_node(node, of_rank(0, Cause::stopped, 75, "stopped", finished_));
        if (mistaken_ && chance(0.2)) return end_node(node, of_rank(0, Cause::mistake, 2, "no such key", finished_));
        if (step_ + 1 == poisoned_) return end_node(*running_.begin(), killed(3, finished_, Cause::error));
        const Cause causes[] = {Cause::process, Cause::hang, Cause::memory, Cause::early_end, Cause::storage};
        if (chance(failing_)) {
            if (chance(0.3)) now_ += static_cast<double>(pick(0, 36'000));  // hours without a step renew nothing
            return end_node(node, killed(pick(0, 7), finished_, causes[pick(0, 4)]));
        }
        if (step_ >= steps_) {
            done_ = running_.size() == 1;
            return end_node(node, {});
        }
        finished_ = ++step_;
        if (step_ > best_) {
            best_ = step_;
            failures_.clear();
            last_.reset();
        }
        take(supervisor_->step_done(step_));
        CHECK(supervisor_->best_step() == best_);
    }

    std::mt19937 random_;
    Supervisor::Options options_;
    std::optional<Supervisor> supervisor_;
    double now_ = 0, failing_ = 0, losing_ = 0, unfit_ = 0, returns_ = 0, draining_ = 0, idle_since_ = 0;
    int64_t steps_ = 0, interval_ = 1, poisoned_ = -1, stop_at_ = -1, generation_ = 0;
    int64_t step_ = 0, best_ = 0, finished_ = 0;
    bool stopping_ = false, has_stopped_ = false;
    bool mistaken_ = false, stopped_ = false, ending_ = false, done_ = false, over_ = false, repeated_ = false;
    int code_ = 0;
    std::set<int64_t> up_, running_, quarantined_, drained_;
    std::vector<int64_t> checks_;
    std::map<int64_t, int> failed_checks_;
    std::map<Cause, int64_t> failures_;
    std::optional<Loss> first_failure_, last_;
};

}  // namespace

TEST_CASE("a job ends always, and never before its budget says so", "[supervisor]") {
    for (uint32_t seed = 0; seed < 20'000; ++seed) {
        INFO("seed " << seed);
        World(seed).run();
    }
}

TEST_CASE("a restart is at once, later ones wait longer, and a new step renews the budget", "[supervisor]") {
    Supervisor s = started({.restarts = 2});
    REQUIRE(find(ended(s, 0, killed(0, 0), 10), Kind::start)->generation == 2);
    CHECK(find(ended(s, 0, killed(1, 0), 11), Kind::start) == nullptr);
    REQUIRE(s.next_tick() == 12.0);
    CHECK(find(s.tick(11.5), Kind::start) == nullptr);
    CHECK(find(s.tick(12), Kind::start)->generation == 3);
    s.step_done(1);
    CHECK(find(ended(s, 0, killed(0, 1), 20), Kind::start)->generation == 4);
    s.step_done(1);  // the same step again is no progress
    CHECK(find(ended(s, 0, killed(1, 1), 21), Kind::start) == nullptr);
    CHECK(find(s.tick(22), Kind::start)->generation == 5);
    const auto last = ended(s, 0, killed(2, 1), 23);
    REQUIRE(find(last, Kind::finish));
    CHECK(find(last, Kind::finish)->code == 1);
    CHECK(find(last, Kind::finish)->text.shown() ==
          "rank 2 was killed by signal 9 (Killed) after step 1; 2 restarts after the same kind of failure (process) "
          "made no progress past step 1");
}

TEST_CASE("each cause has a budget of its own; the same failure at the same step stops", "[supervisor]") {
    Supervisor s = started({.restarts = 1});
    CHECK(find(ended(s, 0, killed(0, 3), 0), Kind::start));
    ended(s, 0, killed(0, 3, Cause::hang), 1);
    CHECK(find(s.tick(10), Kind::start));

    Supervisor twice = started({.restarts = 9});
    twice.step_done(4);
    CHECK(find(ended(twice, 0, killed(1, 4), 0), Kind::start));
    const auto end = ended(twice, 0, killed(1, 4), 1);
    REQUIRE(find(end, Kind::finish));
    CHECK(find(end, Kind::finish)->text.shown() ==
          "rank 1 was killed by signal 9 (Killed) after step 4, for the second time: a restart does not help");
}

TEST_CASE("a failure is the same by its fields, and an error by whichever rank found it", "[supervisor]") {
    const auto error = [](int64_t rank, const char* site, const char* text) {
        return Loss{.cause = Cause::error, .rank = rank, .step = 80, .site = site, .text = text};
    };
    CHECK(same_failure(error(0, "save", "failed: no space left on device"), error(1, "save", "failed: kein Platz")));
    CHECK_FALSE(same_failure(error(0, "save", "failed"), error(0, "loss", "failed")));
    Loss other = error(0, "save", "failed");
    other.step = 81;
    CHECK_FALSE(same_failure(error(0, "save", "failed"), other));
    other.step = 80;
    other.code = 3;
    CHECK_FALSE(same_failure(error(0, "save", "failed"), other));
    CHECK(same_failure(killed(1, 7, Cause::hang), killed(1, 7, Cause::hang)));
    CHECK_FALSE(same_failure(killed(1, 7, Cause::hang), killed(0, 7, Cause::hang)));
    CHECK_FALSE(same_failure(killed(1, 7, Cause::hang), killed(1, 7)));
    CHECK_FALSE(same_failure(killed(-1, 7, Cause::hang), killed(-1, 7, Cause::hang)));  // of which rank is not known

    Supervisor s = started({.restarts = 9});
    s.step_done(80);
    CHECK(find(ended(s, 0, error(0, "save", "no space left"), 0), Kind::start));
    CHECK(find(ended(s, 0, error(1, "save", "no space left in 17.2 s"), 1), Kind::finish));
}

TEST_CASE("preemption is no failure, a mistake no reason to try again", "[supervisor]") {
    Supervisor s = started({.restarts = 3});
    const auto stopped = ended(s, 0, of_rank(0, Cause::stopped, 75, "stopped by signal 15", 8), 1);
    REQUIRE(find(stopped, Kind::finish));
    CHECK(find(stopped, Kind::finish)->code == 75);
    CHECK(s.restarts() == 0);

    Supervisor wrong = started({.restarts = 3});
    const auto mistake = ended(wrong, 0, of_rank(0, Cause::mistake, 2, "ended with exit code 2", 0), 1);
    CHECK(find(mistake, Kind::finish)->code == 2);

    // Of two nodes one has stopped, and the other's ranks have failed meanwhile.
    const Loss stop = of_rank(0, Cause::stopped, 75, "stopped by signal 15", 8);
    Supervisor two = started({.restarts = 3, .nodes = 2});
    CHECK_FALSE(find(ended(two, 0, stop, 1), Kind::end_ranks));
    const auto failed = ended(two, 1, of_rank(1, Cause::error, 1, "cannot write", 8), 2);
    CHECK(find(failed, Kind::start));
    CHECK(two.restarts() == 1);

    Supervisor asked = started({.restarts = 3, .nodes = 2});
    asked.stop(75, "stopped by signal 15", 1);
    ended(asked, 0, stop, 1);
    const auto both = ended(asked, 1, of_rank(1, Cause::error, 1, "cannot write", 8), 2);
    REQUIRE(find(both, Kind::finish));
    CHECK(find(both, Kind::finish)->code == 1);

    Supervisor gone = started({.restarts = 3, .nodes = 2});
    ended(gone, 0, stop, 1);
    const auto lost = gone.lost(1, "died", 2);  // no failure of its ranks
    REQUIRE(find(lost, Kind::finish));
    CHECK(find(lost, Kind::finish)->code == 75);
}

TEST_CASE("a lost node is waited for, a spare takes its place, two failed checks leave it out", "[supervisor]") {
    Supervisor s = started({.restarts = 3, .nodes = 2, .wait_node_s = 300});
    CHECK(find(s.lost(1, "its launcher is silent", 10), Kind::end_ranks));
    CHECK(find(ended(s, 0, killed(0, 5), 11), Kind::start) == nullptr);
    CHECK(s.missing().shown() == "node 1 is missing (its launcher is silent)");
    CHECK(s.next_tick() == 311.0);
    CHECK(find(s.came(1, 50), Kind::check)->node == 1);
    CHECK(find(s.checked(1, Fitness::unfit, "no room", 51), Kind::check)->node == 1);
    CHECK(find(s.checked(1, Fitness::unfit, "no room", 52), Kind::start) == nullptr);
    CHECK(s.came(1, 53).empty());
    const auto end = s.tick(311);
    REQUIRE(find(end, Kind::finish));
    CHECK(find(end, Kind::finish)->code == 75);
    CHECK(find(end, Kind::finish)->text.shown() == "node 1 failed its checks twice (no room) after 300 s");

    Supervisor spare = started({.restarts = 3, .nodes = 2, .spares = 1});
    spare.came(2, 1);
    spare.checked(2, Fitness::fit, "", 2);
    spare.lost(1, "died", 10);
    const auto again = ended(spare, 0, killed(0, 5), 11);
    REQUIRE(find(again, Kind::start));
    CHECK(find(again, Kind::start)->nodes == std::vector<int64_t>{0, 2});

    // A node whose rank fails of itself is looked at; until then no spare takes its place.
    Supervisor ill = started({.restarts = 3, .nodes = 2, .spares = 1});
    ill.came(2, 1);
    ill.checked(2, Fitness::fit, "", 2);
    ill.ended(1, killed(1, 5), 10);
    Loss heard = of_rank(1, Cause::hang, 1, "does not answer", 5);
    heard.hearsay = true;
    const auto look = ill.ended(0, heard, 11);
    CHECK(find(look, Kind::start) == nullptr);
    REQUIRE(find(look, Kind::check));
    CHECK(find(look, Kind::check)->node == 1);
    CHECK(find(ill.checked(1, Fitness::unfit, "no device", 12), Kind::check)->node == 1);
    const auto without = ill.checked(1, Fitness::unfit, "no device", 13);
    REQUIRE(find(without, Kind::start));
    CHECK(find(without, Kind::start)->nodes == std::vector<int64_t>{0, 2});

    // A check that does not end keeps nobody for good: neither a spare nor, longer than the job waits, the end.
    Supervisor hangs = started({.restarts = 3, .nodes = 2, .spares = 1});
    hangs.came(2, 1);
    hangs.checked(2, Fitness::fit, "", 2);
    hangs.ended(1, killed(1, 5), 10);
    CHECK(find(hangs.ended(0, heard, 11), Kind::start) == nullptr);
    REQUIRE(hangs.next_tick() == 23.0);
    CHECK(find(hangs.tick(22), Kind::start) == nullptr);
    REQUIRE(find(hangs.tick(23), Kind::start));
    Supervisor short_wait = started({.restarts = 3, .nodes = 2, .wait_node_s = 1});
    short_wait.ended(1, killed(1, 5), 10);
    CHECK(find(short_wait.ended(0, heard, 11), Kind::finish) == nullptr);
    CHECK(short_wait.missing().shown() == "node 1 is being checked");
    CHECK(find(short_wait.tick(13), Kind::finish) == nullptr);
    CHECK(find(short_wait.checked(1, Fitness::fit, "", 15), Kind::start));
    // One that is late says nothing of the node, which may be busy: the job waits for it as long as for any.
    Supervisor busy = started({.restarts = 3, .nodes = 2});
    busy.lost(1, "its launcher is silent", 10);
    ended(busy, 0, killed(0, 5), 11);
    busy.came(1, 12);
    for (double now = 17; now < 290; now += 5) {
        const auto more = busy.checked(1, Fitness::late, "its check is still running after 5 s", now);
        REQUIRE(find(more, Kind::check)->node == 1);
        CHECK((find(more, Kind::say) != nullptr) == (now == 17));
    }
    CHECK(busy.missing().shown() == "node 1 is being checked (its check is still running after 5 s)");
    CHECK(busy.next_tick() == 311.0);
    CHECK(find(busy.checked(1, Fitness::fit, "", 291), Kind::start));
    // A spare waits 12 s for a late check, then takes the slot; the check continues while the job runs.
    Supervisor late = started({.restarts = 3, .nodes = 2, .spares = 1});
    late.came(2, 1);
    late.checked(2, Fitness::fit, "", 2);
    late.ended(1, killed(1, 5), 10);
    late.ended(0, heard, 11);
    CHECK(find(late.checked(1, Fitness::late, "slow", 16), Kind::check));
    CHECK(find(late.checked(1, Fitness::late, "slow", 21), Kind::check));
    CHECK(find(late.tick(23), Kind::start)->nodes == std::vector<int64_t>{0, 2});
    for (const double now : {26, 31, 36}) CHECK(find(late.checked(1, Fitness::late, "slow", now), Kind::check));
    late.checked(1, Fitness::fit, "", 41);
    late.lost(2, "died", 50);
    ended(late, 0, heard, 51);
    CHECK(find(late.tick(52), Kind::start)->nodes == std::vector<int64_t>{0, 1});
    // Nor is a spare left out that is late while the job needs one.
    Supervisor slow_spare = started({.restarts = 3, .nodes = 2, .spares = 1});
    slow_spare.lost(1, "died", 10);
    ended(slow_spare, 0, killed(0, 5), 11);
    slow_spare.came(2, 12);
    for (const double now : {17, 22, 27}) CHECK(find(slow_spare.checked(2, Fitness::late, "slow", now), Kind::check));
    CHECK(find(slow_spare.checked(2, Fitness::fit, "", 30), Kind::start)->nodes == std::vector<int64_t>{0, 2});
    // What a script or a store failed of says nothing of the node.
    Supervisor lost = started({.restarts = 3, .nodes = 2});
    lost.ended(1, killed(1, 5, Cause::error), 10);
    CHECK(find(lost.ended(0, killed(0, 5, Cause::error), 11), Kind::start));

    Supervisor begins({.restarts = 3, .nodes = 2, .spares = 1}, 0);
    for (const int64_t node : {0, 2}) {
        begins.came(node, 0);
        CHECK(find(begins.checked(node, Fitness::fit, "", 0), Kind::start) == nullptr);
    }
    REQUIRE(begins.next_tick() == 10.0);
    CHECK(find(begins.tick(9), Kind::start) == nullptr);
    CHECK(find(begins.tick(10), Kind::start)->nodes == std::vector<int64_t>{0, 2});
}

TEST_CASE("ranks that end because a node is lost are recorded with that node", "[supervisor]") {
    const Loss late{.cause = Cause::hang, .rank = 0, .site = "late", .text = "did not end in time"};
    const Loss heard{.cause = Cause::hang, .rank = 2, .site = "connection", .hearsay = true, .text = "died"};
    const Loss stop{.cause = Cause::stopped, .rank = 0, .code = 75, .hearsay = true};
    Supervisor s = started({.restarts = 3, .nodes = 3});
    CHECK(s.recorded(heard).rank == 2);
    s.lost(1, "silent for 10 s", 1);
    for (const Loss& how : {late, heard}) {
        CHECK(s.recorded(how).cause == Cause::node);
        CHECK(s.recorded(how).rank == -1);
        CHECK(s.recorded(how).node == 1);
        CHECK(s.recorded(how).text.shown() == "is lost (silent for 10 s)");
    }
    CHECK(s.recorded(killed(0, 0)).rank == 0);  // seen by its launcher
    CHECK(s.recorded(stop).cause == Cause::stopped);
    Supervisor other = started({.restarts = 3, .nodes = 3});
    ended(other, 2, killed(2, 0), 1);
    other.lost(1, "silent for 10 s", 2);
    CHECK(other.recorded(late).rank == 0);  // node 1 was not the first
}

TEST_CASE("a start that fails by a mistake ends the job that waits for its node, and no other", "[supervisor]") {
    const Loss mistake{.cause = Cause::mistake, .node = 1, .code = 2, .text = "no script a.lua"};
    const auto ends = [](const Supervisor::Orders& orders, int code) {
        const Order* end = find(orders, Kind::finish);
        return end && end->code == code &&
               end->text.shown().find("node 1 is missing (a start of it failed: no script") == 0;
    };
    Supervisor begins({.restarts = 3, .nodes = 2}, 0);
    begins.came(0, 0);
    begins.checked(0, Fitness::fit, "", 0);
    CHECK(ends(begins.failed_start(1, mistake, 1), 2));
    // What a machine failed of may pass; the reason is in the message in the end.
    Supervisor full({.restarts = 3, .nodes = 2, .wait_node_s = 30}, 0);
    full.came(0, 0);
    full.checked(0, Fitness::fit, "", 0);
    CHECK(full.failed_start(1, {.cause = Cause::error, .text = "no script for want of space"}, 1).empty());
    CHECK(ends(full.tick(30), 75));
    // While the node is there, or is none of the job's, its word is not asked for.
    Supervisor runs = started({.restarts = 3, .nodes = 2, .spares = 1});
    for (const int64_t node : {1, 2, 9}) CHECK(runs.failed_start(node, mistake, 1).empty());
    CHECK_FALSE(runs.over());
    // One that was lost and is started again with a mistake, before the others' ranks have ended.
    runs.lost(1, "died", 10);
    CHECK(runs.failed_start(1, mistake, 11).empty());
    CHECK(ends(ended(runs, 0, killed(0, 5), 12), 2));
    // A spare that waits takes the place.
    Supervisor spare = started({.restarts = 3, .nodes = 2, .spares = 1});
    spare.came(2, 1);
    spare.checked(2, Fitness::fit, "", 2);
    spare.lost(1, "died", 10);
    spare.failed_start(1, mistake, 11);
    CHECK(find(ended(spare, 0, killed(0, 5), 12), Kind::start)->nodes == std::vector<int64_t>{0, 2});
    // A check that finds a mistake of the configuration, twice.
    Supervisor wrong = started({.restarts = 3, .nodes = 2});
    wrong.lost(1, "died", 10);
    ended(wrong, 0, killed(0, 5), 11);
    wrong.came(1, 12);
    CHECK(find(wrong.checked(1, Fitness::wrong, "no plugin", 13), Kind::check));
    const auto end = wrong.checked(1, Fitness::wrong, "no plugin", 14);
    REQUIRE(find(end, Kind::finish));
    CHECK(find(end, Kind::finish)->code == 2);
    CHECK(find(end, Kind::finish)->text.shown() == "node 1 failed its checks twice (no plugin)");
}
