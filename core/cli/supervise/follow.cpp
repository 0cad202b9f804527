#include "cli/supervise/follow.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/signals.h"
#include "cli/supervise/agents.h"
#include "cli/supervise/local_ranks.h"
#include "cli/tell.h"
#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto tick = Milliseconds(100), one_try = Milliseconds(5000);
constexpr int queue_again = 75;

class Follower {
public:
    Follower(LaunchSpec& spec, const Supervision& options)
        : options_(options), spec_(spec), job_(spec.job), local_(spec, held_, options.disk_timeout_s) {
        spec_.gone = [this](const Loss& how) {
            tell_gone(*spec_.meeting, job_, spec_.first_rank / spec_.local_ranks, how);
            return true;
        };
    }

    int run() {
        while (!code_) {
            if (!mail_) meet();
            while (!code_ && mail_) turn();
        }
        return *code_;
    }

private:
    /// Joins node 0. Retries while node 0 is not there, or still counts an earlier launcher of this node as a member.
    void meet() {
        const double began = now_s();
        // A node that is asked to leave looks for node 0 only as long as node 0 waits for it.
        const double again = 1.5 * std::chrono::duration<double>(job_.silence).count();
        const auto until = [&] {
            const double wait = options_.policy.wait_node_s;
            return began + (asked_ ? std::min(again, wait) : wait);
        };
        Message why;
        double looked = began;
        while (!code_ && now_s() < until()) {
            try {
                const auto left = Milliseconds(static_cast<int64_t>((until() - now_s()) * 1000));
                mail_ = std::make_unique<LauncherMail>(
                    *spec_.meeting, spec_.job, options_.node, options_.policy.nodes + options_.policy.spares, "order",
                    std::clamp(left, Milliseconds(1000), one_try), [this] { return stopped(Milliseconds(0)); });
                // The rendezvous may be over but not closed: a report to it would reach node 0 in the next rendezvous.
                const Loss loss = mail_->loss();
                if (!loss) {
                    joined_ = true;
                    report("here", told_end());
                    if (asked_ && options_.drain_ends_job) report("stop", Json(asked_));
                    return;
                }
                mail_.reset();
                why = loss.text;
                if (ended_by_node_0(loss)) return over(loss);
            } catch (const Error& error) {
                if (error.fault() != Fault::peer) throw;  // not a rendezvous, or one that refuses this launcher
                mail_.reset();
                why = error.what();
            }
            stopped(tick);
            if (code_ || !options_.over || now_s() < looked + 1) continue;
            looked = now_s();
            if (options_.over()) code_ = 0;
        }
        if (code_) return;
        std::fprintf(stderr, "orrery: node 0 is missing: its launcher did not answer for %g s%s: %s\n", until() - began,
                     asked_ ? "" : " (--wait-node)", why.shown().c_str());
        code_ = queue_again;
    }

    /// Waits up to `limit` for a signal. Returns whether one ends this launcher at once. A node that has joined before
    /// joins again to be drained, so that node 0 does not wait for it.
    bool stopped(Milliseconds limit) {
        const int signal = held_.take(limit);
        if (signal <= 0 || signal == SIGCHLD) return code_.has_value();
        if (joined_ && signal != SIGINT)
            asked_ = signal;
        else
            code_ = stopped_code(signal);
        return code_.has_value();
    }

    void over(const Loss& why) { code_ = end_by(why); }

    void report(const char* event, const Json& more) {
        Json text = {{"node", options_.node}, {"self", self_}, {"event", event}, {"more", more}};
        if (asked_ && !options_.drain_ends_job) text["signal"] = asked_;
        mail_->report(text);
    }

    /// How the last generation (start) ended on this host; null: not yet. Sent at each rendezvous, as it may be lost.
    Json told_end() const {
        if (!ended_) return nullptr;
        Json text = to_json(*ended_);
        text["generation"] = job_.generation;
        return text;
    }

    void turn() {
        const int signal = held_.take(tick);
        try {
            if (signal > 0 && signal != SIGCHLD) asked(signal);
            while (!code_) {
                const auto order = mail_->next();
                if (!order) break;
                obey(*order);
            }
            if (auto how = local_.look()) {
                ended_ = std::move(how);
                report("ended", told_end());
            }
        } catch (const Error& error) {
            if (error.fault() != Fault::peer) throw;  // if a peer was lost, `mail_` has the reason
        }
        if (!code_ && mail_->loss()) part();
    }

    void asked(int signal) {
        if (local_.running()) local_.ranks()->asked(signal);
        asked_ = signal;
        report(options_.drain_ends_job ? "stop" : "signal", Json(signal));
    }

    void obey(const Json& order) {
        const std::string what = order.value("do", "");
        if (what == "finish") {
            code_ = order.value("code", 1);
            if (const std::string why = order.value("why", ""); *code_ != 0 && !why.empty())
                std::fprintf(stderr, "orrery: the job ends: %s\n", why.c_str());
            report("finished", nullptr);
            mail_->leave();
        } else if (what == "check" && order.value("self", "") == self_) {
            const NodeCheck found = options_.check ? options_.check() : NodeCheck{};
            report("checked", {{"problem", found.why}, {"fitness", static_cast<int>(found.fitness)}});
        } else if (what == "leave" && order.value("self", "") == self_) {
            code_ = order.value("code", queue_again);
            std::fprintf(stderr, "orrery: node %lld leaves the job (drained)%s\n",
                         static_cast<long long>(options_.node),
                         options_.node < options_.policy.nodes
                             ? ", which resumes with a spare, or when this launcher is started again"
                             : "");
            mail_->leave();
        } else if (what == "stop" && asked_ == 0 && local_.running()) {
            local_.ranks()->asked(order.value("signal", SIGTERM), false);
        } else if (what == "end" && local_.running()) {
            local_.ranks()->end(spec_.grace_ms);
        } else if (what == "start") {
            const auto slots = order.at("slots").get<std::vector<int64_t>>();
            const auto mine = std::find(slots.begin(), slots.end(), options_.node);
            if (mine == slots.end() || local_.running()) return;
            // An order for an earlier launcher of this node is ignored.
            const auto selves = order.at("selves").get<std::vector<std::string>>();
            if (selves.at(static_cast<size_t>(mine - slots.begin())) != self_) return;
            spec_.first_rank = (mine - slots.begin()) * spec_.local_ranks;
            job_.generation = order.at("generation").get<int64_t>();
            job_.port = order.at("port").get<int>();
            job_.run = mail_->run();
            ended_.reset();
            local_.start(job_, order.at("best").get<int64_t>());
        }
    }

    void part() {
        const Loss lost = mail_->loss();
        if (ended_by_node_0(lost)) over(lost);
        if (!code_)
            std::fprintf(stderr, "orrery: %s; node %lld stops its ranks and rejoins the other nodes\n",
                         lost.text.shown().c_str(), static_cast<long long>(options_.node));
        if (local_.running()) local_.ranks()->end(spec_.grace_ms);
        while (local_.running()) {
            stopped(tick);
            ended_ = local_.look();
        }
        // The ranks failed because this launcher ended them, so that direct observations of others take precedence.
        if (ended_ && ended_->cause != Cause::done) ended_->hearsay = true;
        mail_.reset();
        // Gives node 0 time to see the loss and to end the rendezvous.
        if (!code_) stopped(tick);
    }

    const Supervision& options_;
    LaunchSpec& spec_;
    Job job_;  ///< the job with the values of the current generation (start)
    const SignalsHeld held_;
    LocalRanks local_;
    const std::string self_ = fmt::format("{}:{}:{}", host_name(), ::getpid(), monotonic_ns());
    std::unique_ptr<LauncherMail> mail_;
    std::optional<Loss> ended_;  ///< how the ranks of `job_` ended on this host; unset while some run
    bool joined_ = false;        ///< whether node 0 knows this launcher
    int asked_ = 0;              ///< the last signal that asked this node to leave; 0: none
    std::optional<int> code_;
};

}  // namespace

int follow_node_0(LaunchSpec& spec, const Supervision& supervision) { return Follower(spec, supervision).run(); }

}  // namespace orrery
