// Which checkpoints stay: by rule, against a second reading of the rules, and over random histories.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "cases.h"
#include "orrery/error.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/checkpoint/retain/retire.h"
#include "run/checkpoint/retain/room.h"
#include "run/checkpoint/save/saved_state.h"

namespace orrery {
namespace {

using State = RetainedStep::State;

constexpr int64_t today = 1'800'000'000;  ///< later than any step here, unless a test says so

std::vector<int64_t> kept(const std::vector<Verdict>& verdicts) {
    std::vector<int64_t> steps;
    for (const Verdict& verdict : verdicts)
        if (!verdict.goes) steps.push_back(verdict.step);
    return steps;
}

std::string why(const std::vector<Verdict>& verdicts, int64_t step) {
    for (const Verdict& verdict : verdicts)
        if (verdict.step == step) return verdict.why;
    return "not there";
}

RetainedStep good(int64_t step, std::optional<int64_t> time = {}, std::optional<double> evaluation = {}) {
    RetainedStep made;
    made.step = step;
    made.state = State::verified;
    made.time = time;
    made.evaluation = evaluation;
    return made;
}

std::vector<RetainedStep> history(std::mt19937& random) {
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    std::vector<RetainedStep> steps;
    std::set<int64_t> numbers;
    for (int i = draw(25); i > 0; --i) numbers.insert(10 * draw(60));
    int64_t time = 1'700'000'000;
    for (const int64_t number : numbers) {
        time += draw(5) == 0 ? -draw(90'000) : draw(9'000);
        RetainedStep& step = steps.emplace_back(good(number));
        if (draw(8) > 0) step.time = time;
        if (draw(3) > 0) step.evaluation = draw(6) * 0.5;
        if (draw(6) == 0) step.state = State::unread;
        if (draw(7) == 0) step.state = State::damaged, step.damage = "a byte";
        if (draw(9) == 0) step.suspect = "the loss of the next step";
        if (draw(9) == 0) step.pin = "for the paper";
        if (draw(12) == 0) step.changed = "has no marker";
    }
    return steps;
}

RetentionPolicy policy(std::mt19937& random) {
    RetentionPolicy policy(2 + random() % 3);
    if (random() % 2) policy.every_steps = 10 * (1 + random() % 10);
    if (random() % 2) policy.hourly = random() % 5;
    if (random() % 2) policy.daily = random() % 3;
    if (random() % 2) policy.best = random() % 4;
    return policy;
}

/// The rules once more, each by counting those that go before.
std::vector<int64_t> by_counting(const std::vector<RetainedStep>& steps, const RetentionPolicy& policy, int64_t now) {
    std::vector<int64_t> stay;
    std::vector<const RetainedStep*> sound;
    for (const RetainedStep& step : steps)
        if (step.state != State::damaged && step.suspect.empty()) sound.push_back(&step);
    for (const RetainedStep& step : steps) {
        bool stays = step.state == State::damaged || !step.pin.empty() || !step.changed.empty();
        const auto after =
            std::count_if(sound.begin(), sound.end(), [&](const auto* s) { return s->step > step.step; });
        if (!step.suspect.empty()) {
            if (stays || after < policy.newest) stay.push_back(step.step);
            continue;
        }
        stays = stays || (policy.every_steps > 0 && step.step % policy.every_steps == 0);
        int64_t newer = 0, better = 0;
        for (const RetainedStep* other : sound) {
            newer += other->step > step.step;
            if (step.evaluation && other->evaluation)
                better += *other->evaluation < *step.evaluation ||
                          (*other->evaluation == *step.evaluation && other->step > step.step);
        }
        stays = stays || newer < policy.newest || (step.evaluation && better < policy.best);
        for (const auto& [count, length] : {std::pair(policy.hourly, 3600), std::pair(policy.daily, 86400)}) {
            if (!step.time || *step.time > now) continue;
            std::set<int64_t> later;
            bool newest_of_it = true;
            for (const RetainedStep* other : sound) {
                if (!other->time || *other->time > now) continue;
                if (*other->time / length > *step.time / length) later.insert(*other->time / length);
                newest_of_it =
                    newest_of_it && !(*other->time / length == *step.time / length && other->step > step.step);
            }
            stays = stays || (newest_of_it && static_cast<int64_t>(later.size()) < count);
        }
        if (stays) stay.push_back(step.step);
    }
    std::sort(stay.rbegin(), stay.rend());
    return stay;
}

}  // namespace

TEST_CASE("each rule keeps what it says", "[retention]") {
    constexpr int64_t noon = 1'700'000'000 / 86400 * 86400 + 12 * 3600;
    std::vector<RetainedStep> steps;
    for (int64_t i = 1; i <= 12; ++i)
        steps.push_back(good(100 * i, noon + i * 1800, 10.0 - static_cast<double>(i % 5)));
    RetentionPolicy policy;
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100});
    policy.newest = 3;
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 1000});
    policy = 2;
    policy.every_steps = 500;
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 1000, 500});
    CHECK(why(retain(steps, policy, today), 500) == "500 divides it");
    CHECK(why(retain(steps, policy, today), 400) == "no rule keeps it");
    policy = 2;
    policy.hourly = 3;  // 1200 at 18:00, 1100 and 1000 at 17:30 and 17:00, 900 and 800 at 16
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 900});
    CHECK(why(retain(steps, policy, today), 1100) == "one of the newest 2; the newest of its hour");
    policy = 2;
    policy.daily = 2;
    steps[0].time = noon - 86400;
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 100});
    policy = 2;
    policy.best = 2;  // 400 and 900 have the least loss
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 900, 400});
    policy.best = 1;  // of two with one loss the newer
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{1200, 1100, 900});
    steps[5].pin = "for the paper";
    CHECK(why(retain(steps, policy, today), 600) == "pinned: for the paper");
    policy.newest = 1;
    CHECK_THROWS_WITH(retain(steps, policy, today), "the retention policy keeps 1 checkpoints, expected at least 2");
}

TEST_CASE("damaged and suspect steps count for nothing and stay", "[retention]") {
    std::vector<RetainedStep> steps = {good(10), good(20), good(30, {}, 1.0), good(40, {}, 0.5), good(50)};
    steps[4].suspect = "the loss of step 51 is nan";
    steps[3].state = State::damaged;
    steps[3].damage = "step 40, rank-0 is missing";
    RetentionPolicy policy;
    policy.best = 1;
    const auto verdicts = retain(steps, policy, today);
    CHECK(kept(verdicts) == std::vector<int64_t>{50, 40, 30, 20});
    CHECK(why(verdicts, 40) == "damaged, so it is left for inspection: step 40, rank-0 is missing");
    CHECK(why(verdicts, 50) == "suspect, so it is left for inspection: the loss of step 51 is nan");
    CHECK(why(verdicts, 30) == "one of the newest 2; the best by evaluation");
}

TEST_CASE("a suspect step goes once the newest that stay are all after it", "[retention]") {
    std::vector<RetainedStep> steps = {good(10), good(20), good(30), good(40), good(50)};
    for (RetainedStep& step : steps)
        if (step.step == 20 || step.step == 30) step.suspect = "the loss is inf";
    CHECK(kept(retain(steps, 2, today)) == std::vector<int64_t>{50, 40});
    CHECK(why(retain(steps, 2, today), 30) == "suspect, and there are 2 newer valid ones: the loss is inf");
    CHECK(kept(retain(steps, 3, today)) == std::vector<int64_t>{50, 40, 30, 20, 10});
    RetentionPolicy policy;
    policy.every_steps = 10;  // no rule is for it
    CHECK(kept(retain(steps, policy, today)) == std::vector<int64_t>{50, 40, 10});
    steps[1].pin = "for the paper";
    steps[4].state = State::damaged;
    steps[4].damage = "a byte";
    CHECK(kept(retain(steps, 2, today)) == std::vector<int64_t>{50, 40, 30, 20, 10});
    steps[4].state = State::unread;
    CHECK(kept(retain(steps, 2, today)) == std::vector<int64_t>{50, 40, 20});
    CHECK(why(retain(steps, 2, today), 20) == "pinned: for the paper");
}

TEST_CASE("a step of later than now holds the place of no hour or day", "[retention]") {
    constexpr int64_t noon = 1'700'000'000 / 86400 * 86400 + 12 * 3600;
    std::vector<RetainedStep> steps;
    for (int64_t i = 1; i <= 8; ++i) steps.push_back(good(10 * i, noon + i * 3600));
    steps[2].time = noon + 30 * 86400;  // of 30: the clock was a month ahead
    const int64_t now = noon + 8 * 3600 + 60;
    RetentionPolicy policy;
    policy.hourly = 4;
    CHECK(kept(retain(steps, policy, now)) == std::vector<int64_t>{80, 70, 60, 50});
    policy.hourly = 0, policy.daily = 1;
    CHECK(kept(retain(steps, policy, now)) == std::vector<int64_t>{80, 70});
    policy.best = 1;  // other rules keep it as any other
    steps[2].evaluation = 1;
    CHECK(kept(retain(steps, policy, now)) == std::vector<int64_t>{80, 70, 30});
    CHECK(why(retain(steps, policy, now), 30) == "the best by evaluation");
    policy.best = 0;  // and once that time has come it is of its hour
    CHECK(kept(retain(steps, policy, noon + 31 * 86400)) == std::vector<int64_t>{80, 70, 30});
    CHECK_FALSE(later_than(now, now));
    CHECK(later_than(now, now + 1));
    CHECK_FALSE(later_than(now, {}));
    CHECK_FALSE(later_than(86400, now));  // a clock that is unset takes no step's hour
}

TEST_CASE("a step that a rule would lose is not left out", "[retention]") {
    constexpr int64_t hour = 3600, at = 1'700'000'000 / 86400 * 86400 + 12 * hour;
    RetentionPolicy policy(5);
    CHECK_FALSE(needs(policy, {100, true, at, at - hour}));
    CHECK_FALSE(needs_clock(policy));
    policy.every_steps = 50;
    CHECK(needs(policy, {100, false, at, at}));
    CHECK_FALSE(needs(policy, {101, true, at, at}));
    policy = 5, policy.best = 1;
    CHECK(needs(policy, {101, true, at, at}));
    CHECK_FALSE(needs(policy, {100, false, at, at}));
    policy = 5, policy.hourly = 1;
    CHECK(needs_clock(policy));
    CHECK_FALSE(needs(policy, {100, true, at + 50 * 60, at}));             // its hour has one
    CHECK_FALSE(needs(policy, {100, true, at + hour, at + 50 * 60}));      // the next is in time
    CHECK(needs(policy, {100, true, at + hour + 20 * 60, at + 30 * 60}));  // the next is an hour later
    CHECK(needs(policy, {100, false, at + 3 * hour, at}));
    policy = 5, policy.daily = 1;
    CHECK_FALSE(needs(policy, {100, false, at + 3 * hour, at}));
    CHECK(needs(policy, {100, false, at + 24 * hour, at}));
}

TEST_CASE("what stays of random histories is what counting says", "[retention]") {
    std::mt19937 random(16);
    int64_t removed = 0, counted = 0;
    for (uint64_t round = 0; round < test::cases(20'000); ++round) {
        std::vector<RetainedStep> steps = history(random);
        const RetentionPolicy rules = policy(random);
        const int64_t now = random() % 2 ? today : 1'700'000'000 + static_cast<int64_t>(random() % 100'000);
        const auto verdicts = retain(steps, rules, now);
        const std::vector<int64_t> stay = kept(verdicts);
        REQUIRE(verdicts.size() == steps.size());
        REQUIRE(stay == by_counting(steps, rules, now));

        // The order of the steps is no matter; what stays, stays.
        std::shuffle(steps.begin(), steps.end(), random);
        REQUIRE(kept(retain(steps, rules, now)) == stay);
        std::erase_if(steps, [&](const RetainedStep& s) { return !std::count(stay.begin(), stay.end(), s.step); });
        REQUIRE(kept(retain(steps, rules, now)) == stay);

        // Two that are good stay whatever the policy says, and a wider one removes nothing more.
        int64_t sound = 0, sound_left = 0;
        for (const RetainedStep& step : steps) sound_left += step.state != State::damaged && step.suspect.empty();
        for (const Verdict& verdict : verdicts)
            sound += verdict.newest || (verdict.goes && verdict.why == "no rule keeps it");
        REQUIRE(sound_left >= std::min<int64_t>(2, sound));
        RetentionPolicy wider = rules;
        ++wider.newest, ++wider.hourly, ++wider.daily, ++wider.best;
        REQUIRE(kept(retain(steps, wider, now)) == stay);
        removed += static_cast<int64_t>(verdicts.size() - stay.size());
        counted += static_cast<int64_t>(verdicts.size());
    }
    CHECK(removed > counted / 10);  // the histories have something to remove
    CHECK(removed < counted * 9 / 10);
}

TEST_CASE("what a manifest says of its step is read with care", "[retention]") {
    const StepFacts facts = facts_of(R"({"time":1700000000.75,"eval_loss":2.5})");
    CHECK(facts.time == 1'700'000'000);
    CHECK(facts.evaluation == 2.5);
    for (const char* host : {"{}", "[]", "3", R"({"time":"now","eval_loss":null})", R"({"time":1e300})"}) {
        const StepFacts none = facts_of(host);
        CHECK_FALSE(none.time);
        CHECK_FALSE(none.evaluation);
    }
}

namespace {

/// Steps with marks, pins and some manifests, whose bytes nobody reads.
struct Shelf final : CheckpointStore {
    std::map<int64_t, std::string> marks, pins, texts;
    std::vector<int64_t> there;  ///< newest first
    std::vector<Stray> others;
    int64_t free = -1, reads = 0;
    int64_t pinned_last = -1;      ///< by somebody while it is removed
    int64_t pinned_next = -1;      ///< by somebody while another is removed
    std::set<int64_t> stuck = {};  ///< these cannot be removed

    [[noreturn]] static void unused() { throw Error("not of this test"); }
    void put(int64_t, std::string_view, std::span<const std::byte>) override { unused(); }
    void flush(int64_t) override {}
    void commit(int64_t, std::string_view) override { unused(); }
    void discard(int64_t) override {}
    std::vector<int64_t> steps() override { return there; }
    std::string manifest(int64_t step) override {
        ++reads;
        return texts.contains(step) ? texts[step] : "{}";
    }
    int64_t size(int64_t, std::string_view) override { return -1; }
    void get(int64_t, std::string_view, int64_t, std::span<std::byte>) override { unused(); }
    void remove(int64_t step) override {
        if (step == pinned_last) {
            pins[step] = "at the last moment";
            throw Error("it is pinned", Fault::failed);
        }
        if (stuck.count(step) > 0) throw Error("it is immutable", Fault::failed);
        std::erase(there, step);
        if (pinned_next > 0) pins[pinned_next] = "while others went";
    }
    std::vector<Stray> strays() override { return others; }
    std::string set_aside(int64_t) override { return ""; }
    std::string note(int64_t step, StepNote which) override {
        return (which == StepNote::suspect ? marks : pins)[step];
    }
    void set_note(int64_t step, StepNote which, std::string_view text) override {
        (which == StepNote::suspect ? marks : pins)[step] = text;
    }
    int64_t free_bytes() override { return free; }
    std::string place() const override { return "shelf"; }
};

}  // namespace

TEST_CASE("a store's steps are retired but for those that are pinned, suspect, damaged or changed", "[retention]") {
    Shelf shelf;
    shelf.there = {90, 80, 70, 60, 50, 40, 30, 20, 10};
    shelf.marks[90] = "the loss of step 91 is nan";
    shelf.pins[30] = "for the paper";
    shelf.others = {{20, "step 20 has no marker"}, {-1, "notes"}};
    Retirement retirement(shelf, 2);
    for (const int64_t step : {70, 60, 50, 40, 30, 20, 10}) retirement.verified(step);
    // 80 is nobody's to know: it is read, and no manifest.
    CHECK(kept(retirement.retire()) == std::vector<int64_t>{90, 80, 70, 60, 30, 20});
    CHECK(shelf.there == std::vector<int64_t>{90, 80, 70, 60, 30, 20});
    CHECK(shelf.reads == 1);
    retirement.retire();
    CHECK(shelf.reads == 1);  // its damage is remembered
    retirement.verified(80);  // and written anew
    CHECK(kept(retirement.retire()) == std::vector<int64_t>{90, 80, 70, 30, 20});
    CHECK(why(retirement.look(), 30) == "pinned: for the paper");
    CHECK(why(retirement.look(), 20) == "not removed: step 20 has no marker");
}

TEST_CASE("what is known of a step that was removed is not of another copy with its number", "[retention]") {
    Shelf shelf;
    const auto put = [&](int64_t step, int evaluation) {
        Manifest manifest;
        manifest.step = step;
        manifest.piece_bytes = 1;
        manifest.host = R"({"eval_loss":)" + std::to_string(evaluation) + "}";
        shelf.texts[step] = manifest.text();
    };
    put(30, 2), put(20, 2), put(10, 3);
    RetentionPolicy policy(2);
    policy.best = 1;
    Retirement retirement(shelf, policy);
    const auto removes_10 = [&] {
        shelf.there = {30, 20, 10};
        for (const int64_t step : shelf.there) retirement.verified(step);
        CHECK(kept(retirement.retire()) == std::vector<int64_t>{30, 20});
    };
    removes_10();
    put(10, 1);
    shelf.there = {30, 20, 10};
    CHECK(why(retirement.look(), 10) == "the best by evaluation");
    put(10, 3);
    removes_10();
    shelf.there = {10};
    shelf.texts.erase(10);
    CHECK(why(retirement.look(), 10).starts_with("damaged"));
}

TEST_CASE("a pin that comes while older steps are removed keeps its step", "[retention]") {
    Shelf shelf;
    shelf.there = {50, 40, 30, 20, 10};
    shelf.pinned_next = 20;
    shelf.pinned_last = 30;
    Retirement retirement(shelf, 2);
    for (const int64_t step : shelf.there) retirement.verified(step);
    const std::vector<Verdict> verdicts = retirement.retire();
    CHECK(kept(verdicts) == std::vector<int64_t>{50, 40, 30, 20});
    CHECK(shelf.there == std::vector<int64_t>{50, 40, 30, 20});
    CHECK(why(verdicts, 30) == "pinned: at the last moment");
    CHECK(why(verdicts, 20) == "pinned: while others went");
}

TEST_CASE("a step that cannot be removed is left with the reason, and keeps no other", "[retention]") {
    Shelf shelf;
    shelf.there = {50, 40, 30, 20, 10};
    shelf.stuck = {10, 30};
    Retirement retirement(shelf, 2);
    for (const int64_t step : shelf.there) retirement.verified(step);
    const std::vector<Verdict> verdicts = retirement.retire();
    CHECK(shelf.there == std::vector<int64_t>{50, 40, 30, 10});
    CHECK(kept(verdicts) == shelf.there);
    CHECK(why(verdicts, 30) == "it is immutable");
    for (const Verdict& verdict : verdicts) CHECK(verdict.failed == (shelf.stuck.count(verdict.step) > 0));
    shelf.stuck = {};
    retirement.retire();
    CHECK(shelf.there == std::vector<int64_t>{50, 40});
}

TEST_CASE("room is asked for two checkpoints and the one that is being written", "[retention]") {
    Program program;
    const auto value = [&](Role role, Shape shape) {
        Value& added = program.values.emplace_back();
        added.role = role;
        added.type = {DType::f32, std::move(shape)};
    };
    value(Role::param, {100, 10});
    value(Role::state, {1500});
    value(Role::input, {1 << 20});
    CHECK(checkpoint_bytes(program) == 10'000);
    TrainOptions options;
    options.steps = 100;
    options.checkpoint_every = 10;
    Shelf shelf;
    const Origin where{"", "run.toml", 3, 1};
    const auto message = [&](int64_t there, int64_t free) {
        shelf.free = free;
        try {
            require_room(shelf, there, program, options, where);
        } catch (const Error& problem) {
            return std::string(problem.what());
        }
        return std::string();
    };
    CHECK(message(0, 30'000).empty());
    CHECK(message(0, -1).empty());
    CHECK(message(0, 29'999) ==
          "run.toml:3:1: not enough disk space: shelf has 29.3 KiB free, but this run needs 29.3 KiB: 3 checkpoints of "
          "9.8 KiB, since 2 and the one being written exist at the same time\n  free space there, or choose another "
          "run.folder");
    CHECK(message(1, 20'000).empty());
    CHECK_FALSE(message(1, 19'999).empty());
    CHECK(message(7, 10'000).empty());
    CHECK_FALSE(message(7, 9'999).empty());
    options.checkpoint_every = 0;  // the last one alone
    CHECK(message(0, 10'000).empty());
    CHECK(message(0, 9'999).find("1 checkpoint of 9.8 KiB\n") != std::string::npos);
    options.checkpoint_final = false;
    CHECK(message(0, 0).empty());
    options.checkpoint_every = 60;
    CHECK_FALSE(message(0, 0).empty());
    options.checkpoint_every = 10;
    options.checkpoint_every = 0;
    options.checkpoint_mtbf_s = 1e6;  // whenever it pays
    CHECK(message(0, 30'000).empty());
    CHECK_FALSE(message(0, 29'999).empty());
    value(Role::param, {int64_t{1} << 60});
    CHECK(message(0, INT64_MAX).find("more than 2^63 bytes") != std::string::npos);
}

TEST_CASE("a best checkpoint needs one that is evaluated", "[retention]") {
    TrainOptions options;
    options.steps = 100;
    options.evaluate_batches = 1;
    RetentionPolicy best;
    const auto refused = [&](int64_t every, int64_t evaluated) {
        options.checkpoint_every = every;
        options.evaluate_every = evaluated;
        try {
            require_evaluated(best, options, {});
        } catch (const Error&) {
            return true;
        }
        return false;
    };
    CHECK_FALSE(refused(0, 0));
    best.best = 1;
    CHECK(refused(0, 10));
    CHECK(refused(10, 0));
    CHECK_FALSE(refused(10, 10));
    CHECK_FALSE(refused(20, 50));  // at 100
    CHECK(refused(30, 50));
    CHECK(refused(INT64_MAX, 7));
    options.checkpoint_mtbf_s = 1e6;
    CHECK(refused(10, 10));
    best.best = 0;
    CHECK_FALSE(refused(10, 10));
}

TEST_CASE("steps that are kept for good are among those that are saved", "[retention]") {
    TrainOptions options;
    options.steps = 100;
    RetentionPolicy policy;
    const auto refusal = [&](int64_t kept, int64_t every) {
        policy.every_steps = kept;
        options.checkpoint_every = every;
        try {
            require_every_kept(policy, options, {});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    for (const auto& [kept, every] : {std::pair{0, 10}, {30, 10}, {10, 10}, {7, 0}, {7, 1}})
        CHECK(refusal(kept, every) == "");
    const std::string seven = refusal(7, 10);
    for (const char* part : {"checkpoint.keep_every_steps = 7 ", "checkpoint.every_steps = 10:", "that 70 divides"})
        CHECK(seven.find(part) != std::string::npos);
    CHECK(refusal(15, 10).find("that 30 divides") != std::string::npos);
    CHECK(refusal(5, 10).find("that 10 divides") != std::string::npos);
    CHECK(refusal(INT64_MAX, 10).find("no step is both") != std::string::npos);
    options.checkpoint_mtbf_s = 1e6;  // at any step
    CHECK(refusal(7, 0) == "");
}

TEST_CASE("a step that a person asks for is there and sound", "[retention]") {
    Shelf shelf;
    shelf.there = {30, 20};
    shelf.marks[30] = "the loss of step 31 is nan";
    CHECK_NOTHROW(require_step("--from-step", 20, shelf));
    CHECK_THROWS_WITH(require_step("--from-step", 10, shelf),
                      "--from-step 10: there is no such checkpoint in shelf\n  there are 30, 20");
    CHECK_THROWS_WITH(
        require_step("--from-step", 30, shelf),
        "--from-step 30: it is marked as suspect (the loss of step 31 is nan) in shelf\n  there are 30, 20");
    shelf.there.clear();
    CHECK_THROWS_WITH(require_step("step", 1, shelf),
                      "step 1: there is no such checkpoint in shelf\n  there is no checkpoint at all");
}

TEST_CASE("a job that is queued again with --from-step resumes from what it has saved since", "[retention]") {
    Shelf shelf;
    const auto put = [&](int64_t step, int64_t from) {
        Manifest manifest;
        manifest.step = step;
        manifest.piece_bytes = 1;
        manifest.host = from < 0 ? R"({"time":1})" : fmt::format(R"({{"time":2,"from_step":{}}})", from);
        shelf.texts[step] = manifest.text();
    };
    put(30, 10), put(20, 10), put(10, -1);
    shelf.there = {30, 20, 10};
    CHECK_THAT(went_on_before(shelf, 10, true), Catch::Contains("with the same settings, and has saved step 30 since"));
    CHECK(went_on_before(shelf, 10, false).empty());
    CHECK(went_on_before(shelf, 20, true).empty());  // it went back to another step
    put(30, -1);
    CHECK(went_on_before(shelf, 10, true).empty());  // the newest one was made usable again
    shelf.marks[30] = fmt::format("the run went{}on from step 10", ' ');
    CHECK_THAT(went_on_before(shelf, 10, false), Catch::Contains("step 30 is marked") && Catch::Contains("step 20 "));
}

TEST_CASE("who goes on from a step needs a step behind it, and no pinned one in the way", "[retention]") {
    Shelf shelf;
    shelf.there = {35, 30, 20, 10};
    TrainOptions options;
    options.steps = 40;
    options.checkpoint_every = 10;
    const auto go_on = [&](int64_t from) { require_way("--from-step", from, shelf, options); };
    CHECK_NOTHROW(go_on(10));
    CHECK_THROWS_WITH(go_on(40), Catch::Matchers::StartsWith("--from-step 40: train.steps is 40, so no step is left"));
    shelf.pins[35] = shelf.pins[10] = "mine";  // neither is saved again
    CHECK_NOTHROW(go_on(10));
    shelf.pins[30] = "for the paper";
    CHECK_THROWS_WITH(go_on(20), Catch::Matchers::StartsWith("--from-step 20: step 30 in shelf is pinned (for the "
                                                             "paper), but this run would overwrite it\n"));
    CHECK_NOTHROW(go_on(30));
    options.steps = 29;
    CHECK_NOTHROW(go_on(20));
    options.steps = 35;  // the last one
    CHECK_THROWS(go_on(30));
    options.checkpoint_final = false;
    CHECK_NOTHROW(go_on(30));
    options.checkpoint_mtbf_s = 1e6;
    CHECK_THROWS(go_on(30));
}

TEST_CASE("what lies beside a step is said without control characters, and cut", "[retention]") {
    CHECK(printable(" for the \"paper\": \xc3\xa9\n") == "for the \"paper\": \xc3\xa9");
    CHECK(printable("\x1b[2J\r\n\x7f.") == "\\x1b[2J\\x0d\\n\\x7f.");
    CHECK(printable("\xc2\x9b\xc2\xa0") == "\\xc2\\x9b\xc2\xa0");
    CHECK(printable("\xff\xc3\xa9") == "\\xff\\xc3\\xa9");
    CHECK(printable(std::string(300, 'x')) == std::string(200, 'x') + "...");
    CHECK(printable(std::string(199, 'x') + "\xc3\xa9") == std::string(199, 'x') + "...");
}

TEST_CASE("a policy is told in words", "[retention]") {
    RetentionPolicy policy(3);
    CHECK(policy.text() == "the newest 3");
    policy.every_steps = 1000, policy.hourly = 24, policy.daily = 1, policy.best = 2;
    CHECK(policy.text() ==
          "the newest 3, every step that 1,000 divides, one an hour for 24 hours, one a day for 1 day, the best 2 by "
          "evaluation");
}

}  // namespace orrery
