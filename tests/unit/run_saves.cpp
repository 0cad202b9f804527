// Saves beside the steps: the executor waits for copies, a training with them leaves what one without leaves, and what
// goes wrong in them ends all ranks in the same step.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/env.h"
#include "base/json.h"
#include "base/processors.h"
#include "cases.h"
#include "forwarding_store.h"
#include "layout_models.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "meeting.h"
#include "plan/snapshot.h"
#include "plan_ranks.h"
#include "run/checkpoint/save/save_interval.h"
#include "run/checkpoint/save/save_thread.h"
#include "run/checkpoint/save/saved_state.h"
#include "run/control/rendezvous.h"
#include "run/copy_progress.h"
#include "run/session.h"
#include "run/train/evaluation.h"
#include "run/train/train.h"

using namespace orrery;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

namespace {

/// A store behind which something may happen at each object and each commit.
class Watched final : public test::ForwardingStore {
public:
    Watched(std::unique_ptr<CheckpointStore> store, std::function<void(int64_t)> puts,
            std::function<void(int64_t)> commits)
        : ForwardingStore(std::move(store)), puts_(std::move(puts)), commits_(std::move(commits)) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        if (puts_) puts_(step);
        inner_->put(step, key, bytes);
    }
    void commit(int64_t step, std::string_view manifest) override {
        inner_->commit(step, manifest);
        if (commits_) commits_(step);
    }

private:
    const std::function<void(int64_t)> puts_, commits_;
};

/// A training of two ranks, as threads, and what is different about it.
struct Training {
    std::string name;
    int64_t steps = 12, every = 4;
    bool async = true, spare = true, final = true;
    std::string ramp = {}, lr = "1e-2";
    double mtbf_s = 0;
    int64_t keep_every = 0, keep_best = 0, evaluate_every = 0;
    std::function<void(int64_t rank, int64_t step)> puts = {}, commits = {};
    std::function<void(Session&, CheckpointStore&, const Dataset&)> instead = {};  ///< of its steps
    mutable RendezvousService* server = nullptr;                                   ///< while it runs
    mutable std::atomic<int64_t> finished{0};                                      ///< rank 1's last step

    /// Of the save of a step, at its puts: so slow that the next one that is due is left out and the one after waits.
    void take_until_one_waits(int64_t step) const {
        int64_t waits = std::min(step + 2 * every, steps);
        for (const int64_t needed : {keep_every, keep_best > 0 ? evaluate_every : 0})
            if (needed > 0) waits = std::min(waits, step - step % needed + needed);
        for (int ms = 0; finished < waits && ms < 60'000; ++ms) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(100ms);
    }
};

struct Ended {
    std::vector<std::string> errors = std::vector<std::string>(2);  ///< by rank
    Json record = Json::object();
    std::string notes;
    std::unique_ptr<CheckpointStore> store;  ///< what is left
};

std::string script(const std::string& lr) {
    return "local o = require 'orrery'\nlocal data = o.data.text {}\n"
           "local m = require 'orrery.models.gpt' { layers = 1, embed = 12, heads = 2, vocab = 256, seq = 8 }\n"
           "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
           "p:train_with(o.optim.adamw { lr = " +
           lr +
           ", clip = 1 })\n"
           "p:parallel { o.strategy.data { axis = 'dp', zero = 1 } }\n"
           "p:compile():train(data)";
}

struct RankHost final : FakeHost {
    RankHost(const std::string& toml, const Training& training, int64_t rank, int port, Ended& ended)
        : FakeHost(toml), training_(training), rank_(rank), port_(port), ended_(ended) {
        strategies = [](std::string_view name, Config& options, const Origin& asked) {
            static std::mutex one_at_a_time;
            const std::lock_guard lock(one_at_a_time);
            return built_strategy(name, options, asked);
        };
    }

    std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) override {
        static std::mutex one_at_a_time;  // all ranks have one registry
        const std::lock_guard lock(one_at_a_time);
        return built_data(name, options, asked);
    }

    void train(const DataSpec& data, const TrainOptions& given) override {
        Settings settings = read_settings(config());
        settings.mesh = Mesh({{"dp", 2, false}});
        Job job;
        job.token = "a secret of the test's own";
        job.rank = job.local_rank = rank_;
        job.ranks = job.local_ranks = 2;
        job.port = port_;
        if (training_.spare) job.processors = 2;
        const Dataset opened(data);
        auto device = make_device(settings, config(), test::job_plugins(), job);
        const CompileOptions options =
            compile_options(settings, job, device.get(), contracts_of(settings, config(), test::job_plugins()), {});
        Compiled compiled;
        std::optional<Experiment> made;
        experiment->recipe->later([&] {
            made = make_experiment(*experiment->recipe, train_step(*experiment->recipe, experiment->recipe->batch),
                                   settings.mesh);
            make_sizes(*made);
            compiled = compile_training(*made, options);
        });
        Session session(settings, config(), test::job_plugins(), job, std::move(compiled), std::move(device));
        Watched store(
            test::job_plugins().store("memory", {})(config().table("store").table("memory"), training_.name),
            [&](int64_t step) {
                if (training_.puts) training_.puts(rank_, step);
            },
            [&](int64_t step) {
                if (training_.commits) training_.commits(rank_, step);
            });
        TrainOptions how = given;
        how.steps = training_.steps;
        how.checkpoint_every = training_.every;
        how.checkpoint_async = training_.async;
        how.checkpoint_final = training_.final;
        how.checkpoint_mtbf_s = training_.mtbf_s;
        how.evaluate_every = training_.evaluate_every;
        std::optional<MetricsWriter> metrics;
        const std::string said = in_build("tests/run_saves.txt");
        std::FILE* const terminal = rank_ == 0 ? std::fopen(said.c_str(), "w") : nullptr;
        if (rank_ == 0) metrics.emplace(MetricsPlaces{}, terminal);
        try {
            TrainingRun run{session, store, metrics ? &*metrics : nullptr, opened, how, settings.seed};
            run.keep.every_steps = training_.keep_every;
            run.keep.best = training_.keep_best;
            if (rank_ == 1) run.finished = [&](int64_t step) { training_.finished = step; };
            if (rank_ == 0) run.record = [&](const Json& more) { ended_.record.update(more); };
            if (training_.instead)
                training_.instead(session, store, opened);
            else
                orrery::train(run);
            session.leave();
        } catch (const std::exception& error) {
            session.fail(error.what());
            ended_.errors[static_cast<size_t>(rank_)] = error.what();
        }
        metrics.reset();
        if (terminal) std::fclose(terminal);
        if (rank_ == 0) ended_.notes = system_env()->read_file(said);
    }

private:
    const Training& training_;
    const int64_t rank_;
    const int port_;
    Ended& ended_;
};

Ended ended(const Training& training) {
    const std::string text = in_build("tests/run_saves_data.txt");
    {
        std::ofstream out(text);
        for (int i = 0; i < 600; ++i) out << i * i % 97 << " follows " << i % 13 << "\n";
    }
    const std::string toml =
        "[run]\nseed = 3\nthreads_per_rank = 1\ntransport = \"threads\"\nstore = \"memory\"\n[mesh]\ndp = 2\n"
        "[device.cpu]\nreference = true\n[data]\nvalidation = 0.1\ntokens_per_sequence = 8\npath = \"" +
        text + "\"\n[train]\nsteps = 1\nsequences_per_step = 8\nevaluate_batches = 1\n" + training.ramp;
    ServeOptions options;
    options.world = 2;
    options.token = {"a secret of the test's own", "local", 0};
    const auto server = test::tcp().serve(options);
    training.server = server.get();
    Ended ended;
    std::vector<std::thread> ranks;
    for (int64_t rank = 0; rank < 2; ++rank)
        ranks.emplace_back([&, rank] {
            try {
                RankHost host(toml, training, rank, server->port(), ended);
                run_script_text(script(training.lr), "a.lua", in_source("scripts"), host);
            } catch (const std::exception& error) {
                server->fail({.cause = Cause::error, .text = error.what()});
                ended.errors[static_cast<size_t>(rank)] += error.what();
            }
        });
    for (std::thread& rank : ranks) rank.join();
    Config none;
    ended.store = test::job_plugins().store("memory", {})(none, training.name);
    return ended;
}

/// Whether a rank of one thread leaves a processor of this process's.
bool can_spare() { return allowed_processors().size() > 1; }

/// Every object of a step, by its bytes, without what says when it was made.
std::string contents(CheckpointStore& store, int64_t step) {
    std::string all;
    for (const int rank : {0, 1})
        for (int n = 0; n < 9; ++n) {
            char key[64];
            std::snprintf(key, sizeof key, "rank-%05d-%03d.safetensors", rank, n);
            const int64_t bytes = store.size(step, key);
            if (bytes < 0) continue;
            std::string object(static_cast<size_t>(bytes), '\0');
            store.get(step, key, 0, std::as_writable_bytes(std::span(object.data(), object.size())));
            all += key + object;
        }
    return all;
}

int64_t count_of(const std::string& folder) {
    std::error_code ignored;
    return std::distance(std::filesystem::directory_iterator(folder, ignored), std::filesystem::directory_iterator());
}

int64_t resident_kib() {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
    return 0;
}

}  // namespace

TEST_CASE("an executor writes nothing that is still being copied, and waits for no more", "[saves]") {
    test::Model m = test::mlp(8, 4, 12, true, true);
    const test::Lowered lowered = test::compile(m.program, Mesh());
    const auto device = test::cpu_device();
    RankContext context(test::setting_of(lowered, 0, *device, nullptr));
    std::fill_n(static_cast<float*>(context.arenas()[0].data), context.arenas()[0].bytes / 4, 0.25f);
    const auto executor = context.executor(lowered.plan);
    const SnapshotPlan plan = snapshots_of(lowered.plan)[0];
    CopyProgress progress;
    std::vector<int64_t> parts_before(lowered.plan.classes[0].stream.size(), 0);
    for (size_t i = 0; i < plan.values.size(); ++i)
        if (plan.values[i].written != none)
            parts_before[static_cast<size_t>(plan.values[i].written)] = static_cast<int64_t>(i) + 1;
    executor->copied_beside(progress, parts_before);
    const auto held = [&] {
        std::vector<std::string> bytes;
        for (const CopiedValue& value : plan.values) {
            const Tensor at = executor->tensor(value.value);
            bytes.emplace_back(static_cast<const char*>(at.data), static_cast<size_t>(at.bytes()));
        }
        return bytes;
    };
    executor->run();  // no copy is under way
    CHECK(progress.waited_s() == 0);
    const std::vector<std::string> before = held();
    progress.begin();
    std::atomic<bool> over{false};
    std::thread step([&] {
        executor->run();
        over = true;
    });
    const auto comes_to = [&](int64_t wait) {
        while (progress.waits() < wait && !over) std::this_thread::sleep_for(1ms);
    };
    comes_to(1);
    CHECK(!over);
    CHECK(held() == before);  // it has come to the optimizer, and waits there
    progress.reach(parts_before[static_cast<size_t>(plan.values[0].written)]);
    comes_to(2);
    CHECK(!over);
    const std::vector<std::string> one = held();
    CHECK(one[0] != before[0]);
    for (size_t i = 1; i < one.size(); ++i)
        if (plan.values[i].written != plan.values[0].written) CHECK(one[i] == before[i]);
    progress.reach(static_cast<int64_t>(plan.values.size()));
    step.join();
    CHECK(progress.waited_s() > 0);

    // Nobody copies: the step does what it waits for itself, and asks for no part before it needs it.
    const std::vector<std::string> since = held();
    std::vector<int64_t> asked;
    progress.helped_by([&](int64_t parts) {
        const std::vector<std::string> now = held();
        for (size_t i = asked.empty() ? 0 : static_cast<size_t>(asked.back()); i < plan.values.size(); ++i)
            CHECK(now[i] == since[i]);
        asked.push_back(parts);
        progress.reach(parts);
    });
    progress.begin();
    executor->run();
    CHECK(asked.size() > 1);
    CHECK(std::is_sorted(asked.begin(), asked.end()));
    CHECK(held()[0] != since[0]);
}

namespace {

struct Attempt {
    std::function<void()> what;
    std::exception_ptr failure = {};
};
using Worker = SaveThread<Attempt>;

void attempt(Attempt& job, Worker&) try { job.what(); } catch (...) {
    job.failure = std::current_exception();
}

}  // namespace

TEST_CASE("a save thread does one job at a time and returns its result", "[saves]") {
    Worker thread(attempt);
    std::atomic<int> done{0};
    CHECK(!thread.busy());
    CHECK(!thread.done());
    thread.begin({[&] {
        std::this_thread::sleep_for(20ms);
        ++done;
    }});
    thread.wait();
    CHECK(done == 1);
    REQUIRE(thread.done());
    CHECK(!thread.done()->failure);
    thread.begin({[] { throw Error("as asked"); }});
    thread.wait();
    REQUIRE(thread.done()->failure);
    CHECK_THROWS_WITH(std::rethrow_exception(thread.done()->failure), "as asked");
    thread.begin({[&] { ++done; }});
    thread.wait();
    CHECK(!thread.done()->failure);
    CHECK(done == 2);
}

TEST_CASE("work of a thread beside pauses until it may go on, somebody waits for its end, or it took too long",
          "[saves]") {
    std::atomic<int> begun{0}, done{0};
    const auto reached = [](const std::atomic<int>& count, int wanted) {
        for (int ms = 0; count < wanted && ms < 60'000; ++ms) std::this_thread::sleep_for(1ms);
        return count == wanted;
    };
    {
        Worker thread(attempt);
        const auto pausing = [&](std::chrono::duration<double> at_most) {
            thread.begin({[&, at_most] {
                ++begun;
                thread.pause(at_most);
                ++done;
            }});
        };
        pausing(1h);
        REQUIRE(reached(begun, 1));
        std::this_thread::sleep_for(20ms);
        CHECK(done == 0);
        CHECK(thread.paused_s() > 0.01);
        thread.go_on();
        REQUIRE(reached(done, 1));
        thread.wait();
        const double paused_s = thread.paused_s();
        CHECK(paused_s > 0.01);
        CHECK(thread.paused_s() == paused_s);
        pausing(1h);  // each work pauses anew
        REQUIRE(reached(begun, 2));
        std::this_thread::sleep_for(20ms);
        CHECK(done == 1);
        thread.wait();
        CHECK(done == 2);
        pausing(1ms);
        REQUIRE(reached(done, 3));
        thread.wait();
        std::atomic<bool> may{false};
        thread.begin({[&] {
            while (!may) std::this_thread::sleep_for(1ms);
            thread.pause(1h);
            ++done;
        }});
        thread.go_on();  // before it pauses
        may = true;
        REQUIRE(reached(done, 4));
        thread.wait();
        pausing(1h);
    }  // the end of the thread waits for it
    CHECK(done == 5);
}

TEST_CASE("a save that shares processors with steps writes nothing before the step that it is copied beside has ended",
          "[saves]") {
    const bool spare = GENERATE(false, true);
    if (spare && !can_spare()) {
        WARN("not tested with a spare processor: there is one alone");
        return;
    }
    Training asked{.name = spare ? "with_a_spare" : "by_turns", .spare = spare};
    std::atomic<int> puts{0};
    asked.puts = [&](int64_t, int64_t) { ++puts; };
    asked.instead = [&](Session& session, CheckpointStore& store, const Dataset& data) {
        const auto need = [](bool so, const char* what) {  // ranks are threads
            if (!so) throw Error(what);
        };
        SavedState state(session, store, {});
        session.initialize(3);
        state.save_beside();
        state.begin(1, 3, data, 8, 2.0, {}, {.step_s = 1800});
        const auto finished = [&] {
            for (int ms = 0; state.status() == Status::saving && ms < 60'000; ++ms) std::this_thread::sleep_for(1ms);
            return state.finished();
        };
        if (!spare) {
            for (int ms = 0; state.paused_s() <= 0.05 && ms < 60'000; ++ms) std::this_thread::sleep_for(1ms);
            need(puts == 0 && state.status() == Status::saving, "it writes beside the step");
            session.exchange("looked", "");
            state.step_ended();
        }
        const auto first = finished();
        need(first && puts > 0, "it is not saved");
        need((state.paused_s() > 0.05) == !spare && state.paused_s() < first->whole_s, "another pause");
        state.begin(2, 3, data, 16, 2.0, {}, {.step_s = 1800});
        const auto second = finished();
        need(second && state.paused_s() == 0, "a save that is short beside a step lets it go first");
    };
    const Ended all = ended(asked);
    CHECK(all.errors == std::vector<std::string>(2));
    CHECK(all.store->steps() == std::vector<int64_t>{2, 1});
}

TEST_CASE("the interval of automatic saves is Young's and Daly's, and never below a save's own time", "[saves]") {
    // sqrt(2 * 1 s * 10000 s) = 141 s, less 2/3 s and so on: 141 steps of 1 s
    CHECK(steps_between_saves({1, 1, 1}, 10000) == Approx(141).margin(1));
    CHECK(steps_between_saves({1, 1, 0.5}, 10000) == Approx(282).margin(2));
    CHECK(steps_between_saves({4, 4, 1}, 10000) == Approx(281).margin(3));
    CHECK(steps_between_saves({1e-6, 30, 1}, 10000) == 30);
    CHECK(steps_between_saves({0, 0, 1}, 10000) == 1);
    CHECK(steps_between_saves({1, 1, 1e9}, 10000) == 1);
    CHECK(steps_between_saves({1, 1, 0}, 10000) > 1'000'000);
}

TEST_CASE("the interval goes by what saves cost mostly, not by one that met a busy disk", "[saves]") {
    RecentCosts costs;
    CHECK(costs.median().whole_s == 0);
    costs.add({1, 2, 0.5});
    CHECK(costs.median().held_s == 1);
    for (const double held : {1.0, 60.0, 1.2, 0.8}) costs.add({held, 2 * held, 0.6});
    CHECK(costs.median().held_s == 1);
    CHECK(costs.median().whole_s == 2);
    CHECK(costs.median().step_s == 0.6);
    for (int i = 0; i < 3; ++i) costs.add({9, 9, 1});
    CHECK(costs.median().held_s == 9);
}

TEST_CASE("automatic saves are refused where nothing says how often nodes fail", "[saves]") {
    const auto refused = [](const std::string& keys) {
        Config config = parse_config("[checkpoint]\nevery = \"auto\"\n" + keys, "a.toml", {});
        try {
            read_settings(config);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK_THAT(refused(""), Contains("a.toml:2") && Contains("which is not set") && Contains("checkpoint.mtbf_days"));
    CHECK_THAT(refused("mtbf_days = 0\n"), Contains("a.toml:3") && Contains("expected more than 0"));
    CHECK_THAT(refused("mtbf_days = 30\nevery_steps = 7\n"),
               Contains("a.toml:2") && Contains("checkpoint.every_steps = 7") && Contains("leave one of them out"));
    CHECK(refused("mtbf_days = 30\n") == "");
}

TEST_CASE("saves beside the steps leave the bytes of saves that hold them", "[saves][slow]") {
    for (const std::string ramp : {"", "ramp_start = 2\nramp_increment = 2\nramp_samples = 24\n"})
        for (const bool spare : {true, false}) {
            if (spare && !can_spare()) continue;
            const std::string suffix = (ramp.empty() ? "" : " ramp") + std::string(spare ? " spare" : "");
            INFO(suffix);
            Training beside{"beside" + suffix};
            beside.spare = spare;
            beside.ramp = ramp;
            // So slow that steps run on while it is hashed and written.
            beside.puts = [](int64_t, int64_t) { std::this_thread::sleep_for(30ms); };
            Training held{"held" + suffix};
            held.ramp = ramp;
            held.async = false;
            beside.steps = held.steps = 6;
            beside.every = held.every = 4;
            const Ended a = ended(beside), b = ended(held);
            CHECK(a.errors == std::vector<std::string>(2));
            CHECK(b.errors == std::vector<std::string>(2));
            REQUIRE(a.store->steps() == std::vector<int64_t>{6, 4});
            REQUIRE(b.store->steps() == std::vector<int64_t>{6, 4});
            for (const int64_t step : {4, 6}) {
                const std::string bytes = contents(*a.store, step);
                CHECK(bytes.size() > 1000);
                CHECK((bytes == contents(*b.store, step)));
            }
            CHECK(contents(*a.store, 4) != contents(*a.store, 6));
            CHECK_THAT(a.notes, Contains(spare ? "made during the next step, on a spare processor"
                                               : "made during the next step\n"));
            CHECK_THAT(a.notes, Contains("checkpoint of step 4 committed and read back in") &&
                                    Contains("asynchronously, steps blocked for"));
            CHECK_THAT(b.notes, !Contains("asynchronously"));
            CHECK(a.record["checkpoints"]["saved"] == 2);
        }
}

TEST_CASE("a save that is due while one is under way is left out once, on all ranks, and said so", "[saves][slow]") {
    Training slow{"slow"};
    slow.steps = 40;
    slow.every = 2;
    slow.puts = [&](int64_t rank, int64_t step) {
        if (rank == 1) slow.take_until_one_waits(step);
    };
    std::mutex mutex;
    std::vector<int64_t> committed = {0};
    slow.commits = [&](int64_t, int64_t step) {
        const std::lock_guard lock(mutex);
        committed.push_back(step);
    };
    const Ended end = ended(slow);
    CHECK(end.errors == std::vector<std::string>(2));
    REQUIRE(!end.store->steps().empty());
    CHECK(end.store->steps().front() == 40);
    CHECK_THAT(end.notes, Contains("no checkpoint of step 4: the save of step 2 is still in progress"));
    CHECK_THAT(end.notes, Contains("step 6 was blocked for") && Contains("its checkpoint waited for that of step 2"));
    const Json& counts = end.record["checkpoints"];
    const int64_t saved = counts["saved"], skipped = counts["skipped"], waited = counts["waited"];
    REQUIRE(skipped >= 6);
    REQUIRE(waited > 3);
    CHECK_THAT(end.notes, Contains("due so far 6 were skipped"));
    CHECK_THAT(end.notes, Contains("of 20 checkpoints that were due in all " + std::to_string(skipped) +
                                   " were skipped and " + std::to_string(waited) + " waited"));
    CHECK(saved + skipped == 20);
    CHECK(counts["held_s"].get<double>() > 0.05 * static_cast<double>(waited));
    for (size_t i = 1; i < committed.size(); ++i) CHECK(committed[i] - committed[i - 1] <= 2 * slow.every);
}

TEST_CASE("a save that is to be kept for good is not left out", "[saves][slow]") {
    Training slow{"kept"};
    slow.steps = 20;
    slow.every = 2;
    slow.keep_every = 4;  // each second one: without the rule it is these that are left out
    slow.puts = [&](int64_t rank, int64_t step) {
        if (rank == 1) slow.take_until_one_waits(step);
    };
    const Ended end = ended(slow);
    CHECK(end.errors == std::vector<std::string>(2));
    std::vector<int64_t> steps = end.store->steps();
    for (const int64_t step : {4, 8, 12, 16, 20}) CHECK(std::count(steps.begin(), steps.end(), step) == 1);
    CHECK_THAT(end.notes, Contains("step 4 was blocked") && Contains("no checkpoint of step 6: the save of step 4"));
}

TEST_CASE("a save of an evaluated step is not left out where the best are kept, and the last is evaluated",
          "[saves][slow]") {
    Training slow{"best"};
    slow.steps = 22;
    slow.every = 2;
    slow.keep_best = 30;
    slow.evaluate_every = 4;  // each second one that is due
    slow.puts = [&](int64_t rank, int64_t step) {
        if (rank == 1) slow.take_until_one_waits(step);
    };
    const Ended end = ended(slow);
    CHECK(end.errors == std::vector<std::string>(2));
    const std::vector<int64_t> steps = end.store->steps();
    for (const int64_t step : {4, 8, 12, 16, 20, 22}) {
        INFO(step);
        REQUIRE(std::count(steps.begin(), steps.end(), step) == 1);
        CHECK_THAT(end.store->manifest(step), Contains("\"eval_loss\""));
    }
    CHECK_THAT(end.notes, Contains("step 4 was blocked") && Contains("no checkpoint of step 6: the save of step 4"));
}

TEST_CASE("automatic saves save the steps that are kept for good, too", "[saves][slow]") {
    for (const bool async : {true, false}) {
        INFO(async);
        Training often{async ? "good" : "good held"};
        often.every = 0;
        often.steps = 50;
        often.mtbf_s = 1e9;  // of its own it saves step 10 and the last
        often.keep_every = 7;
        often.async = async;
        const Ended end = ended(often);
        CHECK(end.errors == std::vector<std::string>(2));
        const std::vector<int64_t> steps = end.store->steps();
        for (const int64_t step : {7, 14, 21, 28, 35, 42, 49, 50})
            CHECK(std::count(steps.begin(), steps.end(), step) == 1);
        Training first{async ? "good first" : "good first held"};  // its first save has no step's time to go by
        first.every = 0;
        first.steps = 12;
        first.mtbf_s = 1e9;
        first.keep_every = 1;
        first.async = async;
        CHECK(ended(first).record["checkpoints"]["saved"] == 12);
    }
}

TEST_CASE("a save that fails while another waits for it ends all ranks alike, with the count of those left out",
          "[saves][slow]") {
    for (const int64_t broken : {0, 1}) {
        Training bad{"waited for " + std::to_string(broken)};
        bad.steps = 100000;
        bad.every = 2;
        bad.puts = [&](int64_t rank, int64_t step) {
            if (rank != broken) return;
            bad.take_until_one_waits(step);
            if (step >= 18) throw Error("the disk says no", Fault::failed);
        };
        const Ended end = ended(bad);
        for (const std::string& error : end.errors)
            CHECK_THAT(error, Contains("rank " + std::to_string(broken)) && Contains("save of step 18") &&
                                  Contains("the disk says no") && Contains("the run ends after step 22"));
        CHECK(end.errors[0] == end.errors[1]);
        CHECK_THAT(end.notes, Contains("due in all 5 were skipped"));
    }
}

TEST_CASE("a save that fails beside the steps ends all ranks within a step, and none with success", "[saves]") {
    for (const int64_t broken : {0, 1}) {
        std::atomic<int64_t> failed{0};
        Training bad{"broken" + std::to_string(broken)};
        bad.steps = 100000;
        bad.puts = [&](int64_t rank, int64_t step) {  // of the second one, whichever that is
            if (rank != broken || step == 4) return;
            failed = step;
            throw Error("the disk says no", Fault::failed);
        };
        const Ended end = ended(bad);
        for (const std::string& error : end.errors)
            CHECK_THAT(error, Contains("checkpoint of step " + std::to_string(failed)) &&
                                  Contains("rank " + std::to_string(broken)) && Contains("the disk says no") &&
                                  Contains("the run ends after step"));
        CHECK(end.errors[0] == end.errors[1]);  // the same step, the same reason
        CHECK(end.store->steps() == std::vector<int64_t>{4});
    }
}

TEST_CASE("a step that turns out to be suspect while its save is under way is marked when it is committed",
          "[saves][slow]") {
    Training diverges{"diverges"};
    diverges.every = 1;
    diverges.lr = "1e17";  // the first step's weights are finite, the second one's loss is not
    diverges.puts = [](int64_t, int64_t) { std::this_thread::sleep_for(100ms); };
    const Ended end = ended(diverges);
    for (const std::string& error : end.errors)
        CHECK_THAT(error, Contains("step 2: the loss is") && Contains("the checkpoint of step 1 is marked as suspect"));
    REQUIRE(end.store->steps() == std::vector<int64_t>{1});
    CHECK_THAT(end.store->mark_of(1), Contains("the loss of step 2"));

    Training worse{"worse"};  // finite: no rank waits for the mark
    worse.every = 9;          // by then there are losses enough to judge by
    worse.steps = 10;
    worse.final = false;
    worse.lr = "function(step) return step:less(o.constant(9)):select(o.constant(1e-2), o.constant(1e4)) end";
    worse.puts = [](int64_t, int64_t step) {
        if (step == 9) std::this_thread::sleep_for(300ms);
    };
    const Ended other = ended(worse);
    for (const std::string& error : other.errors)  // no update is made of its gradients
        CHECK_THAT(error, Contains("step 10: the norm of the gradients is nan: the first param") &&
                              Contains("the update is not made"));
    CHECK_THAT(other.notes, Contains("the checkpoint of step 9 will be marked as suspect when it is committed"));
    CHECK_THAT(other.store->mark_of(9), Contains("above 1000 times") && Contains("the median of the last 9 losses"));
    CHECK(other.store->steps() == std::vector<int64_t>{9});

    Training beyond{"beyond"};
    beyond.every = 1;
    beyond.steps = 1;
    beyond.lr = "1e30";
    for (const std::string& error : ended(beyond).errors)
        CHECK_THAT(error, Contains("the asynchronous save of step 1 failed") && Contains("this state is not saved"));
}

TEST_CASE("a rank that fails at its last save fails the run", "[saves]") {
    Training bad{"last"};
    bad.final = false;
    bad.puts = [&](int64_t rank, int64_t step) {
        if (rank == 1 && step == 12) throw Error("the disk says no", Fault::failed);
    };
    const Ended end = ended(bad);
    for (const std::string& error : end.errors) CHECK_THAT(error, Contains("step 12") && Contains("the disk says no"));
}

TEST_CASE("a rank that is lost while saves are under way ends the others' waits, and nothing hangs", "[saves]") {
    Training bad{"lost"};
    bad.steps = 100000;
    bad.puts = [&](int64_t rank, int64_t step) {  // by then the other save thread waits for this one
        if (rank != 1 || step == 4) return;
        std::this_thread::sleep_for(50ms);
        bad.server->fail({.cause = Cause::process, .text = "rank 1 was killed by signal 9"});
        std::this_thread::sleep_for(300ms);
    };
    const auto began = std::chrono::steady_clock::now();
    const Ended end = ended(bad);
    for (const std::string& error : end.errors) CHECK_THAT(error, Contains("was killed by signal 9"));
    CHECK(std::chrono::steady_clock::now() - began < 20s);
    CHECK(end.store->steps() == std::vector<int64_t>{4});
}

TEST_CASE("automatic saves follow from what a save costs, alike on all ranks", "[saves][slow]") {
    for (const bool async : {true, false}) {
        Training often{async ? "often" : "often held"};
        often.every = 0;
        often.async = async;
        often.steps = test::few_cases() ? 600 : 2000;
        often.mtbf_s = 0.02;  // a save of milliseconds: every few steps
        const Ended end = ended(often);
        CHECK(end.errors == std::vector<std::string>(2));
        CHECK_THAT(end.notes, Contains("checkpoint of step 10 committed"));
        CHECK_THAT(end.notes, Contains("a checkpoint is saved every") && Contains("checkpoint.every = \"auto\""));
        CHECK(end.record["checkpoints"]["saved"] > 2);
        Training seldom{async ? "seldom" : "seldom held"};
        seldom.every = 0;
        seldom.async = async;
        seldom.steps = 60;
        seldom.mtbf_s = 1e9;
        const Ended other = ended(seldom);
        CHECK(other.errors == std::vector<std::string>(2));
        CHECK(other.record["checkpoints"]["saved"] == 2);  // the one that is measured, and the last
    }
}

TEST_CASE("1,000 saves beside the steps grow neither memory, threads nor descriptors", "[saves][slow]") {
    struct Held {
        int64_t kib, threads, descriptors;
    };
    const auto now = [] { return Held{resident_kib(), count_of("/proc/self/task"), count_of("/proc/self/fd")}; };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr int64_t first = 50, more = 100;  // each takes several times as long
#else
    constexpr int64_t first = 200, more = 1000;
#endif
    Held early{}, late{};
    std::atomic<int64_t> commits{0};
    Training many{"many"};
    many.steps = 1'000'000;
    many.every = 1;
    many.puts = [&](int64_t, int64_t) {
        if (commits > first + more) throw Error("as many as were asked for", Fault::failed);
    };
    many.commits = [&](int64_t, int64_t) {
        const int64_t n = ++commits;
        if (n == first) early = now();
        if (n == first + more) late = now();
    };
    const Ended end = ended(many);
    for (const std::string& error : end.errors) CHECK_THAT(error, Contains("as many as were asked for"));
    REQUIRE(commits == first + more + 1);
    CHECK(late.threads == early.threads);
    CHECK(late.descriptors == early.descriptors);
    CHECK(late.kib <= early.kib + 2048);
}
