// Every number of a cluster's file, doubled, changes some figure of some forecast, or the file is refused.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/text.h"
#include "cases.h"
#include "cli/simulate/forecast.h"
#include "config/load.h"
#include "folders.h"

using namespace orrery;

namespace {

/// A job on a cluster, of pp = 2, dp = 2, tp = 4; `all`: of dp on half of the accelerators, and pp = 2.
struct Trial {
    std::string precision, script = "gpt.lua";
    bool tf32 = false, all = false;
};

const std::vector<Trial> trials = {{"bf16"},
                                   {"bf16", "gpt.lua", false, true},
                                   {"f32"},
                                   {"f16"},
                                   {"fp8"},
                                   {"f32", "gpt.lua", true},
                                   {"f32", "doubles.lua"}};

/// One product of f64 in the loss.
std::string doubles() {
    const std::string path = in_build("tests/doubles.lua");
    std::ofstream(path) << "local o = require 'orrery'\nlocal data = o.data.text {}\n"
                           "local program = o.trace('doubles', data.signature, function(batch)\n"
                           "  local shape = { { 'vocab', data.vocab }, { 'embed', 512 } }\n"
                           "  local table = o.param { name = 'table', shape = shape }\n"
                           "  local x = batch.tokens:embedding(table)\n"
                           "  local w = o.param { name = 'w', shape = { { 'embed', 512 }, { 'out', 512 } } }\n"
                           "  return x:cast('f64'):matmul(w:cast('f64')):cast('f32'):sum()\nend)\n"
                           "program:train_with(o.optim.sgd { lr = 0.1 })\n"
                           "program:parallel { o.strategy.data { axis = 'dp' } }\nprogram:compile():train(data)\n";
    return path;
}

/// All that a forecast prints, or why the cluster is refused.
std::string printed(const Trial& trial, const Cluster& cluster, int64_t all) {
    ScriptCommand script;
    script.script = trial.script == "gpt.lua" ? in_source("scripts/gpt.lua") : doubles();
    const int64_t dp = trial.all ? all / 2 : trial.script == "gpt.lua" ? 2 : 16;
    script.sets = {"data.path=", "data.vocab=1024", "data.tokens_per_sequence=512", "train.steps=1",
                   "train.precision=" + trial.precision};
    if (trial.script == "gpt.lua")
        for (const char* set :
             {"script.layers=2", "script.embed=512", "script.heads=8", "mesh.pp=2", "train.microbatches=2"})
            script.sets.push_back(set);
    script.sets.push_back(fmt::format("mesh.dp={}", dp));
    script.sets.push_back(fmt::format("train.sequences_per_step={}", 4 * dp));
    if (trial.script == "gpt.lua" && !trial.all) script.sets.push_back("mesh.tp=4");
    if (trial.tf32) script.sets.push_back("device.cuda.tf32=true");
    SimulateCommand command;
    command.quick = true;
    try {
        const Forecast made = forecast(script, cluster, command);
        CHECK(made.prediction.mfu > 0);
        CHECK(made.prediction.mfu <= 1);
        return text(made.prediction, "") + made.mapping + "\n" + cluster.text();
    } catch (const Error& error) {
        return std::string("refused: ") + error.what();
    }
}

struct Number {
    size_t at = 0, length = 0;
    std::string line;
};

/// The value of every `key = NUMBER` line.
std::vector<Number> numbers(const std::string& text) {
    static const std::regex line(R"((^|\n)([a-z0-9_]+ = )([0-9.]+))");
    std::vector<Number> all;
    for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it)
        all.push_back(
            {static_cast<size_t>(it->position(3)), static_cast<size_t>(it->length(3)), it->str(2) + it->str(3)});
    return all;
}

/// Its figures by job, made when first asked for.
class Forecasts {
public:
    Forecasts(const std::string& text, int64_t all) : all_(all), made_(trials.size()) {
        Config file = parse_toml(text, "c.toml");
        cluster_.emplace(file);
        if (all_ == 0) all_ = cluster_->accelerators();
    }
    const std::string& of(size_t trial) {
        if (made_[trial].empty()) made_[trial] = printed(trials[trial], *cluster_, all_);
        return made_[trial];
    }
    int64_t all() const { return all_; }

private:
    int64_t all_;
    std::optional<Cluster> cluster_;
    std::vector<std::string> made_;
};

/// The numbers that change nothing, each with its line.
std::vector<std::string> idle_numbers(const std::string& text) {
    std::vector<std::string> idle;
    Forecasts plain(text, 0);
    for (const Number& number : numbers(text)) {
        const double value = std::stod(text.substr(number.at, number.length));
        std::string changed = text;
        changed.replace(number.at, number.length, fmt::format("{}", 2 * value));
        try {
            Forecasts doubled(changed, plain.all());
            bool moves = false;
            for (size_t at = 0; at < trials.size() && !moves; ++at) moves = doubled.of(at) != plain.of(at);
            if (!moves) idle.push_back(number.line);
        } catch (const Error&) {  // refused
        }
    }
    return idle;
}

std::string read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

const char* const all_keys = R"(name = "all keys"
[accelerator.a]
generation = "hopper"
memory_gib = 80
memory_gb_s = 3000
power_w = 700
multiprocessors = 66
matrix_share = 0.4
price_per_hour = 2
[accelerator.a.dense_tflops]
f64 = 30
f32 = 60
tf32 = 400
bf16 = 1000
f16 = 900
fp8 = 2000
[node.n]
accelerator = "a"
accelerators = 8
count = 8
mtbf_days = 100
[node.n.scale_up]
kind = "nvswitch"
gb_s = 400
domain_accelerators = 16
[node.n.nics]
kind = "infiniband"
count = 8
gb_s = 50
latency_us = 2
[fabric]
kind = "fat_tree"
nodes_per_leaf = 2
leaf_oversubscription = 2
nodes_per_pod = 4
pod_oversubscription = 2
hop_latency_us = 0.5
[storage]
read_gb_s = 10
write_gb_s = 5
)";

}  // namespace

TEST_CASE("cluster: every number of a file, doubled, changes some figure of a forecast", "[cluster_numbers][slow]") {
    CHECK(numbers(all_keys).size() == 27);
    CHECK(idle_numbers(all_keys) == std::vector<std::string>{});
    if (test::few_cases()) return;
    for (const auto& entry : std::filesystem::directory_iterator(in_source("configs/clusters"))) {
        // Forecasts refuse this_machine.
        if (entry.path().extension() != ".toml" || entry.path().stem() == "this_machine") continue;
        INFO(entry.path());
        CHECK(idle_numbers(read(entry.path())) == std::vector<std::string>{});
    }
}

TEST_CASE("cluster: what no forecast reads is refused", "[cluster_numbers]") {
    const auto refused = [](const std::string& from, const std::string& to) {
        std::string text = all_keys;
        text.replace(text.find(from), from.size(), to);
        Config file = parse_toml(text, "c.toml");
        CHECK_THROWS_AS(Cluster(file), Error);
    };
    refused("fp8 = 2000", "i8 = 2000");
    refused("fp8 = 2000", "fp4 = 4000");
    refused("count = 8", "processors = 96\ncount = 8");
    refused("[node.n]", "[accelerator.b]\nmemory_gib = 80\nmemory_gb_s = 3000\ndense_tflops = { bf16 = 1 }\n[node.n]");
}

TEST_CASE("cluster: MFU is over the rate that the job's products run at", "[cluster_numbers]") {
    Config file = parse_toml(all_keys, "c.toml");
    const Cluster cluster(file);
    const auto has = [&](const Trial& trial, const std::string& rate) {
        const std::string text = printed(trial, cluster, 0);
        INFO(text);
        CHECK(text.find(rate) != std::string::npos);
    };
    has({"f32"}, "of 60 TFLOP/s (f32)");
    has({"f32", "gpt.lua", true}, "of 400 TFLOP/s (tf32)");
    has({"f16"}, "of 900 TFLOP/s (f16)");
    has({"fp8"}, "of 2000 TFLOP/s (fp8)");
}
