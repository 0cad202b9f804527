// `orrery simulate --software` and the predictor of published rows give a step the same time.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "cli/simulate/forecast.h"
#include "folders.h"
#include "published/predict.h"

using namespace orrery;
using namespace orrery::published;

TEST_CASE("published: orrery simulate --software predicts the same step of a Llama", "[published]") {
    Row row;
    row.id = "a row", row.gpu = "H100-80G-SXM", row.model = "llama", row.precision = "bf16", row.recompute = "none";
    row.gpus = 16, row.layers = 8, row.embed = 2048, row.heads = row.kv_heads = 16, row.mlp = 5632, row.vocab = 4096;
    row.tokens = 2048, row.batch = 64, row.micro_batch = 1, row.nic_bytes_per_s = 50e9;
    const auto same = [&](const std::string& software, const std::vector<std::string>& sets) {
        INFO(row.source << ", " << row.precision);
        const double of_row = predict(row, in_source("bench/published/model.lua"), Constants()).step_s;
        ScriptCommand job;
        job.script = in_source("scripts/gpt.lua");
        job.sets = {"script.model=llama",
                    "script.layers=8",
                    "script.embed=2048",
                    "script.heads=16",
                    "script.mlp=5632",
                    "script.loss_tile=0",
                    "data.path=",
                    "data.vocab=4096",
                    "data.tokens_per_sequence=2048",
                    "train.steps=1",
                    "train.sequences_per_step=64",
                    "train.precision=" + row.precision,
                    fmt::format("mesh.pp={}", row.pp),
                    fmt::format("mesh.dp={}", row.dp),
                    fmt::format("mesh.tp={}", row.tp),
                    fmt::format("train.microbatches={}", row.batch / row.dp)};
        job.sets.insert(job.sets.end(), sets.begin(), sets.end());
        SimulateCommand command;
        command.software = software;
        if (row.pp > 1) command.mapping = {"tp", "dp", "pp"};  // as the axes of the mesh of a row
        const Forecast made = forecast(job, read_cluster(in_source("configs/clusters/h100.toml"), 2), command);
        CHECK(words_of(row).software.name == software);
        // Messages that gpt.lua joins have another size.
        CHECK(made.prediction.step_s == Approx(of_row).epsilon(0.02));
    };
    row.source = "pytorch/torchtitan@x", row.zero = "FSDP2 full shard", row.dp = 16;
    same("torchtitan", {"script.zero=3"});
    row.source = "NVIDIA/NeMo@x", row.zero = "distributed optimizer (ZeRO-1)";
    row.tp = 4, row.pp = 2, row.dp = 2, row.chunks = 2;
    for (const char* precision : {"bf16", "fp8"}) {
        row.precision = precision;
        same("nemo", {"script.zero=1", "script.sequence=true", "script.pipeline=interleaved", "script.chunks=2"});
    }
    row.precision = "bf16", row.source = "bigscience-workshop/bigscience@x", row.zero = "ZeRO-1", row.chunks = 1;
    same("deepspeed", {"script.zero=1"});
}
