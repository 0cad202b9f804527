#include "cli/supervise/agents.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "control/loss.h"
#include "orrery/error.h"

namespace orrery {
namespace {

using namespace std::chrono_literals;

/// Time limits of a launcher: to join again once the others have, and to receive the last order.
std::chrono::milliseconds comes_again(const Job& job) { return job.silence + job.silence / 2; }
std::chrono::milliseconds takes_order(const Job& job) { return job.silence / 2; }

JoinOptions options_for(const Job& job, int64_t node, int64_t nodes, std::chrono::milliseconds limit,
                        std::function<bool()> give_up) {
    JoinOptions options = place_of(job);
    options.rank = node;
    options.world = nodes;
    options.token.launchers = true;
    options.timeout = limit;
    options.give_up = std::move(give_up);
    return options;
}

}  // namespace

bool ended_by_node_0(const Loss& loss) {
    return loss.node == 0 &&
           (loss.cause == Cause::mistake || loss.cause == Cause::error || loss.cause == Cause::stopped);
}

bool report_failure(RendezvousBackend& backend, const Job& job, int64_t node, const Loss& loss,
                    std::chrono::milliseconds limit, const std::function<bool()>& give_up) {
    try {
        LauncherMail mail(backend, job, node, 0, "order", limit, give_up);
        if (!mail.loss()) mail.report({{"node", node}, {"event", "failed"}, {"more", to_json(loss)}});
        mail.leave();
        return true;
    } catch (const Error&) {
        return false;
    }
}

Json to_json(const Loss& loss) { return {{"loss", encode(loss)}}; }

Loss loss_of(const Json& text) { return decode_loss(text.value("loss", "")); }

LauncherMail::LauncherMail(RendezvousBackend& backend, const Job& job, int64_t node, int64_t nodes, std::string reads,
                           std::chrono::milliseconds limit, std::function<bool()> give_up)
    : link_(backend.join(options_for(job, node, nodes, limit, std::move(give_up)))),
      reads_(std::move(reads)),
      lost_(link_->loss()),
      reader_([this] { read(); }) {}

LauncherMail::~LauncherMail() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    reader_.join();
}

void LauncherMail::read() {
    for (int64_t number = 1;;) {
        try {
            const auto text = link_->look(fmt::format("{}/{}", reads_, number), 200ms);
            const std::lock_guard lock(mutex_);
            if (stopping_) return;
            if (!text) continue;
            ++number;
            come_.push_back(parse_json(*text, {"", "a launcher's message", 0, 0}));
        } catch (const Error& error) {
            const std::lock_guard lock(mutex_);
            lost_ = link_->loss();
            if (!lost_) lost_ = loss_of(error.fault(), error.what());
            if (stopping_) return;
        }
        ::kill(::getpid(), SIGCHLD);
        const std::lock_guard lock(mutex_);
        if (lost_) return;
    }
}

std::optional<Json> LauncherMail::next() {
    const std::lock_guard lock(mutex_);
    if (come_.empty()) return std::nullopt;
    Json first = std::move(come_.front());
    come_.pop_front();
    return first;
}

Loss LauncherMail::loss() const {
    const std::lock_guard lock(mutex_);
    return lost_;
}

void LauncherMail::order(const Json& text) { link_->set(fmt::format("order/{}", ++ordered_), message_text(text)); }

void LauncherMail::report(const Json& text) {
    link_->set(fmt::format("report/{}", link_->add("reports", 1)), message_text(text));
}

void LauncherMail::leave() { link_->leave(); }

Agents::Agents(std::shared_ptr<RendezvousBackend> backend, const Job& job, int64_t nodes)
    : backend_(std::move(backend)), job_(job), nodes_(nodes) {
    meet();
}

void Agents::meet() {
    ++meeting_;
    ServeOptions options = options_of(job_, 0);
    options.world = nodes_;
    options.token.launchers = true;
    server_ = serve(*backend_, options);
    mail_ = std::make_unique<LauncherMail>(*backend_, job_, 0, nodes_, "report", takes_order(job_), nullptr);
}

void Agents::meet_again(std::vector<NodeNews>& news) {
    const Loss how = mail_->loss();
    const int64_t lost = how.node;
    if (lost > 0 && (here_.count(lost) > 0 || awaited_.count(lost) > 0))
        news.push_back({NodeNews::Kind::lost, lost, how.text});
    here_.erase(lost);
    awaited_.erase(lost);
    for (const int64_t node : here_) awaited_[node] = Clock::now() + comes_again(job_);
    here_.clear();
    mail_.reset();
    server_.reset();
    meet();
}

std::vector<NodeNews> Agents::news() {
    std::vector<NodeNews> news;
    if (!mail_) return news;  // finish() was called
    const bool lost(mail_->loss());
    while (auto text = mail_->next()) {
        const int64_t node = text->value("node", int64_t{-1});
        const bool first = text->value("event", "") == "here";
        if (node <= 0 || node >= nodes_) continue;
        if (first && lost) continue;  // the node reports again at the next rendezvous
        if (first) here_.insert(node);
        if (first) awaited_.erase(node);
        news.push_back({first ? NodeNews::Kind::here : NodeNews::Kind::report, node, "", std::move(*text)});
    }
    if (mail_->loss()) meet_again(news);
    for (auto at = awaited_.begin(); at != awaited_.end();) {
        if (Clock::now() < at->second) {
            ++at;
            continue;
        }
        news.push_back({NodeNews::Kind::lost, at->first, "did not come again after another node was lost"});
        at = awaited_.erase(at);
    }
    return news;
}

void Agents::order(const Json& text) {
    try {
        mail_->order(text);
    } catch (const Error&) {  // a launcher was lost: news() will report it
    }
}

void Agents::let_go(int64_t node) {
    here_.erase(node);
    awaited_.erase(node);
}

void Agents::finish(const Json& text) {
    order(text);
    try {
        auto until = Clock::now() + takes_order(job_);
        for (int64_t given_in = meeting_; mail_;) {
            for (const NodeNews& news : news())
                if (news.text.is_object() && news.text.value("event", "") == "finished") here_.erase(news.node);
            // The order was lost if a new rendezvous has begun since it was sent.
            if (meeting_ != std::exchange(given_in, meeting_)) order(text);
            if (here_.empty() && awaited_.empty()) break;
            if (!awaited_.empty()) until = Clock::now() + takes_order(job_);
            if (Clock::now() >= until) break;
            std::this_thread::sleep_for(10ms);
        }
        if (mail_) mail_->leave();
    } catch (const Error&) {
    }
    mail_.reset();
    server_.reset();  // its destructor answers launchers that have not left yet
}

}  // namespace orrery
