#include "cli/supervise/supervise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "base/limits.h"
#include "cli/command_line.h"
#include "cli/signals.h"
#include "cli/supervise/agents.h"
#include "cli/supervise/event_log.h"
#include "cli/supervise/follow.h"
#include "cli/supervise/local_ranks.h"
#include "cli/tell.h"
#include "orrery/error.h"
#include "run/control/rendezvous.h"

namespace orrery {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto beat = Milliseconds(100);  // interval of reading ranks' progress; a rank's end wakes the loop at once

double rounded(double seconds) { return static_cast<double>(static_cast<int64_t>(seconds * 1000 + 0.5)) / 1000; }

/// Carries out what Supervisor decides: on this host, which is node 0, and through the launchers of other hosts.
class Conductor {
public:
    Conductor(LaunchSpec& spec, const Supervision& options)
        : options_(options),
          spec_(spec),
          log_(options.folder ? options.folder() : ""),
          local_(spec, held_, options.disk_timeout_s),
          began_(now_s()),
          supervisor_(options.policy, began_) {
        spec_.job.run = make_nonce();
        spec_.gone = [this](const Loss& how) { return !server_ || server_->gone(how); };
        if (options.policy.nodes > 1)
            agents_ = std::make_unique<Agents>(spec.meeting, spec.job, options.policy.nodes + options.policy.spares);
        spec_.joined = [this](int64_t rank) { return !server_ || spec_.job.ranks == 1 || server_->joined(rank); };
    }

    int run() {
        try {
            take(supervisor_.came(0, now_s()));
            while (!supervisor_.over()) turn();
        } catch (const std::exception& error) {
            give_up(explain(error), exit_code(fault_of(error)));
            throw;
        }
        return code_;
    }

private:
    void turn() {
        auto limit = beat;
        if (const auto next = supervisor_.next_tick(); next && !local_.running())
            limit = std::clamp(Milliseconds(static_cast<int64_t>((*next - now_s()) * 1000) + 1), Milliseconds(0), beat);
        const int signal = held_.take(limit);
        if (signal > 0 && signal != SIGCHLD) stop(signal, 0);
        follow();
        if (const auto how = local_.look()) {
            add_times();
            ended(0, *how);
        }
        if (agents_)
            for (const NodeNews& news : agents_->news()) hear(news);
        take(supervisor_.tick(now_s()));
    }

    void hear(const NodeNews& news) {
        const int64_t node = news.node;
        const Json more = news.text.is_object() ? news.text.value("more", Json()) : Json();
        const std::string event = news.text.is_object() ? news.text.value("event", "") : "";
        if (news.kind == NodeNews::Kind::lost) return lose(node, news.how);
        const std::string self = news.text.is_object() ? news.text.value("self", "") : "";
        if (event == "here") {
            if (running_.count(node) > 0 && selves_[node] != self) lose(node, "its launcher was started again");
            selves_[node] = self;
            // The node's ranks were running, but it joins again: it has ended them, has a new launcher, or has not read
            // its order.
            const int64_t of = more.is_object() ? more.value("generation", int64_t{0}) : 0;
            const int signal = news.text.value("signal", 0);
            if (running_.count(node) > 0 && of == supervisor_.generation()) {
                if (signal != 0) drain(node, signal);  // the first report of it may have been lost
                return ended(node, loss_of(more));
            }
            if (running_.count(node) > 0 && started_in_ == agents_->meeting()) return;
            if (running_.count(node) > 0) lose(node, "its order to start was lost");
            if (signal != 0) return drain(node, signal);
            log_.tell(supervisor_.generation(), "node", {{"node", node}, {"is", "here"}});
            if (checking_.count(node) > 0) return check(node);  // its order was lost with the previous rendezvous
            take(supervisor_.came(node, now_s()));
        } else if (event == "failed" && more.is_object()) {
            fail_start(node, loss_of(more));
        } else if (selves_[node] != self) {
            return;  // sent by an earlier launcher of the node
        } else if (event == "ended" && more.is_object()) {
            if (more.value("generation", int64_t{0}) == supervisor_.generation()) ended(node, loss_of(more));
        } else if (event == "checked" && more.is_object()) {
            const std::string why = more.value("problem", "");
            const int fitness = std::clamp(more.value("fitness", 0), 0, static_cast<int>(Fitness::wrong));
            const Fitness found = static_cast<Fitness>(fitness);
            checking_.erase(node);
            if (found != Fitness::late) late_.erase(node);
            if (found != Fitness::late || late_.insert(node).second)
                log_.tell(supervisor_.generation(), "check", {{"node", node}, {"problem", why}});
            take(supervisor_.checked(node, found, why, now_s()));
        } else if (event == "signal" && more.is_number_integer()) {
            drain(node, more.get<int>());
        } else if (event == "stop" && more.is_number_integer()) {
            stop(more.get<int>(), node);
        }
    }

    /// `node` is asked to leave. SIGINT and SIGHUP are a person's at a terminal, and stop the job.
    void drain(int64_t node, int signal) {
        if (!options_.policy.drains || node == 0 || (signal != SIGTERM && signal != SIGUSR1)) return stop(signal, node);
        if (drains_.insert(selves_[node]).second)
            log_.tell(supervisor_.generation(), "drain", {{"node", node}, {"signal", signal}});
        take(supervisor_.drain(node, fmt::format("signal {}", signal), now_s()));
    }

    void fail_start(int64_t node, const Loss& loss) {
        log_.tell(supervisor_.generation(), "node", {{"node", node}, {"is", "failed"}, {"how", loss.text.shown()}});
        take(supervisor_.failed_start(node, loss, now_s()));
        if (!supervisor_.over())
            std::fprintf(stderr, "orrery: starting node %lld failed: %s\n", static_cast<long long>(node),
                         loss.text.shown().c_str());
    }

    void lose(int64_t node, const Message& how) {
        std::fprintf(stderr, "orrery: node %lld is lost: %s\n", static_cast<long long>(node), how.shown().c_str());
        log_.tell(supervisor_.generation(), "node", {{"node", node}, {"is", "lost"}, {"how", how.shown()}});
        checking_.erase(node);
        late_.erase(node);
        if (running_.erase(node) > 0 && server_)
            server_->fail({.cause = Cause::node, .node = node, .text = fmt::format("node {} is lost: ", node) + how});
        take(supervisor_.lost(node, how, now_s()));
        told_end();
    }

    /// Asks the ranks of all nodes to save and stop. At a start, ranks of other nodes cannot know of a signal to one.
    void stop_ranks(int signal, bool here) {
        if (local_.running()) local_.ranks()->asked(signal, here);
        if (agents_) agents_->order({{"do", "stop"}, {"signal", signal}});
    }

    void stop(int signal, int64_t node) {
        const bool again = std::exchange(stopped_, true);
        Json line = {{"signal", signal}};
        if (agents_) line["node"] = node;
        log_.tell(supervisor_.generation(), "signal", line);
        std::string why = fmt::format("stopped by signal {}", signal);
        if (agents_) why += fmt::format(" on node {}{}", node, node == 0 ? ", which supervises the job" : "");
        if (agents_ && !again) std::fprintf(stderr, "orrery: %s: the job ends on all nodes\n", why.c_str());
        // A second SIGINT kills ranks. It counts only if both came to this launcher: one Ctrl-C may reach several.
        if (!again)
            stop_ranks(signal, node == 0);
        else if (node == 0 && local_.running())
            local_.ranks()->asked(signal);
        take(supervisor_.stop(stopped_code(signal), why, now_s()));
    }

    void follow() {
        if (!local_.running()) return;
        if (!told_began_ && local_.began()) {
            told_began_ = true;
            log_.tell(supervisor_.generation(), "training",
                      {{"step", local_.resumed()}, {"seconds", rounded(now_s() - local_.times().started)}});
        }
        if (local_.began()) supervisor_.step_done(local_.step());
    }

    /// Adds the times of this host's ranks, which stand for those of all hosts.
    void add_times() {
        add(goodput_, local_.times(), supervisor_.restarts() == 0);
        idle_since_ = local_.times().ended;
    }

    void ended(int64_t node, const Loss& how) {
        if (running_.erase(node) == 0) return;
        stopped_ = stopped_ || (how.cause == Cause::stopped && !supervisor_.draining());
        supervisor_.step_done(how.step);  // steps may have finished since the progress was last read
        const GenerationTimes& times = local_.times();
        const Loss found = supervisor_.recorded(how);
        Json line = {{"cause", text_of(found.cause)}, {"exit_code", how.code}, {"step", how.step}};
        if (agents_) line["node"] = node;
        if (const std::string who = subject_of(found); !who.empty()) line["who"] = who;
        if (!found.site.empty()) line["site"] = found.site;
        if (!found.text.empty()) line["how"] = found.text.shown();
        if (node == 0) line["seconds"] = rounded(times.ended - std::max({times.last, times.began, times.started}));
        log_.tell(supervisor_.generation(), "ended", line);
        take(supervisor_.ended(node, how, now_s()));
        told_end();
    }

    /// Reports on stderr, once for each restart, that a generation (start of the job) has ended and the job restarts.
    void told_end() {
        if (supervisor_.restarts() > told_restarts_ && !supervisor_.over())
            tell_restart(supervisor_.next_tick().value_or(now_s()) - now_s());
    }

    void take(const Supervisor::Orders& orders) {
        for (const Order& order : orders) switch (order.kind) {
                case Order::Kind::check: check(order.node); break;
                case Order::Kind::start: start(order); break;
                case Order::Kind::end_ranks:
                    if (local_.running()) local_.ranks()->end(spec_.grace_ms);
                    if (agents_) agents_->order({{"do", "end"}});
                    break;
                case Order::Kind::stop_ranks: stop_ranks(SIGTERM, false); break;
                case Order::Kind::leave: leave(order); break;
                case Order::Kind::say: std::fprintf(stderr, "orrery: %s\n", order.text.shown().c_str()); break;
                case Order::Kind::finish: finish(order); break;
            }
    }

    /// Announces a restart before it is carried out, since the pause may be long.
    void tell_restart(double pause) {
        told_restarts_ = supervisor_.restarts();
        const Message why = sentence_of(supervisor_.restarted_by().value_or(Loss{}));
        const Message missing = supervisor_.missing();
        const Message when = !missing.empty() ? ", once it is complete (" + missing + ")"
                             : pause > 0.05   ? fmt::format(" in {:.0f} s", std::ceil(pause))
                                              : "";
        std::fprintf(stderr, "orrery: %s; the job starts again%s: restart %lld\n", why.shown().c_str(),
                     when.shown().c_str(), static_cast<long long>(told_restarts_));
    }

    void leave(const Order& order) {
        checking_.erase(order.node);
        late_.erase(order.node);
        log_.tell(order.generation, "drained", {{"node", order.node}, {"step", supervisor_.best_step()}});
        std::fprintf(stderr, "orrery: node %lld %s; it leaves the job\n", static_cast<long long>(order.node),
                     order.text.shown().c_str());
        agents_->order({{"do", "leave"}, {"self", selves_[order.node]}, {"code", order.code}});
        agents_->let_go(order.node);
    }

    /// Checks a node before a restart. At the first start no node is checked; `orrery preflight` is for that.
    void check(int64_t node) {
        if (!restarted_ || node == 0) return take(supervisor_.checked(node, Fitness::fit, "", now_s()));
        checking_.insert(node);
        agents_->order({{"do", "check"}, {"self", selves_[node]}});
    }

    void start(const Order& order) {
        if (supervisor_.restarts() > told_restarts_) tell_restart(0);
        server_.reset();
        goodput_.waiting += now_s() - idle_since_;
        Job job = spec_.job;
        if (agents_) job.port = 0;  // any free port: the launchers' rendezvous uses the job's
        job.generation = options_.mint ? options_.mint(order.generation - 1) : order.generation;
        if (restarted_ && job.generation != order.generation)
            throw Error(fmt::format("generation {} of the job's folder is taken: another launcher has resumed the job",
                                    job.generation - 1),
                        Fault::failed);
        supervisor_.minted(job.generation);
        if (spec_.meeting)
            server_ = serve(*spec_.meeting, options_of(job, spec_.local_ranks));  // a single rank needs no rendezvous
        if (server_) job.port = server_->port();
        running_.insert(order.nodes.begin(), order.nodes.end());
        const auto mine = std::find(order.nodes.begin(), order.nodes.end(), 0);
        if (agents_) {
            started_in_ = agents_->meeting();
            std::vector<std::string> selves;
            for (const int64_t node : order.nodes) selves.push_back(selves_[node]);
            agents_->order({{"do", "start"},
                            {"generation", job.generation},
                            {"port", job.port},
                            {"best", supervisor_.best_step()},
                            {"slots", order.nodes},
                            {"selves", selves}});
        }
        spec_.first_rank = (mine - order.nodes.begin()) * spec_.local_ranks;
        local_.start(job, supervisor_.best_step());
        told_began_ = false;
        restarted_ = true;
        log_.tell(job.generation, "start", {{"ranks", job.ranks}, {"restarts", supervisor_.restarts()}});
    }

    /// Ends the job because this launcher cannot continue, since other launchers would wait for it.
    void give_up(const std::string& why, int code) {
        if (finished_) return;
        stopped_ = true;  // finish() then leaves reporting the error to the caller
        try {
            finish({Order::Kind::finish, -1, supervisor_.generation(), {}, code, why});
        } catch (const std::exception& second) {
            std::fprintf(stderr, "orrery: %s\n", second.what());
        }
    }

    void finish(const Order& order) {
        finished_ = true;
        code_ = order.code;
        goodput_.waiting += std::max(0.0, now_s() - idle_since_);
        Json line = {{"exit_code", code_}, {"why", order.text.shown()}, {"restarts", supervisor_.restarts()}};
        line.update(goodput_.json());
        log_.tell(supervisor_.generation(), "end", line);
        if (code_ != 0 && !stopped_) std::fprintf(stderr, "orrery: the job ends: %s\n", order.text.shown().c_str());
        if (agents_) agents_->finish({{"do", "finish"}, {"code", code_}, {"why", order.text.shown()}});
        std::printf("%s\n", goodput_.text(supervisor_.restarts()).c_str());
    }

    const Supervision& options_;
    LaunchSpec& spec_;
    const SignalsHeld held_;
    std::unique_ptr<RendezvousService> server_;
    std::unique_ptr<Agents> agents_;  ///< launchers of other hosts; nullptr: all ranks are on this host
    std::set<int64_t> running_;       ///< nodes with ranks that may still run
    EventLog log_;                    ///< outlives the ranks, since it may wait for a disk
    LocalRanks local_;
    const double began_;
    double idle_since_ = began_;
    Supervisor supervisor_;
    Goodput goodput_;
    int64_t told_restarts_ = 0, started_in_ = 0;
    std::set<int64_t> checking_, late_;      ///< late_: events.jsonl has a line on the late check
    std::map<int64_t, std::string> selves_;  ///< identity of each node's launcher
    std::set<std::string> drains_;           ///< launchers that were asked to stop, by identity
    bool told_began_ = false, restarted_ = false, stopped_ = false, finished_ = false;
    int code_ = 0;
};

}  // namespace

int supervise(LaunchSpec spec, const Supervision& options) {
    if (spec.taken_by) spec.taken_by->leave_them();
    if (options.node != 0) return follow_node_0(spec, options);
    if (options.claim) options.claim();
    return Conductor(spec, options).run();
}

}  // namespace orrery
