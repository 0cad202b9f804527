// Policies x left-out saves x clock jumps: which checkpoints are there in the end, played without a session: the save
// schedule and the retirement as a training has them, virtual time, and what must be there by counting over the log.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/json.h"
#include "folders.h"
#include "orrery/config.h"
#include "orrery/registry.h"
#include "plugin/loader.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/retain/retire.h"
#include "run/checkpoint/save/save_schedule.h"

namespace orrery {
namespace {

constexpr double hour = 3600, day = 24 * hour;
constexpr double morning = 1'700'006'400;  // 2023-11-15, 00:00 UTC

/// Committed steps, by their manifests alone.
struct Shelf final : CheckpointStore {
    std::map<int64_t, std::string> manifests, marks, pins;

    [[noreturn]] static void unused() { throw Error("not of this test"); }
    void put(int64_t, std::string_view, std::span<const std::byte>) override {}
    void flush(int64_t) override {}
    void commit(int64_t step, std::string_view manifest) override {
        manifests[step] = manifest;
        marks.erase(step);
        pins.erase(step);
    }
    void discard(int64_t) override { unused(); }
    std::vector<int64_t> steps() override {
        std::vector<int64_t> there;
        for (const auto& [step, manifest] : manifests) there.insert(there.begin(), step);
        return there;
    }
    std::string manifest(int64_t step) override { return manifests.at(step); }
    int64_t size(int64_t, std::string_view) override { return -1; }
    void get(int64_t, std::string_view, int64_t, std::span<std::byte>) override { unused(); }
    void remove(int64_t step) override { manifests.erase(step); }
    std::string set_aside(int64_t) override { return ""; }
    std::string note(int64_t step, StepNote which) override {
        return (which == StepNote::suspect ? marks : pins)[step];
    }
    void set_note(int64_t step, StepNote which, std::string_view text) override {
        (which == StepNote::suspect ? marks : pins)[step] = text;
    }
    std::string place() const override { return "shelf"; }
};

/// From `at` (true seconds since the begin) on the wall clock is `ahead` seconds off.
struct Jump {
    double at, ahead;
};

struct Clock {
    std::string name;
    std::vector<Jump> jumps;
};

struct World {
    RetentionPolicy policy;
    Clock clock;
    bool automatic = false;
    int64_t steps = 240, every = 5, evaluate_every = 10;
    double step_s = 300, save_s = 10;
    int64_t marks = 0;     ///< every so many saves one turns out to be suspect; 0: none
    int64_t restarts = 0;  ///< every so many saves the job is started again, without the save under way; 0: never

    std::string text() const {
        return fmt::format("{}; {}, steps of {} s, saves of {} s, clock {}, marks {}, restarts {}", policy.text(),
                           automatic ? "auto" : "every 5", step_s, save_s, clock.name, marks, restarts);
    }
};

double evaluation_of(int64_t step) { return 2 + std::sin(static_cast<double>(step) * 0.7); }

struct Save {
    int64_t step;
    double at;  ///< by the wall clock
};

/// By the wall clock: when a step was due, and when it could be saved.
struct Due {
    int64_t step;
    double at, could;
};

/// What happened, and what is left.
struct Played {
    std::vector<Save> saves = {};  ///< committed
    std::set<int64_t> due = {}, marked = {};
    std::vector<Due> due_at = {};
    int64_t left_out = 0, waited = 0;
    double end = 0;  ///< by the wall clock, when the last was committed
    std::set<int64_t> there = {};
    bool pinned = false;  ///< step 35
};

/// The store of a world that begins (no store before) or is started again.
using OpenStore = std::function<std::unique_ptr<CheckpointStore>(std::unique_ptr<CheckpointStore> before)>;

std::unique_ptr<CheckpointStore> on_shelf(std::unique_ptr<CheckpointStore> before) {
    return before ? std::move(before) : std::make_unique<Shelf>();
}

class Player {
public:
    explicit Player(const World& world, OpenStore open = on_shelf) : world_(world), open_(std::move(open)) {}

    Played play() {
        start();
        for (int64_t step = 1; step <= world_.steps; ++step) {
            now_ += world_.step_s;
            if (saving_ && now_ >= saving_->second) commit();
            if (!saving_ && schedule_->asks_next()) schedule_->set_next(last_ + interval());
            if (restart(step)) {
                step = resume();
                continue;
            }
            const bool evaluated = step % world_.evaluate_every == 0;
            if (!schedule_->due(step, saving_.has_value(), timed_)) {
                timed_ = true;
                continue;
            }
            played_.due.insert(step);
            played_.due_at.push_back({step, wall(now_), wall(saving_ ? std::max(now_, saving_->second) : now_)});
            if (saving_ && step != world_.steps) {
                const DueStep due{step, evaluated, seconds(wall(now_)), seconds(begun_at_)};
                if (!schedule_->waits(due)) {
                    schedule_->left_out();
                    ++played_.left_out;
                    continue;
                }
                ++played_.waited;
            }
            if (saving_) wait();
            begin(step, evaluated);
        }
        if (saving_) wait();
        if (last_ != world_.steps) {  // the save at the end, of whatever step that is
            begin(world_.steps, world_.steps % world_.evaluate_every == 0);
            wait();
        }
        played_.end = wall(now_);
        for (const int64_t step : store_->steps()) played_.there.insert(step);
        return std::move(played_);
    }

private:
    static int64_t seconds(double time) { return static_cast<int64_t>(std::floor(time)); }

    double wall(double now) const {
        double ahead = 0;
        for (const Jump& jump : world_.clock.jumps)
            if (now >= jump.at) ahead = jump.ahead;
        return morning + now + ahead;
    }

    int64_t interval() const {
        return std::max<int64_t>(7, static_cast<int64_t>(std::ceil(world_.save_s / world_.step_s)));
    }

    void start() {
        TrainOptions options;
        options.steps = world_.steps;
        options.checkpoint_every = world_.automatic ? 0 : world_.every;
        options.checkpoint_mtbf_s = world_.automatic ? 1e6 : 0;
        schedule_.emplace(options, world_.policy);
        store_ = open_(std::move(store_));
        retirement_.emplace(*store_, world_.policy, [this] { return wall(now_); });
        if (world_.automatic) schedule_->set_next(last_ + 10);
        timed_ = false;
    }

    /// The first time that so many saves were made, while another is under way where one lasts.
    bool restart(int64_t step) {
        const auto saved = static_cast<int64_t>(played_.saves.size());
        if (world_.restarts == 0 || saved < next_restart_ || step == world_.steps) return false;
        next_restart_ = saved + world_.restarts;
        return true;
    }

    int64_t resume() {
        saving_.reset();
        last_ = 0;
        start();
        for (const int64_t step : store_->steps()) {
            if (!store_->mark_of(step).empty()) continue;
            last_ = std::max(last_, step);
            good_.insert(step);
        }
        if (world_.automatic) schedule_->set_next(last_ + 10);
        retirement_->verified(last_);
        for (const int64_t step : good_) retirement_->verified(step);  // as reading them would say
        return last_;
    }

    void begin(int64_t step, bool evaluated) {
        Manifest manifest;
        manifest.step = step;
        manifest.piece_bytes = 1;
        Json host = {{"time", wall(now_)}};
        if (evaluated) host["eval_loss"] = evaluation_of(step);
        manifest.host = host.dump();
        text_ = manifest.text();
        schedule_->began(timed_);
        timed_ = true;
        begun_at_ = wall(now_);
        saving_.emplace(step, now_ + world_.save_s);
        last_ = step;
    }

    void wait() {
        now_ = std::max(now_, saving_->second);
        commit();
    }

    void commit() {
        const int64_t step = saving_->first;
        saving_.reset();
        if (!committed_.insert(step).second) store_->set_aside(step);  // made again after a restart
        store_->put(step, "rank-00000", std::as_bytes(std::span(text_)));
        store_->flush(step);
        store_->commit(step, text_);
        played_.saves.push_back({step, begun_at_});
        played_.marked.erase(step);
        if (step == 35) store_->pin(step, "for the paper"), played_.pinned = true;
        retirement_->verified(step);
        retirement_->retire();
        if (world_.marks == 0 || ++since_mark_ < world_.marks || step == world_.steps) return;
        since_mark_ = 0;
        store_->mark(step, "the loss of the next step is inf");
        played_.marked.insert(step);
    }

    const World& world_;
    Played played_;
    OpenStore open_;
    std::unique_ptr<CheckpointStore> store_;
    std::optional<SaveSchedule> schedule_;
    std::optional<Retirement> retirement_;
    std::optional<std::pair<int64_t, double>> saving_;  ///< step, and when it is committed
    std::string text_;
    std::set<int64_t> committed_, good_;
    double now_ = 0, begun_at_ = 0;
    int64_t last_ = 0, since_mark_ = 0, next_restart_ = 5;
    bool timed_ = false;
};

/// What is wrong with what is left, by counting over the log; "": nothing.
class Referee {
public:
    Referee(const World& world, const Played& played) : world_(world), played_(played), there_(played.there) {}

    std::string verdict() {
        newest();
        for_good();
        best();
        periods(world_.policy.hourly, hour, "hour");
        periods(world_.policy.daily, day, "day");
        marks();
        left_out();
        number();
        return wrong_;
    }

private:
    bool valid(int64_t step) const { return played_.marked.count(step) == 0; }
    void need(int64_t step, const std::string& why) {
        if (there_.count(step) == 0) wrong_ += fmt::format("step {} is gone: {}\n", step, why);
    }

    void newest() {
        std::set<int64_t> steps;
        for (const Save& save : played_.saves)
            if (valid(save.step)) steps.insert(save.step);
        int64_t count = 0;
        for (auto step = steps.rbegin(); step != steps.rend() && count < world_.policy.newest; ++step, ++count)
            need(*step, "one of the newest");
        need(world_.steps, "the last");
        if (played_.pinned) need(35, "pinned");
    }

    void for_good() {
        const int64_t every = world_.policy.every_steps;
        for (int64_t step = every; every > 0 && step <= world_.steps; step += every)
            if (valid(step)) need(step, fmt::format("{} divides it", every));
    }

    /// Of all that were due, saved or not: left out is none that could be kept. A step that turned out to be suspect
    /// had its place for a while.
    void best() {
        if (world_.policy.best == 0 || world_.marks > 0 || world_.automatic) return;
        std::vector<std::pair<double, int64_t>> evaluated;
        for (int64_t step = world_.every; step <= world_.steps; step += world_.every)
            if (step % world_.evaluate_every == 0) evaluated.push_back({evaluation_of(step), -step});
        std::sort(evaluated.begin(), evaluated.end());
        for (int64_t i = 0; i < world_.policy.best; ++i) need(-evaluated[static_cast<size_t>(i)].second, "a best one");
    }

    static int64_t period(double time, double length) { return static_cast<int64_t>(std::floor(time / length)); }

    /// Saves since the clock was last right hold their places, whatever was saved before it was.
    void periods(int64_t most, double length, const char* name) {
        if (most == 0 || world_.marks > 0 || world_.restarts > 0) return;
        std::vector<Save> since;  // the newest first
        double earliest = played_.end;
        for (auto save = played_.saves.rbegin(); save != played_.saves.rend() && save->at <= earliest; ++save) {
            since.push_back(*save);
            earliest = save->at;
        }
        std::set<int64_t> periods;
        for (const Save& save : since) periods.insert(period(save.at, length));
        for (const int64_t step : there_) {
            const double at = time_of(step);
            if (at <= played_.end) periods.insert(period(at, length));
        }
        while (static_cast<int64_t>(periods.size()) > most) periods.erase(periods.begin());
        for (const Save& save : since)
            if (periods.erase(period(save.at, length)) > 0) need(save.step, fmt::format("the newest of its {}", name));
        if (world_.clock.jumps.empty() && !world_.automatic) covered(length, name);
    }

    /// A period in which a step was due and could be saved has a save.
    void covered(double length, const char* name) {
        std::set<int64_t> saved;
        for (const Save& save : played_.saves) saved.insert(period(save.at, length));
        for (const Due& due : played_.due_at)
            if (period(due.could, length) == period(due.at, length) && saved.count(period(due.at, length)) == 0)
                wrong_ += fmt::format("no step of the {} of step {} was saved\n", name, due.step);
    }

    double time_of(int64_t step) const {
        double at = 0;
        for (const Save& save : played_.saves)
            if (save.step == step) at = save.at;
        return at;
    }

    /// A suspect step is there until so many valid ones are after it.
    void marks() {
        for (const int64_t step : played_.marked) {
            int64_t after = 0;
            for (const int64_t other : there_) after += other > step && valid(other);
            if (step == 35 && played_.pinned) continue;
            if ((after < world_.policy.newest) != (there_.count(step) > 0))
                wrong_ += fmt::format("suspect step {}, with {} after it, is {}\n", step, after,
                                      there_.count(step) > 0 ? "there" : "gone");
        }
    }

    void left_out() {
        if (world_.automatic || world_.restarts > 0) return;
        int64_t last = 0;
        for (const Save& save : played_.saves) {
            if (save.step - last > 2 * world_.every)
                wrong_ += fmt::format("none of the steps between {} and {} was saved\n", last, save.step);
            last = save.step;
        }
    }

    void number() {
        const RetentionPolicy& policy = world_.policy;
        const int64_t good = policy.every_steps > 0 ? world_.steps / policy.every_steps : 0;
        const auto most = policy.newest + good + policy.hourly + policy.daily + policy.best + 1;
        int64_t count = 0;
        for (const int64_t step : there_) count += valid(step);
        if (count > most) wrong_ += fmt::format("{} are there, at most {} are to be kept\n", count, most);
    }

    const World& world_;
    const Played& played_;
    const std::set<int64_t>& there_;
    std::string wrong_;
};

std::vector<RetentionPolicy> policies() {
    const auto made = [](int64_t newest, int64_t every, int64_t hourly, int64_t daily, int64_t best) {
        RetentionPolicy policy(newest);
        policy.every_steps = every, policy.hourly = hourly, policy.daily = daily, policy.best = best;
        return policy;
    };
    return {made(2, 0, 0, 0, 0), made(3, 20, 0, 0, 0), made(2, 0, 0, 0, 3),  made(2, 0, 3, 0, 0),
            made(2, 0, 0, 2, 0), made(4, 0, 6, 2, 0),  made(2, 30, 0, 0, 1), made(2, 20, 4, 3, 2)};
}

std::vector<Clock> clocks() {
    return {{"right", {}},
            {"ahead 10 hours, then right", {{2 * hour, 10 * hour}, {4 * hour, 0}}},
            {"40 days ahead at first", {{0, 40 * day}, {3 * hour, 0}}},
            {"back 5 hours", {{6 * hour, -5 * hour}}},
            {"unset at first", {{0, -morning}, {2 * hour, 0}}},
            {"to and fro", {{hour, 3 * hour}, {2 * hour, -hour}, {5 * hour, 26 * hour}, {6 * hour, 0}}}};
}

/// Everything with everything.
std::vector<World> grid() {
    std::vector<World> worlds;
    for (const RetentionPolicy& policy : policies())
        for (const Clock& clock : clocks())
            for (const bool automatic : {false, true})
                for (const double step_s : {60.0, 300.0, 600.0})
                    for (const double save : {0.1, 0.7, 1.3, 2.6, 9.0})  // of the time between two that are due
                        for (const int64_t marks : {0, 3})
                            for (const int64_t restarts : {0, 11}) {
                                if (automatic && policy.best > 0) continue;  // is refused
                                World world{policy, clock, automatic};
                                world.step_s = step_s;
                                world.save_s = save * 5 * step_s;
                                world.marks = marks;
                                world.restarts = restarts;
                                worlds.push_back(world);
                            }
    return worlds;
}

World by_chance(std::mt19937& random) {
    const auto draw = [&](unsigned below) { return static_cast<int64_t>(random() % below); };
    World world;
    world.policy = RetentionPolicy(2 + draw(3));
    world.policy.every_steps = draw(2) * 5 * (1 + draw(9));
    world.policy.hourly = draw(2) * draw(9);
    world.policy.daily = draw(2) * draw(4);
    world.automatic = draw(3) == 0;
    world.policy.best = world.automatic ? 0 : draw(2) * draw(4);
    world.step_s = 1 + static_cast<double>(draw(900));
    world.save_s = static_cast<double>(draw(60)) / 5 * world.step_s;
    world.marks = draw(3) * 2;
    world.restarts = draw(3) * 5;
    world.clock.name = "by chance:";
    for (int64_t i = draw(5), at = 0; i > 0; --i) {
        at += draw(static_cast<unsigned>(60 * world.step_s) + 1);
        const Jump jump{static_cast<double>(at), static_cast<double>(draw(400'000) - 200'000)};
        world.clock.name += fmt::format(" {:+g} s from {:g} s on,", jump.ahead, jump.at);
        world.clock.jumps.push_back(jump);
    }
    return world;
}

struct Row {
    int64_t worlds = 0, due = 0, left_out = 0, waited = 0, saved = 0, there = 0;
};

/// The store posix in ORRERY_PLACE, which `ORRERY_LAYERS begin` empties; `ORRERY_LAYERS restart` makes it the lower
/// layer of a new one.
OpenStore on_disk(const Registry& registry) {
    return [&registry](std::unique_ptr<CheckpointStore> before) {
        const std::string call = std::getenv("ORRERY_LAYERS") + std::string(before ? " restart" : " begin");
        before.reset();
        if (std::system(call.c_str()) != 0) throw Error("failed: " + call);
        Config config("store.posix");
        return registry.store("posix", {})(config, std::getenv("ORRERY_PLACE"));
    };
}

}  // namespace

TEST_CASE("what is there in the end, on a disk: tests/sweeps/retained.sh", "[.on_disk]") {
    REQUIRE(std::getenv("ORRERY_LAYERS"));
    REQUIRE(std::getenv("ORRERY_PLACE"));
    Registry registry;
    Loader({in_build("plugins")}).load("store", "posix", registry, {});
    const std::vector<World> worlds = grid();
    const size_t stride = std::strtoul(std::getenv("ORRERY_STRIDE"), nullptr, 10);
    size_t played_worlds = 0, saved = 0, left_out = 0, restarted = 0;
    for (size_t i = 0; i < worlds.size(); i += stride) {
        const Played played = Player(worlds[i], on_disk(registry)).play();
        const std::string said = Referee(worlds[i], played).verdict();
        if (!said.empty()) FAIL_CHECK(worlds[i].text() << "\n" << said);
        ++played_worlds, saved += played.saves.size(), left_out += static_cast<size_t>(played.left_out);
        restarted += static_cast<size_t>(worlds[i].restarts > 0);
    }
    std::printf("%zu worlds, %zu of them with restarts: %zu steps saved, %zu left out, all as they must be\n",
                played_worlds, restarted, saved, left_out);
}

TEST_CASE("what is there in the end: policies, left-out saves, clocks that jump", "[retention][slow]") {
    const char* table = std::getenv("ORRERY_LONG");
    std::vector<World> worlds = grid();
    const size_t of_grid = worlds.size();
    std::mt19937 random(27);
    for (int i = 0; i < 20'000; ++i) worlds.push_back(by_chance(random));
    std::map<std::string, Row> rows;
    int64_t wrong = 0, left_out = 0, waited = 0;
    for (size_t i = 0; i < worlds.size(); i += table ? 1 : i < of_grid ? 11 : 61) {
        const World& world = worlds[i];
        Played played = Player(world).play();
        const std::string said = Referee(world, played).verdict();
        if (!said.empty() && ++wrong <= 3) FAIL_CHECK(world.text() << "\n" << said);
        Row& row = rows[i < of_grid ? world.policy.text() + (world.automatic ? "; auto" : "") : "by chance"];
        ++row.worlds;
        row.due += static_cast<int64_t>(played.due_at.size());
        row.left_out += played.left_out, row.waited += played.waited;
        row.saved += static_cast<int64_t>(played.saves.size());
        row.there += static_cast<int64_t>(played.there.size());
        left_out += played.left_out, waited += played.waited;
    }
    CHECK(wrong == 0);
    CHECK(left_out > 0);
    CHECK(waited > 0);
    if (!table) return;
    std::ofstream out(table);
    out << "what is there in the end: policies x left-out saves x clocks that jump x marks x restarts\n"
        << fmt::format("{:>7} {:>9} {:>9} {:>9} {:>9} {:>7}  {}\n", "worlds", "due", "left out", "waited", "saved",
                       "there", "policy");
    for (const auto& [name, row] : rows)
        out << fmt::format("{:>7} {:>9} {:>9} {:>9} {:>9} {:>7}  {}\n", row.worlds, row.due, row.left_out, row.waited,
                           row.saved, row.there, name);
    out << fmt::format("{} not as they must be\n", wrong);
}

}  // namespace orrery
