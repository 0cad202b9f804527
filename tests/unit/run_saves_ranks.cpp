// Trainings of 16 and 256 ranks, each a thread, over a store in memory: which messages of the control plane a step, a
// save and a restore cost each of them, and which bytes the store is given and asked for. The long form has 1,024
// ranks, too, and leaves a table in the file that ORRERY_LONG names.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "forwarding_store.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "orrery/rendezvous.h"
#include "run/control/rendezvous.h"
#include "run/session.h"
#include "run/train/train.h"

using namespace orrery;

namespace {

/// What a rank asks a rendezvous for, by what it is about.
struct Messages {
    std::atomic<int64_t> start{0};    ///< of its session, and of the end
    std::atomic<int64_t> restore{0};  ///< what the ranks tell each other to go on from a checkpoint
    std::atomic<int64_t> save{0};     ///< of the thread beside the steps
    std::atomic<int64_t> elsewhere{0};
};

/// A rank's place in the rendezvous that all of them share, and what it has asked of it.
class CountedMember final : public Member {
public:
    CountedMember(LocalRendezvous& store, int64_t rank, Messages& messages)
        : store_(store), rank_(rank), messages_(messages) {}
    void set(std::string_view key, std::string_view value) override { store_.set(counted(key), value); }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        return store_.get(counted(key), timeout);
    }
    /// Who waits for files asks once a second: only what is answered is counted.
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) override {
        auto found = store_.look(key, timeout);
        if (found) counted(key);
        return found;
    }
    void erase(std::string_view key) override { store_.erase(counted(key)); }
    int64_t add(std::string_view key, int64_t amount) override { return store_.add(counted(key), amount); }
    Message lost() const override { return store_.lost(); }
    void tell_position(std::function<std::string()>) override {}
    void leave() override {}
    void fail(const Loss& why) override { store_.fail(rank_, why.text); }
    void gone(const Loss& how) override { store_.fail(how.rank, how.text); }
    Loss loss() const override {
        const Message lost = store_.lost();
        return lost.empty() ? Loss() : Loss{.cause = Cause::error, .text = lost};
    }
    std::string run() const override { return {}; }

private:
    std::string_view counted(std::string_view key) {
        if (!key.starts_with("exchange/"))
            ++messages_.elsewhere;
        else if (key.find("-saves/") != std::string_view::npos)
            ++messages_.save;
        else if (key.find("/checkpoint/") != std::string_view::npos)
            ++messages_.restore;
        else
            ++messages_.start;
        return key;
    }

    LocalRendezvous& store_;
    const int64_t rank_;
    Messages& messages_;
};

/// What the ranks have put into a store, and read of its objects.
struct Traffic {
    std::mutex mutex;
    std::set<std::string> put;                          ///< keys
    int64_t twice = 0, data = 0, objects = 0;           ///< keys put twice; bytes of tensors, and of their objects
    std::map<std::string, int64_t> asked;               ///< bytes of each range that any rank has asked for
    std::vector<int64_t> read;                          ///< by rank: bytes
    std::set<std::pair<int64_t, std::string>> by_rank;  ///< who asked for which range
    int64_t again = 0;                                  ///< ranges that a rank asked for again

    explicit Traffic(size_t ranks) : read(ranks) {}
    int64_t all_read() const { return std::accumulate(read.begin(), read.end(), int64_t{0}); }
    /// Of all ranges of a step, each once: what a host's disk reads whose cache keeps them.
    int64_t distinct(const std::string& step) const {
        int64_t bytes = 0;
        for (const auto& [range, size] : asked)
            if (range.starts_with(step + "/")) bytes += size;
        return bytes;
    }
};

class CountedStore final : public test::ForwardingStore {
public:
    CountedStore(std::unique_ptr<CheckpointStore> inner, int64_t rank, Traffic& traffic)
        : ForwardingStore(std::move(inner)), rank_(rank), traffic_(traffic) {}

    void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) override {
        {
            const std::lock_guard lock(traffic_.mutex);
            traffic_.twice += !traffic_.put.insert(fmt::format("{}/{}", step, key)).second;
            if (key.ends_with(".safetensors")) {
                uint64_t header = 0;
                std::memcpy(&header, bytes.data(), sizeof header);
                traffic_.data += static_cast<int64_t>(bytes.size() - 8 - header);
                traffic_.objects += static_cast<int64_t>(bytes.size());
            }
        }
        inner_->put(step, key, bytes);
    }
    void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) override {
        if (key.ends_with(".safetensors")) {
            const std::lock_guard lock(traffic_.mutex);
            const std::string range = fmt::format("{}/{} {}+{}", step, key, offset, bytes.size());
            traffic_.read[static_cast<size_t>(rank_)] += static_cast<int64_t>(bytes.size());
            traffic_.asked[range] = static_cast<int64_t>(bytes.size());
            traffic_.again += !traffic_.by_rank.emplace(rank_, range).second;
        }
        inner_->get(step, key, offset, bytes);
    }

private:
    const int64_t rank_;
    Traffic& traffic_;
};

struct Outcome {
    std::vector<Messages> messages;           ///< by rank
    std::vector<std::vector<int64_t>> after;  ///< by rank: its messages but those of saves, behind each step
    std::vector<std::string> problems;        ///< by rank
    Traffic traffic;
    int64_t state_bytes = 0;  ///< of all params and states, each once
    int64_t resumed = -1;     ///< the step that rank 0 went on from

    explicit Outcome(int64_t ranks)
        : messages(static_cast<size_t>(ranks)),
          after(messages.size()),
          problems(messages.size()),
          traffic(messages.size()) {}
    int64_t most(std::atomic<int64_t> Messages::*kind) const {
        int64_t most = 0;
        for (const Messages& one : messages) most = std::max(most, (one.*kind).load());
        return most;
    }
    std::string problem() const {
        for (const std::string& one : problems)
            if (!one.empty()) return one;
        return "";
    }
};

constexpr const char* script =
    "local o = require 'orrery'\nlocal data = o.data.text {}\n"
    "local m = require 'orrery.models.gpt' { layers = 1, embed = 32, heads = 2, vocab = 256, seq = 4 }\n"
    "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
    "p:train_with(o.optim.adamw { lr = 1e-3, clip = 1 })\n"
    "p:parallel { o.strategy.data { axis = 'shard', zero = 1 }, o.strategy.data { axis = 'copy' } }\n"
    "p:compile():train(data)";

/// Compiles once, and trains on a thread per rank: each with a session, a registry's plugins and a store of its own.
class Ranks final : public FakeHost {
public:
    Ranks(const std::string& toml, const Registry& plugins, LocalRendezvous& rendezvous, int64_t steps, int64_t every,
          const std::string& place, Outcome& outcome)
        : FakeHost(toml),
          toml_(toml),
          plugins_(plugins),
          rendezvous_(rendezvous),
          steps_(steps),
          every_(every),
          place_(place),
          outcome_(outcome) {
        strategies = built_strategy;
    }

    void train(const DataSpec& data, const TrainOptions& given) override {
        Settings settings = read_settings(config());
        settings.mesh = mesh();
        Job job;
        job.token = "a secret of the test's own";
        job.ranks = job.local_ranks = mesh().ranks();
        const auto device = make_device(settings, config(), plugins_, job);
        const CompileOptions options =
            compile_options(settings, job, device.get(), contracts_of(settings, config(), plugins_), {});
        Compiled compiled;
        experiment->recipe->later([&] {
            compiled =
                compile_training(make_experiment(*experiment->recipe,
                                                 train_step(*experiment->recipe, experiment->recipe->batch), mesh()),
                                 options);
        });
        for (const Value& value : compiled.train().program.values)
            if (value.role == Role::param || value.role == Role::state) outcome_.state_bytes += value.type.bytes();
        std::vector<Dataset> datasets;
        for (int64_t rank = 0; rank < job.ranks; ++rank) {
            DataSpec own = data;
            Config read = parse_config(toml_, "a.toml", {});
            own.source = built_data("text", read.table("data"), own.origin);
            datasets.emplace_back(own);
        }
        TrainOptions how = given;
        how.steps = steps_;
        how.checkpoint_every = every_;
        how.checkpoint_async = true;
        how.checkpoint_final = false;
        how.evaluate_batches = 0;
        std::vector<std::thread> threads;
        for (int64_t rank = 0; rank < job.ranks; ++rank)
            threads.emplace_back([&, rank, job]() mutable {
                job.rank = job.local_rank = rank;
                auto& problem = outcome_.problems[static_cast<size_t>(rank)];
                try {
                    one(settings, job, compiled, datasets[static_cast<size_t>(rank)], how);
                } catch (const std::exception& error) {
                    problem = error.what();
                    rendezvous_.fail(rank, problem);
                }
            });
        for (std::thread& thread : threads) thread.join();
    }

private:
    void one(const Settings& settings, const Job& job, const Compiled& compiled, const Dataset& data,
             const TrainOptions& how) {
        Config own = parse_config(toml_, "a.toml", {});
        Session session(settings, own, plugins_, job, compiled);
        CountedStore store(plugins_.store("memory", {})(own.table("store").table("memory"), place_), job.rank,
                           outcome_.traffic);
        TrainingRun run{session, store, nullptr, data, how, settings.seed};
        const Messages& mine = outcome_.messages[static_cast<size_t>(job.rank)];
        std::vector<int64_t>& after = outcome_.after[static_cast<size_t>(job.rank)];
        const auto note = [&] { after.push_back(mine.start + mine.restore + mine.elsewhere); };
        run.resumed = [&](int64_t step) {
            if (job.rank == 0) outcome_.resumed = step;
        };
        run.finished = [&](int64_t) { note(); };
        orrery::train(run);
        note();
        session.leave();
    }

    const std::string toml_;
    const Registry& plugins_;
    LocalRendezvous& rendezvous_;
    const int64_t steps_, every_;
    const std::string place_;
    Outcome& outcome_;
};

/// The backend of a job whose ranks are threads.
class LocalBackend final : public RendezvousBackend {
public:
    LocalBackend(LocalRendezvous& store, Outcome& outcome) : store_(store), outcome_(outcome) {}
    std::unique_ptr<RendezvousService> serve(const ServeOptions&) override { throw Error("nobody serves here"); }
    std::unique_ptr<Member> join(const JoinOptions& options) override {
        return std::make_unique<CountedMember>(store_, options.rank,
                                               outcome_.messages[static_cast<size_t>(options.rank)]);
    }

private:
    LocalRendezvous& store_;
    Outcome& outcome_;
};

/// A job, in memory: its ranks come, train to a step, and go.
class Jobs {
public:
    explicit Jobs(int64_t side) : side_(side) {
        const Loader loader({in_build("plugins")});
        loader.load("device", "cpu", plugins_, {});
        loader.load("transport", "threads", plugins_, {});
        loader.load("store", "memory", plugins_, {});
        plugins_.add_rendezvous("counted",
                                [this](Config&) { return std::make_unique<LocalBackend>(*rendezvous_, *outcome_); });
        Config none;
        kept_ = plugins_.store("memory", {})(none, "place");  // the steps outlive a job
    }

    std::unique_ptr<Outcome> run(int64_t steps, int64_t every) {
        auto outcome = std::make_unique<Outcome>(side_ * side_);
        LocalRendezvous rendezvous;
        rendezvous_ = &rendezvous, outcome_ = outcome.get();
        const std::string text = in_build("tests/run_saves_ranks.txt");
        std::ofstream(text) << std::string(40'000, 'a');
        const std::string toml = fmt::format(
            "[run]\nseed = 3\nthreads_per_rank = 1\ntransport = \"threads\"\nstore = \"memory\"\nrendezvous = "
            "\"counted\"\njoin_timeout_s = 900\ntimeout_s = 900\n[mesh]\nshard = {0}\ncopy = {0}\n[device.cpu]\n"
            "reference = true\n[data]\nvalidation = 0\ntokens_per_sequence = 4\npath = \"{1}\"\n[train]\nsteps = 1\n"
            "sequences_per_step = {2}\nevaluate_batches = 1\n",
            side_, text, side_ * side_);
        Ranks host(toml, plugins_, rendezvous, steps, every, "place", *outcome);
        run_script_text(script, "a.lua", in_source("scripts"), host);
        return outcome;
    }

private:
    const int64_t side_;
    Registry plugins_;
    LocalRendezvous* rendezvous_ = nullptr;
    Outcome* outcome_ = nullptr;
    std::unique_ptr<CheckpointStore> kept_;
};

struct Costs {
    int64_t step = 0, save = 0, restore = 0;  ///< messages of the rank that has most
    int64_t state_bytes = 0, written = 0, read_back = 0, restored = 0, most_restored = 0;
};

/// One job saves step 2 beside step 3; another goes on from there, and saves step 4 beside step 5.
Costs costs_of(int64_t side) {
    Jobs jobs(side);
    const auto first = jobs.run(3, 2), second = jobs.run(5, 4);
    REQUIRE(first->problem() == "");
    REQUIRE(second->problem() == "");
    REQUIRE(first->resumed == 0);
    REQUIRE(second->resumed == 2);
    Costs costs;
    costs.state_bytes = first->state_bytes;
    for (const auto* job : {first.get(), second.get()}) {
        for (const std::vector<int64_t>& after : job->after) {
            REQUIRE(after.size() == 4);  // behind each of three steps, and behind the save
            for (size_t i = 1; i < after.size(); ++i) costs.step = std::max(costs.step, after[i] - after[i - 1]);
        }
        costs.save = std::max(costs.save, job->most(&Messages::save));
        CHECK(job->traffic.twice == 0);
        CHECK(job->traffic.data == job->state_bytes);  // each byte is written by one rank
        CHECK(job->traffic.again == 0);                // and read by none twice
    }
    costs.written = first->traffic.objects;
    costs.read_back = first->traffic.all_read();
    CHECK(costs.read_back == costs.written);
    CHECK(first->traffic.distinct("2") == costs.written);
    costs.restore = second->most(&Messages::restore) - first->most(&Messages::restore);
    // Ranks that hold the same ask for the same ranges: a host that keeps them reads each from its disk once.
    CHECK(second->traffic.distinct("2") == costs.written);
    CHECK(second->traffic.distinct("4") == second->traffic.objects);
    costs.restored = second->traffic.all_read() - second->traffic.objects;
    for (size_t rank = 0; rank < first->traffic.read.size(); ++rank)
        costs.most_restored = std::max(costs.most_restored, second->traffic.read[rank] - first->traffic.read[rank]);
    return costs;
}

std::string row(int64_t ranks, const Costs& costs) {
    return fmt::format(
        "{:5} ranks: messages a rank, most: {} a step, {} a save, {} a restore more than a start without one\n"
        "             {} bytes of state, written {} with headers, read back {}, of which a restore asks\n"
        "             {} a rank at most and {} in all\n",
        ranks, costs.step, costs.save, costs.restore, costs.state_bytes, costs.written, costs.read_back,
        costs.most_restored, costs.restored);
}

/// Ranks that threads of a sanitizer can be.
constexpr int64_t many() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 8;
#else
    return 16;
#endif
}

}  // namespace

TEST_CASE("a step of many ranks has no message of control, a save and a restore as many as of few",
          "[saves][ranks][slow]") {
    const char* const table = std::getenv("ORRERY_LONG");
    std::string rows;
    const Costs few = costs_of(4);
    CHECK(few.step == 0);
    std::vector<int64_t> sides = {many()};
    if (table) sides.push_back(32);
    rows += row(16, few);
    for (const int64_t side : sides) {
        const Costs costs = costs_of(side);
        rows += row(side * side, costs);
        INFO(rows);
        CHECK(costs.step == 0);
        // Three gathers by a tree of fours, one of them to all, and three words of rank 0.
        CHECK(few.save <= 22);
        CHECK(costs.save == few.save);
        CHECK(few.restore <= 8);
        CHECK(costs.restore == few.restore);
        CHECK(costs.state_bytes == few.state_bytes);
    }
    if (table) std::ofstream(table) << rows;
}
