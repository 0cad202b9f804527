// Sessions of one recipe on several meshes, one after the other in one process: state goes through a store in memory.
#include <catch2/catch.hpp>

#include <cstdio>
#include <fstream>
#include <mutex>
#include <regex>
#include <thread>

#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "meeting.h"
#include "run/control/rendezvous.h"
#include "run/session.h"
#include "run/train/evaluation.h"
#include "run/train/train.h"

using namespace orrery;

namespace {

/// A part of a training: a mesh, and the step that ends it.
struct Part {
    Mesh mesh;
    int64_t until;
};

const std::vector<Part>& parts() {
    static const std::vector<Part> all = {
        {Mesh({{"dp", 2, false}}), 3}, {Mesh({{"dp", 1, false}}), 6}, {Mesh({{"pp", 2, false}}), 9}};
    return all;
}

const std::string script =
    "local o = require 'orrery'\nlocal data = o.data.text {}\n"
    "local m = require 'orrery.models.gpt' { layers = 2, embed = 12, heads = 2, vocab = 256, seq = 8, dropout = 0.1 }\n"
    "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
    "p:train_with(o.optim.adamw { lr = 1e-2, clip = 1 })\n"
    "p:parallel { o.strategy.pipeline { axis = 'pp' }, o.strategy.data { axis = 'dp', zero = 2 } }\n"
    "p:compile():train(data)";

/// A session of a recipe on a mesh, from nothing else: what came before is in the store alone.
std::unique_ptr<Session> session_of(const Recipe& recipe, const Mesh& mesh, const Job& job, Config& config,
                                    int64_t evaluated) {
    Settings settings = read_settings(config);
    settings.mesh = mesh;
    std::unique_ptr<Device> device = make_device(settings, config, test::job_plugins(), job);
    const Network contracts = contracts_of(settings, config, test::job_plugins());
    const CompileOptions options = compile_options(settings, job, device.get(), contracts, {});
    Compiled compiled;
    recipe.later([&] {
        const Experiment experiment = make_experiment(recipe, train_step(recipe, recipe.batch), mesh);
        compiled = compile_training(experiment, options);
        for (const Calls& calls : evaluation_calls(compiled, evaluated))
            add_program(compiled, experiment, calls.entry, options);
    });
    return std::make_unique<Session>(settings, config, test::job_plugins(), job, std::move(compiled),
                                     std::move(device));
}

/// One rank. Its script is run once; run:train makes a session for each part in which the mesh has this rank.
struct RankHost final : FakeHost {
    RankHost(const std::string& toml, int64_t rank, const std::string& store, std::vector<Part> parts,
             std::vector<int> ports)
        : FakeHost(toml), rank_(rank), store_(store), parts_(std::move(parts)), ports_(std::move(ports)) {
        strategies = [](std::string_view name, Config& options, const Origin& asked) {
            static std::mutex one_at_a_time;
            const std::lock_guard lock(one_at_a_time);
            return built_strategy(name, options, asked);
        };
    }

    void train(const DataSpec& data, const TrainOptions& given) override {
        const Settings settings = read_settings(config());
        const Dataset opened(data);
        const int64_t samples = evaluated_samples(opened, given.evaluate_batches, experiment->recipe->batch);
        for (size_t i = 0; i < parts_.size(); ++i) {
            const int64_t ranks = parts_[i].mesh.ranks();
            if (rank_ >= ranks) continue;
            Job job;
            job.token = "a secret of the test's own";
            job.rank = job.local_rank = rank_;
            job.ranks = job.local_ranks = ranks;
            job.port = ports_[i];
            const auto session = session_of(*experiment->recipe, parts_[i].mesh, job, config(), samples);
            const auto store = test::job_plugins().store("memory", {})(config().table("store").table("memory"), store_);
            TrainOptions options = given;
            options.steps = parts_[i].until;
            std::optional<MetricsWriter> metrics;
            if (rank_ == 0) metrics.emplace(MetricsPlaces{store_ + ".jsonl"}, nothing_.get());
            orrery::train({*session, *store, metrics ? &*metrics : nullptr, opened, options, settings.seed, 2, ""});
            session->leave();
        }
    }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    const int64_t rank_;
    const std::string store_;
    const std::vector<Part> parts_;
    const std::vector<int> ports_;
    const std::unique_ptr<std::FILE, Close> nothing_{std::fopen("/dev/null", "w")};
};

/// Trains the parts in the ranks' sessions; the checkpoints lie in the memory store `store`.
void trained(const std::vector<Part>& parts, const std::string& store) {
    const std::string text = in_build("tests/session_of.txt");
    {
        std::ofstream out(text);
        for (int i = 0; i < 600; ++i) out << i * i % 97 << " follows " << i % 13 << "\n";
    }
    const std::string toml =
        "[run]\nseed = 3\nthreads_per_rank = 1\ntransport = \"threads\"\nstore = \"memory\"\n[mesh]\ndp = 1\n"
        "[device.cpu]\nreference = true\n[data]\nvalidation = 0.1\ntokens_per_sequence = 8\npath = \"" +
        text + "\"\n[train]\nsteps = 1\nsequences_per_step = 6\nevaluate_batches = 3\n";
    std::vector<std::unique_ptr<RendezvousService>> servers;
    std::vector<int> ports;
    for (const Part& part : parts) {
        ServeOptions options;
        options.world = part.mesh.ranks();
        options.token = {"a secret of the test's own", "local", 0};
        servers.push_back(part.mesh.ranks() > 1 ? test::tcp().serve(options) : nullptr);
        ports.push_back(servers.back() ? servers.back()->port() : 0);
    }
    std::mutex mutex;
    std::string problem;
    std::vector<std::thread> ranks;
    for (int64_t rank = 0; rank < 2; ++rank)
        ranks.emplace_back([&, rank] {
            try {
                RankHost host(toml, rank, store, parts, ports);
                run_script_text(script, "a.lua", in_source("scripts"), host);
            } catch (const std::exception& error) {
                for (const auto& server : servers)
                    if (server) server->fail({.cause = Cause::error, .text = error.what()});
                const std::lock_guard lock(mutex);
                problem += error.what() + std::string("\n");
            }
        });
    for (std::thread& rank : ranks) rank.join();
    INFO(problem);
    REQUIRE(problem.empty());
}

/// Every step's loss and norm, and what evaluations found, without what took time.
std::vector<std::string> shown(const std::string& store) {
    std::vector<std::string> lines;
    std::ifstream in(store + ".jsonl");
    for (std::string line; std::getline(in, line);) {
        std::string kept;
        for (const char* key : {"step", "loss", "grad_norm", "eval_loss", "eval_tokens"}) {
            std::smatch found;
            if (std::regex_search(line, found, std::regex("\"" + std::string(key) + "\":([^,}]+)")))
                kept += std::string(key) + " " + found[1].str() + " ";
        }
        lines.push_back(kept);
    }
    return lines;
}

}  // namespace

TEST_CASE("dp 2, then one rank, then pp 2 in one process: the losses of a restart for each, bit for bit") {
    const std::string remade = in_build("tests/session_remade"), restarted = in_build("tests/session_restarted");
    for (const std::string& store : {remade, restarted}) std::remove((store + ".jsonl").c_str());
    trained(parts(), remade);
    for (const Part& part : parts()) trained({part}, restarted);
    const std::vector<std::string> lines = shown(remade);
    REQUIRE(lines.size() == 12);  // nine steps, and an evaluation behind each part
    CHECK(lines == shown(restarted));
    CHECK(lines.front().find("step 1 loss 5.") == 0);
    CHECK(lines.back().find("eval_tokens") != std::string::npos);
}
