// A step as the software of a file would run it: what --software names, its plan and its prices.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/simulate/forecast.h"
#include "cli/simulate/software.h"
#include "config/load.h"
#include "folders.h"
#include "sim/software/wires.h"

using namespace orrery;

namespace {

const Cluster& h100() {
    static const Cluster cluster = read_cluster(in_source("configs/clusters/h100.toml"), 2);
    return cluster;
}

/// A small gpt.lua of pp = 2, dp = 2, tp = 2 with four micro-batches.
Forecast forecast_of(const std::string& software, std::vector<std::string> sets = {}) {
    ScriptCommand script;
    script.script = in_source("scripts/gpt.lua");
    script.sets = {"data.path=",
                   "data.vocab=8192",
                   "data.tokens_per_sequence=512",
                   "train.steps=1",
                   "script.layers=4",
                   "script.embed=1024",
                   "script.heads=8",
                   "mesh.pp=2",
                   "mesh.dp=2",
                   "mesh.tp=2",
                   "train.sequences_per_step=16",
                   "train.microbatches=4",
                   "script.zero=1",
                   "train.precision=bf16"};
    script.sets.insert(script.sets.end(), sets.begin(), sets.end());
    SimulateCommand command;
    command.software = software;
    command.quick = true;
    return forecast(script, h100(), command);
}

double step_of(const std::string& software, const std::vector<std::string>& sets = {}) {
    return forecast_of(software, sets).prediction.step_s;
}

/// The file of orrery with one value replaced.
std::string file_with(const std::string& key, const std::string& value) {
    std::ifstream file(in_source("configs/software/orrery.toml"));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t line = text.find("value = ", text.find("[" + key + "]"));
    REQUIRE(line != std::string::npos);
    text.replace(line, text.find('\n', line) - line, "value = " + value);
    const std::string path = in_build("tests/own_" + key + ".toml");
    std::ofstream(path) << text;
    return path;
}

bool has(const std::vector<std::string>& lines, const std::string& part) {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("software run: a plan says its ZeRO stage, split sequence and chunks") {
    for (const int zero : {0, 1, 2, 3})
        for (const bool sequence : {false, true}) {
            INFO("zero " << zero << ", sequence " << sequence);
            const Forecast made = forecast_of(
                "orrery", {fmt::format("script.zero={}", zero), fmt::format("script.sequence={}", sequence)});
            const SoftwareRun run = run_of({}, priced_step(made.compiled));
            CHECK(run.zero == (zero == 2 ? 1 : zero));
            CHECK(run.sequence == sequence);
            CHECK(run.chunks == 1);
        }
    const Forecast made = forecast_of("orrery", {"script.pipeline=interleaved", "script.chunks=2"});
    CHECK(run_of({}, priced_step(made.compiled)).chunks == 2);
}

TEST_CASE("software run: every file predicts a step, and says what the script does otherwise") {
    const Prediction plans = forecast_of("orrery").prediction;
    const double own = plans.step_s;
    for (const SoftwareDefaults& one : all_software()) {
        INFO(one.name);
        const Forecast made = forecast_of(one.name);
        CHECK(made.prediction.step_s > 0.5 * own);
        CHECK(made.prediction.step_s < 5 * own);
        if (one.planned) CHECK(made.differences.empty());
        CHECK((made.prediction.memory_bytes == plans.memory_bytes) == one.planned);
        CHECK(has(made.differences, "splits the sequence over tp") == one.splits_sequence);
        const Forecast split = forecast_of(one.name, {"script.sequence=true"});
        CHECK_FALSE(has(split.differences, "splits the sequence over tp"));
        CHECK(has(split.differences, "does not split the sequence") == (!one.planned && !one.splits_sequence));
        CHECK((split.cut > 0) == one.chunks_tp);
    }
    const auto said = [](const std::string& name, const std::string& set) {
        return forecast_of(name, {"script.sequence=true", set}).differences;
    };
    CHECK(said("megatron", "script.recompute=attention").empty());
    CHECK(has(said("torchtitan", "script.recompute=attention"), "every second GEMM in selective recomputation"));
    CHECK(has(said("megatron", "script.recompute=gelu"), "the script recomputes gelu"));
    CHECK(has(said("megatron", "script.codec=bf16"), "sends them as bf16 (script.codec)"));
    CHECK(has(said("megatron", "script.fused=false"), "runs it as separate ops (script.fused)"));
    CHECK(has(said("megatron", "script.loss_tile=256"), "computes logits in tiles"));
}

TEST_CASE("software run: each key of a file changes the price that it is about") {
    const std::vector<std::string> interleaved = {"script.pipeline=interleaved", "script.chunks=2"};
    const auto change = [](const std::string& key, const std::string& value, const std::vector<std::string>& sets) {
        INFO(key << " = " << value);
        const double changed = step_of(file_with(key, value), sets), own = step_of("orrery", sets);
        CHECK(changed != own);
        return changed / own;
    };
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"stage_overlap", "\"never\""},
                                                          {"attention", "\"separate\""},
                                                          {"attention_code", "\"ampere\""},
                                                          {"loss", "\"torch\""},
                                                          {"loss", "\"separate\""},
                                                          {"elementwise", "\"separate\""},
                                                          {"params", "\"f32\""},
                                                          {"gradient_overlap", "\"no\""},
                                                          {"param_overlap", "\"no\""},
                                                          {"gradient_sums", "\"all_reduce\""},
                                                          {"gradient_adds", "\"apart\""}})
        CHECK(change(key, value, {}) > 1);
    CHECK(change("stage_overlap", "\"never\"", interleaved) > 1);
    CHECK(change("gradients", "\"16_bit\"", {}) < 1);
    CHECK(change("tensors", "\"allocated\"", {}) < 1);
    CHECK(change("eight_bit_params", "\"8_bit\"", {"train.precision=fp8"}) < 1);
    change("tp_overlap", "\"ring\"", {"script.sequence=true"});
    change("stage_messages", "\"scattered\"", {});
    CHECK(step_of(file_with("eight_bit_params", "\"8_bit\"")) == step_of("orrery"));  // nothing is in 8 bits
}

TEST_CASE("software run: messages of flat buffers cost their part of a whole one, scattered ones a part and a gather") {
    const Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 4}});
    const Mapping mapping(h100(), mesh);
    const Constants constants;
    ClusterWires wires(h100(), mesh, mapping, constants);
    SoftwareRun run;
    run.zero = 1;
    run.software.flat = run.software.scatters_messages = true;
    run.software.message_elements = 1 << 26;
    settle(run, {.tp = 4});
    SoftwareWires sent(run, mesh, wires);
    const AxisId pp = 0, dp = 1, tp = 2;
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) all.push_back(rank);
    const auto seconds = [&](auto& of, Opcode opcode, AxisId axis, int64_t bytes) {
        return sent.seconds(of.collective(opcode, axis, bytes, mesh.group(0, axis), all));
    };
    const int64_t whole = int64_t{4} << 26;  // gradients in f32
    CHECK(seconds(sent, Opcode::reduce_scatter, dp, whole / 64) ==
          Approx(seconds(wires, Opcode::reduce_scatter, dp, whole) / 64));
    CHECK(seconds(sent, Opcode::all_gather, dp, whole / 64) ==
          Approx(seconds(wires, Opcode::all_gather, dp, whole / 2) / 32));  // params in bf16
    CHECK(seconds(sent, Opcode::reduce_scatter, dp, 2 * whole) ==
          seconds(wires, Opcode::reduce_scatter, dp, 2 * whole));
    CHECK(seconds(sent, Opcode::all_reduce, dp, 1000) == seconds(wires, Opcode::all_reduce, dp, 1000));  // a norm
    CHECK(seconds(sent, Opcode::all_gather, tp, 1000) == seconds(wires, Opcode::all_gather, tp, 1000));
    const int64_t bytes = 64 << 20, to = mesh.ranks() / 2;
    CHECK(
        sent.seconds(sent.message(pp, bytes, 0, to, {0})) ==
        Approx(sent.seconds(wires.message(pp, bytes / 4, 0, to, {0})) + seconds(wires, Opcode::all_gather, tp, bytes)));
    run.sequence = true;  // each rank has its part anyway
    settle(run, {.tp = 4});
    CHECK(sent.seconds(sent.message(pp, bytes, 0, to, {0})) == sent.seconds(wires.message(pp, bytes, 0, to, {0})));
}

TEST_CASE("software run: names are those of configs/software, a path is your own file") {
    CHECK(software_named("nemo").name == "nemo");
    CHECK_THROWS_WITH(software_named("nmeo"), Catch::Contains("deepspeed, ") && Catch::Contains("torchtitan") &&
                                                  Catch::Contains("did you mean \"nemo\""));
    CHECK_THROWS_WITH(
        software_named("../software/nemo"),
        Catch::Contains("unknown software\n  found in ") &&
            Catch::Contains("torchtitan_compiled\n  name one of them, or give a path that ends in .toml"));
    CHECK(software_named(file_with("loss", "\"torch\"")).loss == SoftwareDefaults::Loss::torch);
    CHECK_THROWS_WITH(software_named(file_with("loss", "\"fast\"")),
                      Catch::Contains("own_loss.toml:") && Catch::Contains("loss.value is \"fast\""));
    CHECK_THROWS_WITH(software_named("no/such.toml"), Catch::Contains("no/such.toml"));
}

TEST_CASE("software run: the interval is of the software's published runs, of all for others") {
    Config file = load_toml(in_source("configs/software_errors.toml"));
    int64_t rows = 0;
    for (const std::string& name : file.keys()) {
        INFO(name);
        Config& table = file.table(name);
        CHECK(table.require_integer("rows") > 0);
        CHECK(table.number("p10", 0) > 0);
        CHECK(table.number("p10", 0) <= table.number("p90", 0));
        if (name == "all") continue;
        rows += table.require_integer("rows");
        CHECK(std::filesystem::exists(in_source("configs/software/" + name + ".toml")));
        const bool own = table.require_integer("rows") >= fewest_runs;
        CHECK(spread_of(name).software == (own ? name : ""));
        if (own) CHECK(spread_of(name).rows == table.require_integer("rows"));
    }
    CHECK(file.table("all").require_integer("rows") == rows);
    for (const std::string& other : {std::string("orrery"), in_source("configs/software/nemo.toml")}) {
        CHECK(spread_of(other).software == "");
        CHECK(spread_of(other).rows == rows);
    }
    const Prediction made = forecast_of("nemo").prediction;
    CHECK_THAT(text(made, ""), Catch::Contains(fmt::format("p10 to p90 by the errors on {} published runs of nemo",
                                                           file.table("nemo").require_integer("rows"))));
}
