#include "drill_launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "cli/supervise/agents.h"
#include "run/control/rendezvous.h"

namespace orrery::test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Order = orrery::Order;

namespace {

/// "process:1", as rows have it.
std::string text_of_end(const Loss& loss) {
    std::string text = text_of(loss.cause);
    std::replace(text.begin(), text.end(), ' ', '-');
    if (loss.cause == Cause::stopped && loss.node >= 0) return fmt::format("drained:{}", loss.node);
    const int64_t who = loss.cause == Cause::node ? loss.node : loss.rank;
    return loss.cause == Cause::stopped || who < 0 ? text : fmt::format("{}:{}", text, who);
}

/// One generation, not restarted (cli/launch).
class Plain : public Launcher {
public:
    using Launcher::Launcher;

    void turn() override {
        if (!service_ && !ranks.running()) start();
        if (!ranks.look()) return;
        const Loss loss = service_ ? service_->membership.loss() : Loss();
        world_.generation_ended(ranks.code() == 75 || ranks.code() == 130 ? "stopped"
                                : ranks.code() == 0                       ? "done"
                                                                          : text_of_end(loss));
        world_.over(*this, ranks.code());
    }
    void asked(bool interrupts) override { ranks.asked(interrupts); }
    bool gone(const Loss& how) override {
        const bool joined = !service_ || service_->membership.gone(how);
        if (service_) service_->act();
        return joined;
    }

private:
    void start() {
        Generation& generation = world_.new_generation();
        generation.number = world_.mint(0);
        if (world_.per_node > 1) generation.service = service_ = &world_.serve(*this, generation.number);
        ranks.start(generation, 0, world_.per_node);
    }
    Service* service_ = nullptr;
};

/// A message between launchers.
struct Note {
    std::string what, self;
    int64_t node = -1, generation = 0;
    std::optional<Loss> loss = {};
    Fitness fitness = Fitness::fit;
    std::vector<int64_t> slots = {};
    std::vector<std::string> selves = {};
    Generation* ranks = nullptr;
    int code = 0;
    Message why = {};
    bool asked = false;
};

/// A place in the launchers' rendezvous (LauncherMail). A message is a number: the notes are the world's.
class Mail {
public:
    Mail(DrillWorld& world, const Process& process, int64_t node, Service& service, std::string reads)
        : world_(world), reads_(std::move(reads)) {
        JoinOptions options = place_of(world.job(0, process));
        options.rank = node;
        options.world = world.nodes + world.spares;
        options.token.launchers = true;
        link = &world.net.link(process, options);
        link->heard = [this] { pump(); };
        link->connect(service);
    }
    ~Mail() {
        link->heard = [] {};
        link->close();
    }
    Mail(const Mail&) = delete;

    std::optional<Note> next() {
        if (come_.empty()) return std::nullopt;
        const Note note = *std::static_pointer_cast<const Note>(world_.notes.at(come_.front()));
        come_.pop_front();
        return note;
    }
    Loss loss() const { return link->member.loss(); }
    void order(const Note& note) {
        orders_.push_back(put(note));
        pump();
        link->send();
    }
    void report(const Note& note) {
        reports_.emplace_back(link->member.request("count", "reports", "1"), put(note));
        link->send();
    }
    void leave() { link->member.request("leave", "", ""); }

    Link* link;

private:
    std::string put(const Note& note) {
        world_.notes.push_back(std::make_shared<const Note>(note));
        return std::to_string(world_.notes.size() - 1);
    }

    void pump() {
        if (!link->member.joined()) return;
        for (const std::string& one : std::exchange(orders_, {}))
            link->member.request("set", fmt::format("order/{}", ++ordered_), one);
        std::erase_if(reports_, [&](const auto& report) {
            const auto number = link->member.answer(report.first);
            if (number) link->member.request("set", "report/" + *number, report.second);
            return number.has_value();
        });
        for (;;) {
            if (get_ == 0) get_ = link->member.request("get", fmt::format("{}/{}", reads_, number_), "");
            const auto text = link->member.answer(get_);
            if (!text) return;
            come_.push_back(std::stoul(*text));
            ++number_;
            get_ = 0;
        }
    }

    DrillWorld& world_;
    const std::string reads_;
    std::deque<size_t> come_;
    std::vector<std::string> orders_;
    std::vector<std::pair<uint64_t, std::string>> reports_;
    int64_t ordered_ = 0, number_ = 1;
    uint64_t get_ = 0;
};

/// Node 0's, which has the supervisor (cli/supervise: Conductor and Agents).
class Conductor : public Launcher {
public:
    Conductor(DrillWorld& world, int64_t node) : Launcher(world, node) {
        Supervisor::Options options;
        options.restarts = world.drill.of("restarts", 0);
        options.nodes = world.nodes;
        options.spares = world.spares;
        options.wait_node_s = static_cast<double>(world.drill.of("wait", 300));
        options.generation = world.claimed;
        options.drains = world.drill.drains();
        supervisor_.emplace(options, world.net.now_s());
        if (world.nodes > 1) meet();
        take(supervisor_->came(0, now()));
    }
    Service* meeting() override { return meeting_; }

    void turn() override {
        if (finish_by_) return say_last();
        if (ranks.running()) supervisor_->step_done(ranks.step());
        if (const auto how = ranks.look()) ended(0, *how);
        if (mail_) hear();
        take(supervisor_->tick(now()));
    }
    void asked(bool interrupts) override { stop(interrupts ? 130 : 75, 0); }
    bool gone(const Loss& how) override {
        const bool joined = !server_ || server_->membership.gone(how);
        if (server_) server_->act();
        return joined;
    }

private:
    double now() const { return world_.net.now_s(); }
    void stop(int code, int64_t other) {
        if (!std::exchange(asked_, true)) stop_ranks(code == 130);
        take(supervisor_->stop(code, fmt::format("stopped by a signal on node {}", other), now()));
    }
    void stop_ranks(bool interrupts) {
        if (ranks.running()) ranks.asked(interrupts);
        if (mail_) mail_->order({.what = "stop", .code = interrupts ? 130 : 75});
    }
    void drain(int64_t other) {
        if (!world_.drill.drains()) return stop(75, other);
        take(supervisor_->drain(other, "a signal", now()));
    }
    void leave(const Order& order) {
        world_.say(fmt::format("node {} {}", order.node, order.text.shown()));
        checking_.erase(order.node);
        mail_->order({.what = "leave", .self = selves_[order.node], .code = order.code});
        there_.erase(order.node);
        awaited_.erase(order.node);
    }

    void meet() {
        mail_.reset();
        if (meeting_) meeting_->close();
        ++meetings_;
        ServeOptions options = options_of(world_.job(0, process), 0);
        options.world = world_.nodes + world_.spares;
        options.token.launchers = true;
        meeting_ = &world_.net.serve(process, options);
        mail_ = std::make_unique<Mail>(world_, process, 0, *meeting_, "report");
    }

    void hear() {
        const Loss lost = mail_->loss();
        while (const auto note = mail_->next()) {
            if (note->what == "here" && lost) continue;
            if (note->what == "here") there_.insert(note->node);
            if (note->what == "here") awaited_.erase(note->node);
            hear(*note);
        }
        if (lost) meet_again(lost);
        std::vector<int64_t> late;
        for (const auto& [other, until] : awaited_)
            if (world_.net.now() >= until) late.push_back(other);
        for (const int64_t other : late) {
            awaited_.erase(other);
            lose(other, "did not come again after another node was lost");
        }
    }

    void meet_again(const Loss& how) {
        const int64_t lost = how.node;
        const bool known = there_.count(lost) + awaited_.count(lost) > 0;
        there_.erase(lost);
        awaited_.erase(lost);
        for (const int64_t other : there_) awaited_[other] = world_.net.now() + world_.silence + world_.silence / 2;
        there_.clear();
        meet();
        if (lost > 0 && known) lose(lost, how.text);
    }

    void hear(const Note& note) {
        const int64_t other = note.node;
        const bool runs = running_.count(other) > 0;
        if (note.what == "here") {
            if (runs && selves_[other] != note.self) lose(other, "its launcher was started again");
            selves_[other] = note.self;
            if (running_.count(other) > 0 && note.loss && note.generation == supervisor_->generation()) {
                if (note.asked) drain(other);
                return ended(other, *note.loss);
            }
            if (running_.count(other) > 0 && started_in_ == meetings_) return;
            if (running_.count(other) > 0) lose(other, "its order to start was lost");
            if (note.asked) return drain(other);
            if (checking_.count(other) > 0) return check(other);
            take(supervisor_->came(other, now()));
        } else if (selves_[other] != note.self) {
            return;
        } else if (note.what == "ended") {
            if (note.generation == supervisor_->generation()) ended(other, *note.loss);
        } else if (note.what == "checked") {
            checking_.erase(other);
            take(supervisor_->checked(other, note.fitness, note.why, now()));
        } else if (note.what == "signal") {
            drain(other);
        }
    }

    void lose(int64_t other, const Message& how) {
        world_.say(fmt::format("node {} is lost: {}", other, how.shown()));
        checking_.erase(other);
        const Loss loss{.cause = Cause::node, .node = other, .text = "is lost (" + how + ")"};
        if (running_.erase(other) > 0) {
            seen_.push_back(loss);
            if (server_) server_->membership.fail(loss);
            if (server_) server_->act();
        }
        take(supervisor_->lost(other, how, now()));
        world_.notice();
    }

    void ended(int64_t other, const Loss& how) {
        if (running_.erase(other) == 0) return;
        supervisor_->step_done(how.step);
        seen_.push_back(how);
        take(supervisor_->ended(other, how, now()));
    }

    void take(const Supervisor::Orders& orders) {
        if (supervisor_->restarts() > told_) {
            told_ = supervisor_->restarts();
            const Loss how = supervisor_->restarted_by().value_or(Loss{});
            world_.say(sentence_of(how).shown());
            world_.generation_ended(text_of_end(how));
            seen_.clear();
        }
        for (const Order& order : orders) switch (order.kind) {
                case Order::Kind::check: check(order.node); break;
                case Order::Kind::start: start(order); break;
                case Order::Kind::end_ranks:
                    if (ranks.running()) ranks.end(HostRanks::grace);
                    if (mail_) mail_->order({.what = "end"});
                    break;
                case Order::Kind::stop_ranks: stop_ranks(false); break;
                case Order::Kind::leave: leave(order); break;
                case Order::Kind::say: world_.say(order.text.shown()); break;
                case Order::Kind::finish: finish(order.code, order.text); break;
            }
    }

    void check(int64_t other) {
        if (!restarted_ || other == 0) return take(supervisor_->checked(other, Fitness::fit, "", now()));
        checking_.insert(other);
        mail_->order({.what = "check", .node = other});
    }

    void start(const Order& order) {
        if (server_) server_->close();
        server_ = nullptr;
        Generation& generation = world_.new_generation();
        try {
            generation.number = world_.mint(order.generation - 1);
            if (restarted_ && generation.number != order.generation)
                throw Error(fmt::format("generation {} of the job's folder is taken", generation.number - 1),
                            Fault::failed);
        } catch (const Error& error) {
            return finish(1, error.what());
        }
        supervisor_->minted(generation.number);
        if (world_.nodes * world_.per_node > 1) generation.service = server_ = &world_.serve(*this, generation.number);
        running_.insert(order.nodes.begin(), order.nodes.end());
        if (mail_) {
            started_in_ = meetings_;
            std::vector<std::string> selves;
            for (const int64_t one : order.nodes) selves.push_back(selves_[one]);
            mail_->order({.what = "start",
                          .generation = generation.number,
                          .slots = order.nodes,
                          .selves = selves,
                          .ranks = &generation});
        }
        const auto mine = std::find(order.nodes.begin(), order.nodes.end(), 0);
        ranks.start(generation, (mine - order.nodes.begin()) * world_.per_node, world_.per_node);
        restarted_ = true;
    }

    /// A generation's end is among what was seen of it.
    void finish(int code, const Message& why) {
        world_.say(why.shown());
        const auto is = [&](const Loss& one) {
            return why.shown().starts_with(sentence_of(one).shown()) || why.shown() == one.text.shown();
        };
        auto at = std::find_if(seen_.begin(), seen_.end(), is);
        if (at == seen_.end() && asked_)  // the text says then which node was asked
            at = std::find_if(seen_.begin(), seen_.end(), [](const Loss& one) { return one.cause == Cause::stopped; });
        if (code == 0) world_.generation_ended("done");
        if (code != 0 && at != seen_.end()) world_.generation_ended(text_of_end(*at));
        code_ = code;
        finish_by_ = world_.net.now() + world_.silence / 2;
        last_ = {.what = "finish", .code = code, .why = why};
        if (mail_) mail_->order(last_);
        if (!mail_) world_.over(*this, code_);
    }

    /// Returns when the others have taken the last order.
    void say_last() {
        const Loss lost = mail_->loss();
        while (const auto note = mail_->next()) {
            if (note->what == "here" && !lost) there_.insert(note->node);
            if (note->what == "here" && !lost) awaited_.erase(note->node);
            if (note->what == "finished") there_.erase(note->node);
        }
        if (lost) {
            there_.erase(lost.node);
            awaited_.erase(lost.node);
            for (const int64_t other : there_) awaited_[other] = world_.net.now() + world_.silence / 2;
            there_.clear();
            meet();
            mail_->order(last_);
        }
        if (world_.net.now() < *finish_by_ && (!there_.empty() || !awaited_.empty())) return;
        mail_->leave();
        mail_.reset();
        world_.over(*this, code_);
    }

    std::optional<Supervisor> supervisor_;
    Service *server_ = nullptr, *meeting_ = nullptr;
    std::unique_ptr<Mail> mail_;
    int64_t meetings_ = 0, started_in_ = 0, told_ = 0;
    std::set<int64_t> there_, running_, checking_;
    std::map<int64_t, LinkTime> awaited_;
    std::map<int64_t, std::string> selves_;
    std::vector<Loss> seen_;  ///< of this generation
    std::optional<LinkTime> finish_by_;
    Note last_;
    bool restarted_ = false, asked_ = false;
    int code_ = 0;
};

/// Another node's (cli/supervise: Follower).
class Follower : public Launcher {
public:
    using Launcher::Launcher;

    void turn() override {
        if (finished_) return;
        if (parting_) return part();
        if (!mail_ || !here_) return meet();
        while (const auto order = mail_->next()) {
            const bool leaves = order->what == "leave" && order->self == process.nonce;
            if (order->what == "finish" || leaves) return finish(*order);
            obey(*order);
        }
        if (const auto how = ranks.look()) {
            ended_ = how;
            report("ended");
        }
        if (mail_->loss() || mail_->link->down()) begin_parting();
    }
    void asked(bool interrupts) override {
        if (ranks.running()) ranks.asked(interrupts);
        asked_ = true;
        if (mail_ && here_) report("signal");
    }
    /// As a member of the ranks' rendezvous for that long (tell_gone).
    bool gone(const Loss& how) override {
        JoinOptions options = place_of(world_.job(generation_->number, process));
        options.rank = -1 - slot_;
        options.world = world_.nodes * world_.per_node;
        Link& link = world_.net.link(process, options);
        link.heard = [&link, how, said = false]() mutable {
            if (!link.member.joined() || std::exchange(said, true)) return;
            link.member.gone(how);
            link.member.request("leave", "", "");
        };
        link.connect(*generation_->service);
        return true;
    }

private:
    LinkTime now() const { return world_.net.now(); }

    void meet() {
        if (!until_) until_ = now() + seconds(world_.drill.of("wait", 300));
        Launcher* first = world_.launcher_of(0);
        if (mail_ && mail_->link->member.joined()) {
            const Loss loss = mail_->loss();
            here_ = !loss;
            if (here_) until_.reset();
            if (here_) return report("here");
            if (ended_by_node_0(loss)) return world_.over(*this, loss.code);
            mail_.reset();
        } else if (mail_ && mail_->link->refused()) {
            if (mail_->link->refused()->fault() != Fault::peer) return world_.over(*this, 2);
            mail_.reset();
        } else if (mail_ && (mail_->link->down() || now() > tried_ + seconds(5))) {
            mail_.reset();
        }
        if (until_ && now() > *until_) {
            world_.say(
                fmt::format("node 0 is missing: its launcher did not answer for {} s", world_.drill.of("wait", 300)));
            return world_.over(*this, 75);
        }
        if (mail_ || !first || !first->meeting() || world_.net.apart(0, node)) return;
        mail_ = std::make_unique<Mail>(world_, process, node, *first->meeting(), "order");
        tried_ = now();
    }

    void report(const std::string& what, Fitness fitness = Fitness::fit) {
        const int64_t of = generation_ ? generation_->number : 0;
        mail_->report({.what = what,
                       .self = process.nonce,
                       .node = node,
                       .generation = of,
                       .loss = ended_,
                       .fitness = fitness,
                       .why = fitness == Fitness::fit ? "" : "no device \"cpu\"",
                       .asked = asked_});
    }

    /// Ends once its last report has gone out.
    void finish(const Note& order) {
        finished_ = true;
        world_.say(order.why.shown());
        if (order.what == "finish") report("finished");
        const bool leaves = order.what == "leave";
        world_.net.at(milliseconds(leaves ? 0 : 500), [this, leaves, code = order.code] {
            if (!process.alive) return;
            mail_->leave();
            mail_->link->send();
            leaves ? world_.left(*this, code) : world_.over(*this, code);
        });
    }

    void obey(const Note& order) {
        if (order.what == "check" && order.node == node) {
            const Fitness found = world_.unfit.count(node) > 0 ? Fitness::wrong : Fitness::fit;
            world_.net.at(world_.net.between(100'000, 900'000), [this, found] {
                if (process.runs() && mail_ && here_) report("checked", found);
            });
        } else if (order.what == "stop" && ranks.running()) {
            ranks.asked(order.code == 130);
        } else if (order.what == "end" && ranks.running()) {
            ranks.end(HostRanks::grace);
        } else if (order.what == "start") {
            const auto mine = std::find(order.slots.begin(), order.slots.end(), node);
            if (mine == order.slots.end() || ranks.running()) return;
            slot_ = mine - order.slots.begin();
            if (order.selves.at(static_cast<size_t>(slot_)) != process.nonce) return;
            generation_ = order.ranks;
            ended_.reset();
            ranks.start(*generation_, slot_ * world_.per_node, world_.per_node);
        }
    }

    void begin_parting() {
        const Loss lost = mail_->loss();
        parting_ = true;
        if (ended_by_node_0(lost)) ends_with_ = lost.code;
        if (ranks.running()) ranks.end(HostRanks::grace);
    }

    void part() {
        if (ranks.running()) ended_ = ranks.look();
        if (ranks.running()) return;
        if (ended_ && ended_->cause != Cause::done) ended_->hearsay = true;
        mail_.reset();
        parting_ = here_ = false;
        if (ends_with_) world_.over(*this, *ends_with_);
    }

    std::unique_ptr<Mail> mail_;
    Generation* generation_ = nullptr;
    int64_t slot_ = 0;
    std::optional<Loss> ended_;
    std::optional<LinkTime> until_;
    LinkTime tried_{0};
    std::optional<int> ends_with_;
    bool here_ = false, parting_ = false, finished_ = false, asked_ = false;
};

}  // namespace

std::unique_ptr<Launcher> make_launcher(DrillWorld& world, int64_t node) {
    if (world.drill.of("restarts", 0) == 0) return std::make_unique<Plain>(world, node);
    if (node == 0) return std::make_unique<Conductor>(world, node);
    return std::make_unique<Follower>(world, node);
}

}  // namespace orrery::test
