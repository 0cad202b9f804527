#include "drill_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "base/text.h"
#include "drill_launchers.h"
#include "run/control/rendezvous.h"
#include "run/control/standing.h"

namespace orrery::test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = CommitAction::Kind;

namespace {

constexpr int64_t save_every = 10;
constexpr int64_t steps_after = 15;  // the last event

std::vector<std::string> columns(std::string_view text, char separator) {
    std::vector<std::string> parts = split(text, separator);
    for (std::string& part : parts) part = std::string(trim(part));
    return parts;
}

std::vector<std::string> words(std::string_view text) {
    std::vector<std::string> all = columns(text, ' ');
    std::erase(all, "");
    return all;
}

Drill::Event event_of(const std::string& text) {
    const std::vector<std::string> all = words(text);
    Drill::Event event{all.at(0), all.at(1), all.at(2)};
    if (all.size() > 3) event.number = std::stoll(all[3]);
    return event;
}

bool is_number(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }
bool in_rank(std::string_view when) { return when == "first" || when == "each" || when == "end"; }

}  // namespace

std::vector<Drill> read_drills(std::string_view text) {
    std::vector<Drill> drills;
    for (const std::string& line : split(text, '\n')) {
        if (line.empty() || line[0] == '#') continue;
        const std::vector<std::string> all = columns(line, '|');
        Drill drill{.name = all.at(0), .ends = words(all.at(3)), .code = std::stoi(all.at(4))};
        for (const std::string& word : words(all.at(1)))
            drill.job[word.substr(0, word.find('='))] = std::stoll(word.substr(word.find('=') + 1));
        for (const std::string& event : columns(all.at(2), ';')) drill.events.push_back(event_of(event));
        drill.says = all.at(5);
        drill.after = all.at(6);
        drills.push_back(std::move(drill));
    }
    return drills;
}

DrillWorld::DrillWorld(const Drill& drill, uint64_t seed)
    : net(seed),
      drill(drill),
      nodes(drill.of("nodes", 1)),
      spares(drill.of("spares", 0)),
      per_node(drill.of("ranks", 2) / nodes),
      silence(seconds(drill.of("silence", 10))) {
    steps_ = steps_after;
    for (const Drill::Event& event : drill.events)
        if (is_number(event.when)) steps_ = std::max<int64_t>(steps_, std::stoll(event.when) + steps_after);
    hooked_ = std::none_of(drill.events.begin(), drill.events.end(), [](const auto& e) { return e.when == "first"; });
    for (int64_t node = 0; node < nodes + spares; ++node)
        net.at(net.between(0, 300'000), [this, node] { begin_node(node); });
    arm();
}

DrillWorld::~DrillWorld() = default;

void DrillWorld::must(bool holds, const std::string& what) {
    if (!holds) outcome_.broken.push_back(what);
}

Outcome DrillWorld::play() {
    const auto all_over = [this] { return here_.empty() && !launchers_.empty() && next_event_ == drill.events.size(); };
    while (net.now() < seconds(400) && !all_over() && net.next()) {
    }
    must(here_.empty(), "a launcher waits for ever");
    must(next_event_ == drill.events.size(), "what was to be done was not");
    must(drill.after != "same" || (best_ == steps_ && newest() == steps_), "not all steps were done and saved");
    if (drill.after == "resumes" && outcome_.broken.empty()) {
        const Outcome first = outcome_;
        resumes_ = true;
        for (int64_t node = 0; node < nodes + spares; ++node) begin_node(node);
        while (net.now() < seconds(800) && !here_.empty() && net.next()) {
        }
        must(outcome_.codes[0] == 0 && best_ == steps_ && newest() == steps_, "it does not resume");
        outcome_.ends = first.ends;
        outcome_.codes = first.codes;
    }
    outcome_.steps = best_;
    return outcome_;
}

// Events.

void DrillWorld::begin_node(int64_t node) {
    must(here_.count(node) == 0, "a launcher is started twice");
    here_[node] = launchers_.emplace_back(make_launcher(*this, node)).get();
    const auto turn = [this, one = here_[node]](const auto& again) -> void {
        if (!one->process.runs()) return;
        one->turn();
        if (one->process.alive) net.at(net.between(50'000, 100'000), [again] { again(again); });
    };
    turn(turn);
}

Launcher* DrillWorld::launcher_of(int64_t node) {
    const auto at = here_.find(node);
    return at == here_.end() ? nullptr : at->second;
}

void DrillWorld::over(Launcher& launcher, int code) {
    outcome_.codes[launcher.node] = code;
    must(code != 75 || net.now() - struck_ >= seconds(drill.of("wait", 0)), "it has not waited for the missing node");
    here_.erase(launcher.node);
    net.die(launcher.process);
}

void DrillWorld::left(Launcher& launcher, int code) {
    must(code == 75 && drained_.erase(launcher.node) == 1, "a node leaves that was not asked to");
    must(launcher.ranks.ranks().empty(), "a node leaves its ranks");
    here_.erase(launcher.node);
    net.die(launcher.process);
    if (drained_.empty()) look_for_event("left");
}

int64_t DrillWorld::mint(int64_t after) {
    if (moved >= 0)
        throw Error(fmt::format("checkpoints no longer has generation {} of this job: it was removed, moved away or "
                                "unmounted",
                                moved),
                    Fault::failed);
    return claimed = std::max(claimed, after) + 1;
}

/// The next event comes by itself, or when the job has come so far.
void DrillWorld::arm() {
    while (next_event_ < drill.events.size() && in_rank(drill.events[next_event_].when)) ++next_event_;
    if (next_event_ < drill.events.size() && drill.events[next_event_].when == "then") look_for_event("then");
}

void DrillWorld::look_for_event(std::string_view now) {
    if (next_event_ == drill.events.size() || resumes_) return;
    const Drill::Event& event = drill.events[next_event_];
    const bool due = is_number(event.when) ? is_number(now) && std::stoll(std::string(now)) >= std::stoll(event.when)
                                           : event.when == now;
    if (!due) return;
    ++next_event_;
    const int64_t most = event.when == "start" ? 400'000 : event.when == "saving" ? 20'000 : 2000;
    // A program takes so long to start; and one that is to be killed waits for the disk then.
    const milliseconds later(event.what == "begin" ? 300 : event.what == "thaw" ? 1000 : 0);
    net.at(net.between(0, most) + later, [this, &event] {
        do_event(event);
        arm();
    });
}

void DrillWorld::do_event(const Drill::Event& event) {
    const auto all = [&](const auto& what) {
        for (Rank* one : generations_.back().ranks)
            if (event.whom == "ranks" || one->number == event.number) what(*one);
    };
    const bool of_launcher = event.whom == "launcher" || event.whom == "node";
    Launcher* launcher = launcher_of(event.whom == "node" ? event.number : 0);
    struck(event.what);
    if (event.what == "kill" && of_launcher) {
        here_.erase(event.number);
        drained_.erase(event.number);
        net.die(launcher->process);
        for (Rank* one : launcher->ranks.ranks()) kill(*one);
    } else if (event.what == "kill") {
        all([&](Rank& one) { kill(one); });
    } else if (event.what == "stop") {
        all([&](Rank& one) { one.process.stopped = true; });
    } else if (event.what == "mistake") {
        const Error differs(
            "the configuration differs between rank 1 on host n1 and rank 0 on host n0:\n"
            "  checkpoint.async: false, rank 0 has true",
            Fault::usage);
        all([&](Rank& one) { fail(one, differs, "setup", {}); });
    } else if (event.what == "begin") {
        begin_node(event.number);
    } else if (event.what == "break") {
        unfit.insert(event.number);
    } else if (event.what == "cut") {
        net.cut(event.number);
    } else if (event.what == "heal") {
        net.heal(event.number);
    } else if (event.what == "freeze" || event.what == "thaw") {
        frozen_ = event.what == "freeze";
    } else if (event.what == "take") {
        claimed = std::max(claimed, event.number);
    } else if (event.what == "move") {
        moved = claimed;
    } else if (of_launcher) {  // TERM, INT, USR1
        if (drill.drains() && event.whom == "node" && event.number > 0) drained_.insert(event.number);
        launcher->asked(event.what == "INT");
    } else {
        all([&](Rank& one) { signal(one); });
    }
}

/// A dead rank is noticed at once, a silent one after its time; then the other ranks have 1.5 s to end.
void DrillWorld::struck(std::string_view by) {
    struck_ = net.now();
    const bool silent = by == "stop" || by == "cut";
    const seconds bound(bound_s());
    if (silent || by == "kill")
        ends_by_ = net.now() + seconds(3) + (silent ? std::min<LinkTime>(silence, bound) : LinkTime(0));
}

void DrillWorld::host_ended() {
    if (const auto by = std::exchange(ends_by_, std::nullopt)) must(net.now() <= *by, "it took too long");
}

/// Carries out the rank's own event of that moment, if the row has one; true where it ends the rank.
bool DrillWorld::hook(Rank& rank, std::string_view when) {
    for (const Drill::Event& event : drill.events) {
        const int64_t whom = event.whom == "turns" ? rank.generation.number % 2 : event.number;
        if (event.when != when || whom != rank.number || resumes_) continue;
        if (when == "first" && std::exchange(hooked_, true)) continue;
        struck(event.what);
        if (event.what == "mistake")
            return fail(rank, Error("a mistake of the script", Fault::usage), "script", {}), true;
        if (event.what == "leave") return exit(rank, 0, false, std::nullopt), true;
        if (event.what == "stop") return rank.process.stopped = true;
        if (event.what == "starve") rank.starved = true;
        return kill(rank), true;
    }
    return false;
}

// Ranks.

Job DrillWorld::job(int64_t generation, const Process& process) const {
    Job job;
    job.id = drill.name;
    job.token = "a secret of the test's";
    job.generation = generation;
    job.nonce = process.nonce;
    job.silence = silence;
    job.ranks = nodes * per_node;
    return job;
}

Service& DrillWorld::serve(Launcher& launcher, int64_t generation) {
    ServeOptions options = options_of(job(generation, launcher.process), per_node);
    options.explain = [](int64_t late, const std::vector<ServeOptions::Standing>& all) {
        std::vector<Standing> told;
        for (const auto& one : all)
            told.push_back({one.rank, Position::decode(one.position), one.silent_s, one.process});
        return explain_wait(late, told);
    };
    return net.serve(launcher.process, options);
}

Rank& DrillWorld::start_rank(Generation& generation, HostRanks& host, int64_t number) {
    const int64_t node = drill.of("restarts", 0) > 0 ? number / per_node : 0;
    for (const Rank& other : ranks_)
        must(other.ended || other.number != number || other.process.node != node || other.dying,
             "a rank is started next to an older one");
    Rank& rank = ranks_.emplace_back(Rank{net.process(node), number, generation, host});
    rank.end.rank = number;
    rank.end.pid = static_cast<int>(rank.process.pid);
    generation.ranks.push_back(&rank);
    net.at(net.between(20'000, 300'000), [this, &rank] {
        if (rank.ended) return;
        if (!rank.generation.service) return begin_training(rank);
        JoinOptions options = place_of(job(rank.generation.number, rank.process));
        options.rank = rank.number;
        options.world = nodes * per_node;
        rank.link = &net.link(rank.process, options);
        rank.link->heard = [this, &rank] { heard(rank); };
        rank.link->position = [this, &rank] { return position(rank); };
        rank.link->connect(*rank.generation.service);
    });
    if (generation.ranks.size() == static_cast<size_t>(nodes * per_node)) look_for_event("start");
    return rank;
}

std::vector<int64_t> DrillWorld::others(const Rank& rank) const {
    std::vector<int64_t> all;
    for (int64_t other = 0; other < nodes * per_node; ++other)
        if (other != rank.number) all.push_back(other);
    return all;
}

void DrillWorld::heard(Rank& rank) {
    if (rank.ended || rank.blocked) return;
    if (rank.link->refused()) return fail(rank, *rank.link->refused(), "meeting", {});
    if (const Loss loss = rank.link->member.loss()) {
        if (rank.commit && !rank.commit->over()) rank.commit->give_up("a rank is lost");
        return fail(rank, Error(loss.text.shown(), Fault::peer), "step", loss);
    }
    if (rank.link->down()) return fail(rank, Error("the rendezvous is gone", Fault::peer), "meeting", {});
    if (rank.link->member.joined() && !std::exchange(rank.met, true)) {
        rank.link->member.request("set", fmt::format("here/{}", rank.number), "");
        ask(rank, "here", others(rank), [this, &rank] { begin_training(rank); });
    }
    std::erase_if(rank.asked, [&](const auto& one) {
        auto text = rank.link->member.answer(one.second);
        if (text) rank.told[one.first] = *text;
        return text.has_value();
    });
    if (rank.all_told && rank.asked.empty()) std::exchange(rank.all_told, nullptr)();
}

/// The values of key/N of those ranks, in `told`.
void DrillWorld::ask(Rank& rank, const std::string& key, const std::vector<int64_t>& of, std::function<void()> then) {
    rank.told.clear();
    for (const int64_t other : of)
        rank.asked[other] = rank.link->member.request("get", fmt::format("{}/{}", key, other), "");
    rank.all_told = std::move(then);
    rank.link->send();
}

int64_t DrillWorld::newest() const { return visible_.empty() ? 0 : visible_.rbegin()->first; }

void DrillWorld::begin_training(Rank& rank) {
    Generation& generation = rank.generation;
    if (generation.called_off) return stop(rank);
    if (generation.base < 0) {
        generation.base = newest();
        ++trainings_;
        lose_nothing();
        if (trainings_ > 1) look_for_event("again");
    }
    rank.step = rank.arrived = generation.base;
    net.at(net.between(1000, 20'000), [this, &rank] { arrive(rank); });
}

/// If all ranks of the generation before have stopped on request, their last step is the newest.
void DrillWorld::lose_nothing() {
    if (generations_.size() < 2 || resumes_) return;
    const Generation& before = generations_[generations_.size() - 2];
    const auto stopped = [](const Rank* one) { return one->end.code == 75 && one->end.signal == 0; };
    if (before.base < 0 || !std::all_of(before.ranks.begin(), before.ranks.end(), stopped)) return;
    must(newest() == before.ranks.front()->step, "a finished step was not saved, though all ranks were asked to");
}

/// Before a step, which needs all ranks.
void DrillWorld::arrive(Rank& rank) {
    Generation& generation = rank.generation;
    if (rank.ended || !rank.process.runs()) return;
    const bool asked = generation.stop_at >= 0 && rank.step >= generation.stop_at;
    const bool saved = rank.step == generation.base || rank.step % save_every == 0;
    if (asked && !saved) return save(rank);
    if (asked) return stop(rank);
    if (rank.step == steps_) return hook(rank, "end") ? void() : exit(rank, 0, true, std::nullopt);
    if (!std::exchange(rank.hooked, true) && (hook(rank, "first") || hook(rank, "each"))) return;
    rank.arrived = rank.step + 1;
    rank.waits = net.now();
    const auto there = [&](const Rank* one) { return one->process.runs() && one->arrived >= rank.arrived; };
    if (generation.ranks.size() < static_cast<size_t>(nodes * per_node)) return;
    if (!std::all_of(generation.ranks.begin(), generation.ranks.end(), there)) return;
    for (Rank* one : generation.ranks) net.at(net.between(1000, 15'000), [this, one] { finish_step(*one); });
}

void DrillWorld::finish_step(Rank& rank) {
    if (rank.ended || !rank.process.runs()) return;
    rank.step = rank.arrived;
    if (rank.number == 0) steps_done(rank.step);
    if (rank.step % save_every == 0 || rank.step == steps_) return save(rank);
    net.at(net.between(1000, 15'000), [this, &rank] { arrive(rank); });
}

void DrillWorld::steps_done(int64_t step) {
    best_ = std::max(best_, step);
    look_for_event(std::to_string(step));
}

std::string DrillWorld::position(const Rank& rank) const {
    Position at;
    at.steps = rank.arrived;
    if (rank.arrived == rank.step || rank.commit) return at.told();
    at.of = 2;
    at.here_s = std::chrono::duration<double>(net.now() - rank.waits).count();
    at.bound_s = static_cast<double>(bound_s());
    at.text = "all_reduce";
    for (const Rank* other : rank.generation.ranks)
        if (other != &rank) at.waits_for.push_back(other->number);
    return at.told();
}

/// All stop after the newest step that any of them has begun, or before they train.
void DrillWorld::signal(Rank& rank) {
    Generation& generation = rank.generation;
    if (rank.ended || !rank.process.runs()) return;
    if (generation.base < 0) {
        generation.called_off = true;
        return stop(rank);
    }
    if (generation.stop_at >= 0) return;
    for (const Rank* one : generation.ranks) generation.stop_at = std::max(generation.stop_at, one->arrived);
    generation.stop_at = std::max(generation.stop_at, generation.base);
}

void DrillWorld::stop(Rank& rank) { exit(rank, 75, false, loss_of(Fault::requeue, "stopped on request", "step")); }

void DrillWorld::fail(Rank& rank, const Error& error, const char* site, const Loss& heard) {
    if (rank.ended) return;
    Job own = job(rank.generation.number, rank.process);
    own.rank = rank.number;
    const Loss loss = end_by(own, error, site, heard);
    if (!heard) say(std::regex_replace(error.what(), std::regex("\n"), " "));
    if (!heard && rank.link) rank.link->member.fail(loss);
    exit(rank, error.fault() == Fault::usage ? 2 : 1, false, loss);
}

void DrillWorld::exit(Rank& rank, int code, bool done, std::optional<Loss> told) {
    if (rank.ended) return;
    rank.ended = true;
    rank.end.code = code;
    rank.end.done = done;
    rank.end.told = std::move(told);
    if (rank.link && (done || code == 75)) rank.link->member.request("leave", "", "");
    net.die(rank.process);
    net.at(net.between(0, 20'000), [this, &rank] { rank.host.reap(rank); });
}

/// One that waits for the disk goes when that answers.
void DrillWorld::kill(Rank& rank) {
    if (rank.ended) return;
    rank.dying = true;
    if (rank.blocked && frozen_) return net.at(milliseconds(50), [this, &rank] { kill(rank); });
    rank.ended = true;
    rank.end.signal = 9;
    net.die(rank.process);
    net.at(net.between(0, 20'000), [this, &rank] { rank.host.reap(rank); });
}

// Saves.

void DrillWorld::save(Rank& rank) {
    look_for_event("saving");
    rank.commit = std::make_unique<Commit>(
        Commit::Options{.step = rank.step, .rank = rank.number, .ranks = nodes * per_node, .checks = false});
    next_action(rank);
}

void DrillWorld::next_action(Rank& rank) {
    if (rank.ended || !rank.process.runs()) return;
    if (rank.commit->over()) return saved(rank);
    const CommitAction& action = rank.commit->action();
    const bool told = action.kind == Kind::to_all || action.kind == Kind::to_first || action.kind == Kind::from_first;
    if (told) return round(rank, action);
    net.at(net.between(200, 5000), [this, &rank] { work(rank); });
}

void DrillWorld::round(Rank& rank, const CommitAction& action) {
    const std::string key = fmt::format("save/{}/{}", rank.step, action.topic);
    const bool from_first = action.kind == Kind::from_first, first = rank.number == 0;
    const std::string own = action.text;
    if (rank.link && (first || !from_first))
        rank.link->member.request("set", fmt::format("{}/{}", key, rank.number), own);
    std::vector<int64_t> whom = others(rank);
    if (from_first && !first) whom = {0};
    const bool hears = from_first ? !first : action.kind == Kind::to_all || first;
    const auto then = [this, &rank, own, from_first, first, hears] {
        std::vector<std::string> all;
        rank.told[rank.number] = own;
        for (const auto& [number, text] : rank.told) all.push_back(text);
        if (from_first)
            rank.commit->told(first ? own : rank.told.at(0));
        else
            rank.commit->gathered(hears ? all : std::vector<std::string>());
        next_action(rank);
    };
    rank.told.clear();
    if (rank.link && hears) return ask(rank, key, whom, then);
    if (rank.link) rank.link->send();
    net.at(net.between(100, 1000), [this, &rank, then] {
        if (!rank.ended && rank.process.runs() && !rank.commit->over()) then();
    });
}

/// Does the current action, on a store that may not answer.
void DrillWorld::work(Rank& rank) {
    if (rank.ended || rank.dying || !rank.process.runs() || rank.commit->over()) return;
    if (frozen_ && !rank.blocked) rank.blocked = net.now();
    if (frozen_) return net.at(milliseconds(50), [this, &rank] { work(rank); });
    if (std::exchange(rank.blocked, std::nullopt) && rank.link && rank.link->member.loss()) return heard(rank);
    rank.commit->done(act(rank, rank.commit->action()));
    next_action(rank);
}

CommitAnswer DrillWorld::act(Rank& rank, const CommitAction& action) {
    const std::pair<int64_t, int64_t> key(rank.generation.number, rank.step);
    const auto there = visible_.find(rank.step);
    const bool is_there = there != visible_.end() && there->second == rank.generation.number;
    const bool writes = action.kind == Kind::make_way || action.kind == Kind::write || action.kind == Kind::publish ||
                        action.kind == Kind::retire;
    if (writes && moved >= 0) return {.problem = fmt::format("the folder has no generation {} any more", moved)};
    if (writes && claimed > rank.generation.number) return {.problem = "a newer generation has begun"};
    switch (action.kind) {
        case Kind::write: parts_[key].insert(rank.number); return {.text = "part"};
        case Kind::publish:
            must(parts_[key].size() == static_cast<size_t>(nodes * per_node),
                 "a step is visible before all have written");
            must(!is_there, "a step is visible twice");
            visible_[rank.step] = rank.generation.number;
            return {};
        case Kind::look: return {.there = is_there};
        case Kind::read_back:
            read_[key].insert(rank.number);
            return is_there ? CommitAnswer{} : CommitAnswer{.problem = "it is gone", .object = "part"};
        case Kind::retire:
            must(read_[key].size() == static_cast<size_t>(nodes * per_node),
                 "older steps go before all have read this one");
            while (visible_.size() > 2) visible_.erase(visible_.begin());
            return {};
        default: return {};
    }
}

void DrillWorld::saved(Rank& rank) {
    const CommitVerdict verdict = rank.commit->verdict();
    rank.commit.reset();
    const auto [at, first] = rank.generation.verdicts.emplace(rank.step, verdict);
    must(first || at->second == verdict, "ranks have different verdicts of a save");
    if (!verdict.kept()) return fail(rank, Error(verdict.text("checkpoint"), Fault::failed), "save", {});
    if (rank.generation.stop_at >= 0 && rank.step >= rank.generation.stop_at) return stop(rank);
    net.at(net.between(1000, 15'000), [this, &rank] { arrive(rank); });
}

}  // namespace orrery::test
