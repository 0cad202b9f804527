// What the predictor reads of a row: columns of configuration, a closed list of words, defaults.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <set>

#include "folders.h"
#include "orrery/error.h"
#include "published/accelerators.h"
#include "published/job.h"
#include "published/score.h"

using namespace orrery;
using namespace orrery::published;

namespace {

Row row_of(const std::string& notes = "", const std::string& zero = "none", const std::string& precision = "bf16") {
    Row row;
    row.id = "a row", row.gpu = "H100-80G-SXM", row.model = "gpt-7b", row.precision = precision, row.zero = zero;
    row.notes = notes, row.gpus = 8, row.layers = 4, row.embed = 256, row.heads = 8, row.kv_heads = 8, row.mlp = 1024;
    row.vocab = 1000, row.tokens = 128, row.dp = 8, row.batch = 16, row.micro_batch = 1, row.recompute = "none";
    return row;
}

std::string file_of(const std::string& text) {
    const std::string path = in_build("tests/published_rows.csv");
    std::ofstream(path) << text;
    return path;
}

}  // namespace

TEST_CASE("published: cells with quotes, commas and line ends are read", "[published]") {
    const Table table = read_table(file_of("id,notes,n_gpus\na,\"said \"\"no\"\", twice\",8\nb,\"two\nlines\",\r\n"));
    REQUIRE(table.rows.size() == 2);
    CHECK(table.cell(0, "notes") == "said \"no\", twice");
    CHECK(table.cell(1, "notes") == "two\nlines");
    CHECK(table.cell(1, "n_gpus").empty());
    CHECK(table.cell(0, "unheard").empty());
    CHECK_THROWS_AS(read_table(file_of("id,notes\na\n")), Error);
    CHECK_THROWS_AS(read_table(in_build("tests/no_such.csv")), Error);
}

TEST_CASE("published: the measured columns are gone before a row is read", "[published]") {
    const Table table = without_measured(
        read_table(file_of("id,value,n_gpus,iter_time_s,tok_s_gpu,metric,MFU,peak_mem_gib\na,1,8,2,3,x,50,4\n")));
    CHECK(table.columns == std::vector<std::string>{"id", "n_gpus"});
    CHECK(table.rows[0] == std::vector<std::string>{"a", "8"});
}

TEST_CASE("published: a cell that is no number is named", "[published]") {
    const Table table = read_table(file_of("id,layers\nthe-row,many\n"));
    try {
        read_row(table, 0);
        FAIL("it was read");
    } catch (const Error& error) {
        const std::string text = error.what();
        CHECK(text.find("the-row") != std::string::npos);
        CHECK(text.find("layers") != std::string::npos);
        CHECK(text.find("many") != std::string::npos);
    }
}

TEST_CASE("published: a count that no run can have is named", "[published]") {
    for (const char* column : {"n_gpus", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "tp", "pp",
                               "cp", "ep", "dp", "micro_batch", "vp", "global_batch"})
        for (const char* cell : {"0", "-2", "2.5", "nan", "inf", "1e12"}) {
            const Table table = read_table(file_of(std::string("id,") + column + "\nthe-row," + cell + "\n"));
            INFO(column << " = " << cell);
            CHECK_THROWS_WITH(read_row(table, 0),
                              Catch::Contains("the-row") && Catch::Contains(column) && Catch::Contains(cell));
        }
    CHECK_THROWS_WITH(read_row(read_table(file_of("id,nic_GBps_per_gpu\na,-1\n")), 0), Catch::Contains("nic_GBps"));
    CHECK(read_row(read_table(file_of("id,tp,vp\na,8,\n")), 0).tp == 8);
}

TEST_CASE("published: words say what they say, denials first", "[published]") {
    Row row = row_of();
    row.tp = 2;
    const auto with = [&](const std::string& notes) {
        Row other = row;
        other.notes = notes;
        return words_of(other);
    };
    CHECK(with("").sequence);  // Megatron core, as tp > 1
    CHECK(with("").chunks_tp);
    CHECK(with("SP + TP overlap").sequence);
    CHECK(with("SP + TP overlap").chunks_tp);
    CHECK_FALSE(with("deterministic mode, no SP, no grad fusion").sequence);
    CHECK_FALSE(with("no sequence parallelism (TP all-reduce)").sequence);
    CHECK_FALSE(with("no TP/PP comm overlap").chunks_tp);
    CHECK_FALSE(with("no TP comm overlap, no p2p overlap").chunks_tp);
    CHECK_FALSE(with("no TP comm overlap, no p2p overlap").software.overlaps_stages);
    CHECK(with("").software.overlaps_stages);
    CHECK(with("squared-relu").activation == "relu2");
    CHECK(with("GELU MLP, no bias").activation == "gelu");
    CHECK_FALSE(with("GELU MLP, no bias").bias);
    CHECK(with("unfused attention (2022)").software.separate_attention);
    CHECK_FALSE(with("flash attention").software.separate_attention);
    CHECK(with("MP mode PURE").reduce_bf16);
    CHECK_FALSE(with("fp32 grad accumulation").reduce_bf16);
    CHECK(with("fp32 params").software.f32_params);
}

TEST_CASE("published: no number of the notes is read", "[published]") {
    // Equal but for the numbers in their notes.
    const Words a = words_of(row_of("MFU 42.57% HFU 56.76%; grad_accum 4; flash attention; 1600 Gbps per node"));
    const Words b = words_of(row_of("MFU 12.00% HFU 11.11%; grad_accum 9; flash attention; 9999 Gbps per node"));
    CHECK(a.software.name == b.software.name);
    CHECK(a.activation == b.activation);
    CHECK(a.software.separate_attention == b.software.separate_attention);
    CHECK(a.tied == b.tied);
    CHECK(jobs_of(row_of("grad_accum 4"))[0].toml == jobs_of(row_of("grad_accum 9"))[0].toml);
}

TEST_CASE("published: a row finds its software by its source, else by its words", "[published]") {
    const auto name = [](const Row& row) { return words_of(row).software.name; };
    CHECK(name(row_of("", "FSDP FULL_SHARD")) == "fsdp");
    CHECK(name(row_of("compile", "FSDP full shard")) == "fsdp_compiled");
    CHECK(name(row_of("compile", "FSDP2 full shard")) == "torchtitan_compiled");
    CHECK(name(row_of("eager", "FSDP2 full shard")) == "torchtitan");
    CHECK(name(row_of("", "distributed optimizer (ZeRO-1)")) == "megatron");
    CHECK(name(row_of("unfused attention", "ZeRO-1 (DeepSpeed)")) == "deepspeed");
    CHECK(words_of(row_of("compile", "FSDP2", "fp8 linear")).eight_bit);
    Row row = row_of("", "ZeRO-1");
    CHECK(name(row) == "fsdp");
    row.pp = 2;
    CHECK(name(row) == "megatron");
    row.precision = "fp16";
    CHECK(name(row) == "megatron_2021");
    row.precision = "bf16", row.zero = "distributed optimizer (ZeRO-1), overlapped grad/param sync";
    for (const auto& [source, software] : std::vector<std::pair<std::string, std::string>>{
             {"NVIDIA/Megatron-LM@d98e8a64dd:README", "megatron"},
             {"NVIDIA-NeMo/Megatron-Bridge@067f987df0:docs/performance-summary.md", "megatron_bridge"},
             {"NVIDIA/dgxc-benchmarking@v25.02.02:nemotron/README_340b.md", "nemo"},
             {"calculon-ai/calculon@caa4b11f8f (= arXiv 2205.05198 Table 5)", "megatron_2022"},
             {"bigscience-workshop/bigscience@9e64edec2a:train/tr11-176B-ml", "deepspeed"},
             {"MooreThreads/SimuMax@4dcaae513b:docs/b200", "simumax_megatron"},
             {"InternLM/InternEvo@c628a8c874:doc/en", "internevo"},
             {"huggingface/nanotron@2411b022a7:docs", "nanotron"},
             {"mosaicml/llm-foundry@8c8dd48f72:scripts", "fsdp"}}) {
        row.source = source;
        INFO(source);
        CHECK(name(row) == software);
    }
}

TEST_CASE("published: defaults where a word is missing", "[published]") {
    Row row = row_of();
    const Words gpt = words_of(row);
    CHECK(gpt.activation == "gelu");
    CHECK(gpt.tied);
    CHECK(gpt.bias);
    CHECK(gpt.positions == "learned");
    CHECK_FALSE(gpt.software.separate_attention);
    for (const char* model : {"llama3-8b", "Qwen2.5-72B", "internlm-7b", "mistral-7b", "tinyllama-1.1b"}) {
        row.model = model;
        const Words gated = words_of(row);
        INFO(model);
        CHECK(gated.activation == "swiglu");
        CHECK(gated.norm == "rmsnorm");
        CHECK_FALSE(gated.tied);
        CHECK_FALSE(gated.bias);
    }
    CHECK(words_of(row_of("", "FSDP2 full shard")).zero == 3);
    CHECK(words_of(row_of("", "distributed optimizer")).zero == 1);
    CHECK(words_of(row_of("", "none")).zero == 0);
    CHECK(words_of(row_of("", "ZeRO-1 within 8-GPU node")).replicates);
    for (const Default& one : default_list()) CHECK_FALSE(one.value.empty());
}

TEST_CASE("published: recomputation by its words", "[published]") {
    Row row = row_of();
    const auto of = [&](const std::string& text) {
        row.recompute = text;
        return words_of(row).recompute;
    };
    CHECK(of("none stated") == "none");
    CHECK(of("full") == "full");
    CHECK(of("selective (attention core) + sequence parallel") == "attention");
    CHECK(of("selective layer (every 2nd)") == "every:2");
    CHECK(of("selective op") == "ops");
    CHECK(of("selective") == "every:2");
    row.tp = 2, row.dp = 4;
    CHECK(of("selective") == "attention");  // Megatron core
}

TEST_CASE("published: what a row leaves open is guessed from few candidates", "[published]") {
    Row row = row_of();
    CHECK(jobs_of(row).size() == 1);
    CHECK_FALSE(jobs_of(row)[0].guessed);
    row.micro_batch.reset();
    row.recompute = "";
    const std::vector<Job> jobs = jobs_of(row);
    CHECK(jobs.size() == 4);  // 2 and 1 sequences divide the 2 of a rank; none and full
    for (const Job& job : jobs) CHECK(job.guessed);
    row.batch = 12;  // of 8 ranks
    CHECK_THROWS_WITH(jobs_of(row), Catch::Contains("global_batch 12") && Catch::Contains("dp 8"));
    row.micro_batch = 1;
    CHECK(jobs_of(row)[0].batches == Approx(0.75));
}

TEST_CASE("published: stages of equal cost count the head as blocks, where the software does", "[published]") {
    Row row = row_of();
    row.model = "llama-1b", row.layers = 16, row.embed = 2048, row.mlp = 8192, row.vocab = 131072;
    row.dp = 4, row.pp = 2;
    row.source = "huggingface/nanotron";
    CHECK_THAT(jobs_of(row)[0].toml, Catch::Contains("stage_blocks = \"11,5\"\n"));  // the head is 4 blocks
    row.source = "NVIDIA/Megatron-LM";
    CHECK_THAT(jobs_of(row)[0].toml, !Catch::Contains("stage_blocks"));
    row.source = "huggingface/nanotron", row.layers = 2;  // the second stage would have the head alone
    CHECK_THAT(jobs_of(row)[0].toml, !Catch::Contains("stage_blocks"));
}

TEST_CASE("published: the numbers of experts are read of the notes, and no others", "[published]") {
    Row row = row_of("MoE 8 experts top2 ffn 32768 geglu; capacity factor 1.5; 16.25 experts of Model TFLOP/s/GPU 203");
    row.dp = 4, row.tp = 2, row.ep = 4;
    const Words words = words_of(row);
    CHECK(words.experts.count == 8);
    CHECK(words.experts.top_k == 2);
    CHECK(words.experts.mlp == 0);
    CHECK(words.experts.head_dim == 0);
    CHECK(words.experts.capacity == 1.5);
    CHECK(words.activation == "swiglu");
    CHECK(words.sequence);  // Megatron-LM demands it
    CHECK_THAT(jobs_of(row).at(0).toml, Catch::Contains("dp = 1\nep = 4\ntp = 2\n") &&
                                            Catch::Contains("experts = 8\ntop_k = 2\n") &&
                                            Catch::Contains("expert_mlp = 1024\ncapacity = 1.5000\nparts = 2\n"));
    row.notes = "MoE 128 experts top8 moe_ffn 768, head_dim 128; stop4 of 2e3; no sp";
    const Words small = words_of(row);
    CHECK(small.experts.count == 128);
    CHECK(small.experts.top_k == 8);
    CHECK(small.experts.mlp == 768);
    CHECK(small.experts.head_dim == 128);
    CHECK(small.experts.capacity == 1);
    CHECK_FALSE(small.sequence);
    CHECK(words_of(row_of("flash attention; GELU MLP; 1600 Gbps")).experts.count == 0);
    CHECK_THAT(jobs_of(row_of()).at(0).toml, !Catch::Contains("experts"));
    for (const auto& [notes, part] :
         std::vector<std::pair<std::string, std::string>>{{"8 experts", "top0"},
                                                          {"8 experts top9", "top9"},
                                                          {"6 experts top2", "ep = 4 does not divide 6 experts"},
                                                          {"8 experts top2, capacity factor 0", "capacity factor 0"}}) {
        row.notes = notes;
        CHECK_THROWS_WITH(jobs_of(row), Catch::Contains(part));
    }
}

TEST_CASE("published: meshes that are not the row's, and what is not there yet, are refused", "[published]") {
    Row row = row_of();
    row.gpus = 9;
    CHECK_THROWS_AS(jobs_of(row), Error);
    row = row_of();
    row.cp = 2, row.gpus = 16;
    CHECK_THAT(jobs_of(row).at(0).toml, Catch::Contains("dp = 8\ncp = 2\ntp = 1\n"));
    row.ep = 2;
    CHECK_THROWS_WITH(jobs_of(row), Catch::Contains("ep = 2") && Catch::Contains("do not say how many experts"));
    CHECK_THROWS_AS(accelerator_facts("TPUv9"), Error);
}

TEST_CASE("published: a bracket behind the accelerator states its rate of products", "[published]") {
    CHECK(accelerator_of("B200-HGX8 (this box: GEMM only ~45-65% of 2250)") == "B200-HGX8");
    CHECK(stated_share("B200-HGX8 (this box: GEMM only ~45-65% of 2250)") == Approx(0.55));
    CHECK(stated_share("A100-80G-SXM (4x100Gb RoCE per node)") == 0);
}

TEST_CASE("published: rank correlation, families and floors", "[published]") {
    CHECK(spearman({1, 2, 3, 4}, {10, 20, 30, 40}) == Approx(1));
    CHECK(spearman({1, 2, 3, 4}, {4, 3, 2, 1}) == Approx(-1));
    CHECK(spearman({1, 1, 2, 2}, {1, 1, 2, 2}) == Approx(1));
    std::vector<Scored> rows;
    const auto add = [&](const std::string& family, double predicted, double measured) {
        Scored one;
        one.row = row_of(), one.label.family = family, one.label.measured.step_s = measured;
        one.prediction.step_s = predicted;
        rows.push_back(one);
    };
    for (int i = 0; i < 4; ++i) add("large", 1.1, 1);  // 10 %
    add("small", 1.2, 1);                              // pooled with the next: 30 %
    add("tiny", 1.4, 1);
    const Summary s = summary_of(rows);
    CHECK(s.families == Approx(0.2));
    CHECK(s.median == Approx(0.1));
    CHECK(s.within == Approx(4.0 / 6));
    const std::string without = report(rows);
    rows.push_back(rows.front());  // a row with cp counts in its own line alone
    rows.back().row.cp = 2;
    CHECK(report(rows).starts_with(without));
    CHECK_THAT(report(rows), Catch::Contains("context parallelism, nothing fitted to it"));
    rows.back().row.cp = 1, rows.back().row.ep = 2, rows.back().row.id = "sparse";
    CHECK(report(rows).starts_with(without));
    CHECK_THAT(report(rows), Catch::Contains("expert parallelism, nothing fitted to it") && Catch::Contains("sparse"));
    rows.pop_back();
    const std::vector<Equal> equal = equal_rows(rows);
    REQUIRE(equal.size() == 1);
    CHECK(equal[0].rows == 6);
    CHECK(equal[0].floor == Approx(0));
}
