#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "compile/ids.h"
#include "compile/pipeline.h"
#include "draw/picture.h"
#include "folders.h"
#include "golden.h"
#include "ir/check_program.h"
#include "ir/flops.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "orrery/strategy.h"
#include "plan/lower/lower.h"
#include "plan/summary.h"

using namespace orrery;

namespace {

const std::string source = in_source("");

std::string read(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

int64_t parameters(const Program& program) {
    int64_t n = 0;
    for (const ValueId id : program.params()) n += program.value(id).type.count();
    return n;
}

/// Traces scripts/NAME with a config of configs/ and returns what was compiled.
std::unique_ptr<Experiment> experiment(const std::string& script, const std::string& config,
                                       const std::vector<std::string>& sets = {}) {
    FakeHost host(read(source + "/configs/" + config), sets);
    host.strategies = built_strategy;
    run_script(source + "/scripts/" + script, host);
    CHECK(host.trained == 1);
    REQUIRE(host.experiment);
    return std::move(host.experiment);
}

/// A model of one block, traced as `scripts` would: {train, eval, logits}.
std::unique_ptr<Experiment> small(const std::string& model, const std::string& sizes, const std::string& with = "{}") {
    FakeHost host("[train]\nsteps = 10\nsequences_per_step = 2\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n");
    run_script_text(
        "local o = require 'orrery'\nlocal data = o.data.text {}\n"
        "local m = require('orrery.models." +
            model + "') { layers = 1, vocab = 11, " + sizes +
            " }\n"
            "local p = o.trace('" +
            model +
            "', data.signature, function(b)\n"
            "  return m:loss(b.tokens, b.targets)\nend)\n"
            "p:train_with(o.optim.adamw { lr = 1e-3 }, " +
            with +
            ")\np:weights(m.tensors and m:tensors() or {})\n"
            "p:compile()\n",
        "small.lua", source, host);
    return std::move(host.experiment);
}

}  // namespace

TEST_CASE("the models' programs are as blessed") {
    test::check_golden("lua_gpt.txt", print(small("gpt", "embed = 6, heads = 2, seq = 4, dropout = 0.1")->train()));
    test::check_golden("lua_llama.txt", print(small("llama", "embed = 8, heads = 2, kv_heads = 1, mlp = 5")->train()));
    test::check_golden("lua_qwen2.txt",
                       print(small("qwen2", "embed = 8, heads = 2, kv_heads = 1, mlp = 5")->find("eval")->program));
    test::check_golden(
        "lua_gpt_bf16.txt",
        print(small("gpt", "embed = 6, heads = 2, seq = 5", "{ precision = 'bf16' }")->find("logits")->program));
}

TEST_CASE("with the loss in tiles, logits and the range of ids are those of the plain loss") {
    for (const auto& [model, sizes] : {std::pair<std::string, std::string>{"gpt", "embed = 6, heads = 2, seq = 4"},
                                       {"gpt", "embed = 6, heads = 2, seq = 4, tied = false, rows = 16"},
                                       {"llama", "embed = 8, heads = 2, mlp = 5"},
                                       {"qwen2", "embed = 8, heads = 2, kv_heads = 1, mlp = 5"}}) {
        const auto whole = small(model, sizes + ", loss_tile = 0"), tiles = small(model, sizes + ", loss_tile = 3");
        INFO(model << " " << sizes);
        CHECK(print(tiles->find("logits")->program) == print(whole->find("logits")->program));
        CHECK(vocabulary_of(tiles->train()) == vocabulary_of(whole->train()));
        const std::vector<Layer> row = layers(tiles->train()), of_whole = layers(whole->train());
        REQUIRE(row.size() == of_whole.size());
        for (size_t i = 0; i < row.size(); ++i) CHECK(row[i].flops == of_whole[i].flops);
        const IdRange targets = ids_of(tiles->train()).at("targets"), plain = ids_of(whole->train()).at("targets");
        CHECK((targets.least == plain.least && targets.count == plain.count));
        CHECK(print(small(model, sizes)->train()) == print(whole->train()));
        const std::string text = print(tiles->train());
        CHECK(text.find(" linear_cross_entropy ") != std::string::npos);
        CHECK(text.find(" cross_entropy ") == std::string::npos);
    }
    const std::string sizes = "embed = 6, heads = 2, seq = 4, loss_tile = ";
    CHECK(print(small("gpt", sizes + "-1")->train()) == print(small("gpt", sizes + "false")->train()));
    for (const char* wrong : {"-2", "1.5", "'3'"})
        CHECK_THROWS_WITH(small("gpt", sizes + wrong), Catch::Matchers::Contains("gpt: loss_tile"));
}

TEST_CASE("parameter counts are the published ones") {
    const auto traced = [](const std::string& body) {
        FakeHost host("[train]\nsteps = 10\nsequences_per_step = 1\n[data]\npath = \"x\"\ntokens_per_sequence = 16\n");
        run_script_text("local o = require 'orrery'\nlocal m = " + body +
                            "\nlocal p = o.trace('m', o.data.text{}.signature,"
                            "function(b) return m:loss(b.tokens, b.targets) end)\n"
                            "p:train_with(o.optim.adamw {})\np:weights(m:tensors())\np:compile()",
                        "a.lua", ".", host);
        check_program(host.experiment->train());
        return std::move(host.experiment);
    };
    const auto count = [&](const std::string& body) {
        const auto made = traced(body);
        CHECK(made->recipe->weights.sources.size() == made->train().params().size());
        CHECK(active_parameters(made->train()) == parameters(made->train()));
        return parameters(made->train());
    };
    CHECK(count("require 'orrery.models.gpt' {}") == 124'439'808);
    CHECK(count("require 'orrery.models.gpt' { layers = 48, embed = 1600, heads = 25 }") == 1'557'611'200);
    CHECK(count("require 'orrery.models.llama' {}") == 6'738'415'616);
    CHECK(count("require 'orrery.models.llama' { layers = 80, embed = 8192, heads = 64, kv_heads = 8, mlp = 28672 }") ==
          68'976'648'192);
    CHECK(count("require 'orrery.models.qwen2' {}") == 494'032'768);
    const auto mixtral = traced("require 'orrery.models.mixtral' {}");
    CHECK(parameters(mixtral->train()) == 46'702'792'704);
    CHECK(active_parameters(mixtral->train()) == 12'879'925'248);
    const auto qwen3_moe = traced("require 'orrery.models.qwen3_moe' {}");
    CHECK(parameters(qwen3_moe->train()) == 30'532'122'624);
    CHECK(active_parameters(qwen3_moe->train()) == 3'353'032'704);
}

TEST_CASE("weights say where GPT-2's fused projection is cut") {
    const auto made = small("gpt", "embed = 6, heads = 2, seq = 4");
    const auto find = [&](const std::string& param) {
        for (const WeightSource& w : made->recipe->weights.sources)
            if (w.param == param) return w;
        FAIL(param);
        return WeightSource{};
    };
    const WeightSource v = find("h.0.attn.v.weight");
    CHECK(v.tensor == "transformer.h.0.attn.c_attn.weight");
    CHECK((v.dim == 1 && v.start == 12 && v.size == 6 && !v.transpose));
    const WeightSource k = find("h.0.attn.k.bias");
    CHECK((k.dim == 0 && k.start == 6 && k.size == 6));
    CHECK(find("h.0.mlp.up.weight").tensor == "transformer.h.0.mlp.c_fc.weight");
    const auto llama = small("llama", "embed = 8, heads = 2, kv_heads = 1, mlp = 5");
    for (const WeightSource& w : llama->recipe->weights.sources)
        CHECK(w.transpose == (w.tensor.find("proj") != std::string::npos || w.tensor == "lm_head.weight"));
}

TEST_CASE("every parameter and input names its dims") {
    for (const char* model : {"gpt", "llama", "qwen2", "mixtral"}) {
        const auto made = small(model, std::string("embed = 8, heads = 2, mlp = 5") +
                                           (model == std::string("gpt") ? ", seq = 4" : ", kv_heads = 1"));
        for (const Value& value : made->train().values) {
            if (value.role != Role::param && value.role != Role::input) continue;
            for (const std::string& dim : value.dims) CHECK_FALSE(dim.empty());
        }
    }
}

TEST_CASE("initial weights are as in the papers") {
    const auto made = small("gpt", "embed = 6, heads = 2, seq = 4");
    const auto init = [&](const std::string& name) { return made->train().value(*made->train().find(name)).init; };
    CHECK(init("wte.weight").number("scale") == 0.02);
    CHECK(init("h.0.attn.q.weight").number("scale") == 0.02);
    CHECK(init("h.0.attn.o.weight").number("scale") == Approx(0.02 / std::sqrt(2.0)));
    CHECK(init("h.0.mlp.down.weight").number("scale") == Approx(0.02 / std::sqrt(2.0)));
    CHECK(init("h.0.ln_1.weight").text("kind") == "ones");
    CHECK(init("h.0.ln_1.bias").text("kind") == "zeros");
}

TEST_CASE("decay is for matrices only, unless a group says otherwise") {
    const auto decays = [](const std::string& groups) {
        FakeHost host("[train]\nsteps = 10\nsequences_per_step = 2\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n");
        run_script_text(
            "local o = require 'orrery'\nlocal m = require 'orrery.models.gpt' { layers = 1, embed = 6, heads = 2,"
            "vocab = 11, seq = 4 }\nlocal p = o.trace('m', o.data.text{}.signature,"
            "function(b) return m:loss(b.tokens, b.targets) end)\n"
            "p:train_with(o.optim.adamw { decay = 0.1, groups = " +
                groups + " })\np:compile()",
            "a.lua", ".", host);
        std::map<std::string, double> out;
        const Program& program = host.experiment->train();
        for (const Op& op : program.ops)
            if (op.kind == "adamw") out[program.value(op.inputs[0]).name] = op.attributes.number("decay");
        return out;
    };
    auto all = decays("{}");
    CHECK(all.at("h.0.attn.q.weight") == 0.1);
    CHECK(all.at("wte.weight") == 0.1);
    CHECK(all.at("h.0.attn.q.bias") == 0);
    CHECK(all.at("h.0.ln_1.weight") == 0);
    all = decays("{ { dim = 'vocab', decay = 0 }, { match = '%.bias$', decay = 0.5 } }");
    CHECK(all.at("wte.weight") == 0);
    CHECK(all.at("h.0.attn.q.bias") == 0.5);
    CHECK(all.at("h.0.attn.q.weight") == 0.1);
}

TEST_CASE("the shipped scripts and configurations compile") {
    CHECK(parameters(experiment("gpt.lua", "quickstart.toml")->train()) == 10'819'200);
    experiment("llama.lua", "laptop.toml");
    experiment("gpt.lua", "two_ranks.toml", {"script.model=qwen2", "script.kv_heads=2"});
    experiment("gpt.lua", "two_ranks.toml", {"script.model=mixtral", "script.capacity=2", "script.drop=weight"});
    experiment("gpt.lua", "two_ranks.toml", {"script.model=qwen3_moe", "script.dense=1", "script.expert_mlp=64"});
    experiment("gpt.lua", "four_ranks.toml", {"train.microbatches=2", "train.precision=bf16", "script.dropout=0.1"});
    experiment("gpt.lua", "two_nodes.toml");
    for (const std::string method : {"local_sgd", "diloco", "streaming", "gossip"}) {
        const std::string set = "script.method=" + method;
        CHECK(experiment("gpt.lua", "two_sites.toml", {set})->recipe->also.size() >= 2);
        CHECK(experiment("llama.lua", "two_ranks.toml", {set, "script.islands=dp"})->recipe->also.size() >= 2);
    }
    for (const char* tp : {"mesh.tp=2", "mesh.tp=3"}) {
        const auto made = experiment("mlp.lua", "laptop.toml", {tp});
        const Program spread = distribute(made->train(), made->mesh);
        int64_t reduces = 0;
        for (const Op& op : spread.ops) reduces += op.kind == "all_reduce" && op.attributes.text("axis") == "tp";
        CHECK(reduces >= 4);  // two blocks, forward and backward
    }
}

TEST_CASE("scripts/gpt.lua refuses an option that its model lacks") {
    const auto refused = [](const std::vector<std::string>& sets) -> std::string {
        try {
            const auto made = experiment("gpt.lua", "laptop.toml", sets);
            distribute(made->train(), made->mesh);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(has(refused({"script.model=llama", "script.dropout=0.1"}), "script.dropout = 0.1: llama has no such option"));
    CHECK(has(refused({"script.qk_norm=true"}), "script.qk_norm = true: gpt has no such option, llama has"));
    CHECK(has(refused({"script.kv_heads=3"}), "script.kv_heads = 3: gpt has no such option"));
    CHECK(has(refused({"script.model=qwen2", "script.window=8"}), "script.window = 8: qwen2 has no such option"));
    CHECK(has(refused({"script.model=qwen2", "script.zero_out=true"}), "script.zero_out = true: qwen2 has no such"));
    CHECK(has(refused({"script.model=mixtral", "script.max_capacity=3"}),
              "script.max_capacity = 3.0: nothing reads it without overflow = again"));
    CHECK(has(refused({"script.model=mixtral", "script.balance=none", "script.balance_coefficient=0.1"}),
              "script.balance_coefficient = 0.1: nothing reads it without balance"));
    CHECK(has(refused({"script.model=mixtral", "script.balance_groups=2"}),
              "script.balance_groups = 2: nothing reads it without balance = groups"));
    CHECK(refused({"script.model=mixtral", "script.overflow=again", "script.capacity=3"}) == "");
    CHECK(has(refused({"script.model=qwen3_moe", "script.dense=6"}), "script.dense = 6: none of 6 layers would have"));
    CHECK(has(refused({"script.model=mixtral", "mesh.dp=2", "script.expert_axes=dq"}),
              "script.expert_axes = dq: \"dq\" is not one of the valid names\n  valid names: cp, dp, ep, pp, rep, tp"));
    CHECK(has(refused({"script.model=mixtral", "mesh.dp=2", "script.expert_axes=dp,ap"}),
              "script.expert_axes = dp,ap: \"ap\" is not one of the valid names"));
    CHECK(has(refused({"script.model=mixtral", "mesh.dp=2", "script.expert_axes=cp"}),
              "script.expert_axes = cp: the mesh has no such axis"));
    CHECK(has(refused({"script.method=fedavg"}),
              "script.method = fedavg: expected none, local_sgd, diloco, streaming or gossip"));
    CHECK(has(refused({"script.method=diloco"}), "script.method = diloco: the mesh has no axis site for its islands"));
    CHECK(has(refused({"script.method=gossip", "script.islands=dq", "mesh.dp=2"}), "the mesh has no axis dq"));
    CHECK(has(refused({"script.sync_every=9"}), "script.sync_every = 9: nothing reads it without script.method\n"));
    CHECK(has(refused({"script.islands_codec=int8"}), "script.islands_codec = int8: nothing reads it without"));
    CHECK(has(refused({"script.islands=dp", "mesh.dp=2"}), "script.islands = dp: nothing reads it"));
    CHECK(has(refused({"mesh.site=2"}),
              "mesh.site = 2: the islands of that axis need a method\n  set script.method to "
              "local_sgd, diloco, streaming, gossip, or use mesh.dp"));
    CHECK(has(refused({"script.method=diloco", "mesh.site=2", "script.sync_every=-1"}), "diloco: every is -1"));
    CHECK(refused({"script.model=mixtral", "mesh.dp=2", "script.expert_axes=dp, cp"}) == "");
    CHECK(refused({"script.model=mixtral", "mesh.rep=2", "script.expert_axes=rep"}) == "");
    CHECK(has(refused({"script.recompute=attention,gelo"}),
              "cannot recompute \"gelo\": no marked scope has a forward op of this kind that can run again"));
    CHECK(has(refused({"script.recompute=attention,gelo"}), "did you mean \"gelu\"?"));
    CHECK(has(refused({"script.recompute=rmsnorm,attention"}), "cannot recompute \"rmsnorm\""));
    CHECK(refused({"script.recompute=attention, gelu"}) == "");
    CHECK(has(
        refused({"mesh.pp=2", "script.stages=3,4"}),
        "pipeline: layers lists 2 stages of 7 layers in all; the model has 6 layers, the pipeline 2 stages\n  list"));
    CHECK(has(refused({"mesh.pp=2", "script.stages=1,2,3"}), "layers lists 3 stages of 6 layers in all"));
    CHECK(
        has(refused({"mesh.pp=2", "script.stages=4,two"}), "script.stages = 4,two: \"two\" is not a number of layers"));
    CHECK(has(refused({"script.stages=4,2"}), "script.stages = 4,2: the mesh has one rank on pp"));
    CHECK(has(refused({"mesh.rep=2", "script.replicate=reb"}), "script.replicate = reb: the mesh has no such axis"));
    CHECK(has(refused({"mesh.dp=2", "script.zero=3", "script.replicate=dp"}),
              "replicate is dp, an axis that it splits over"));
    CHECK(has(refused({"mesh.pp=4", "script.pipeline=interleaved", "train.microbatches=4"}),
              "pipeline: the model has 6 layers, too few for 8 stages (schedule interleaved, 4 ranks on pp, 2 chunks "
              "each)"));
    CHECK(has(refused({"script.model=mlp"}), "script.model = mlp: expected gpt, llama, qwen2, mixtral or qwen3_moe"));
    CHECK(refused({"script.model=llama", "script.kv_heads=3", "script.qk_norm=true", "script.window=8"}) == "");
}

TEST_CASE("the memory report has sums of gradients and copies of params on lines of their own") {
    const auto of = [](const char* codec) {
        const auto made = experiment("gpt.lua", "laptop.toml",
                                     {"mesh.dp=2", "train.precision=bf16", "train.microbatches=2",
                                      std::string("script.codec=") + codec, "script.embed=192"});
        Persistent persistent;
        const Mesh mesh = made->mesh.with_microbatches(2);
        const Plan plan = plan_of(distribute(made->train(), mesh), mesh, persistent);
        const PlanSummary all = summary(plan);
        const std::string text = all.text(mesh);
        for (const char* line :
             {"at the fullest moment of the step:\n    gradients ", "\n    param copies ", "\n    activations "})
            CHECK(has(text, line));
        const auto count = static_cast<double>(parameters(made->train()));
        CHECK(static_cast<double>(all.classes.at(0).param_copies) == Approx(2 * count).epsilon(0.05));
        CHECK(static_cast<double>(all.classes.at(0).gradients) > 3.9 * count);  // f32, whatever is sent
        const auto points = picture(plan, false, 0).memory.at(0).points;        // the picture has the same parts
        const auto fullest = *std::ranges::max_element(points, {}, &MemoryCurve::Point::all);
        CHECK(fullest.gradients == all.classes[0].gradients);
        CHECK(fullest.param_copies == all.classes[0].param_copies);
        CHECK(fullest.activations == all.classes[0].activations);
        return all.classes.at(0);
    };
    const ClassSummary wide = of("none"), narrow = of("bf16");
    CHECK(static_cast<double>(narrow.activations) == Approx(static_cast<double>(wide.activations)).epsilon(0.05));
}

TEST_CASE("gpt.lua with script.stages has as many layers in each stage") {
    const auto made = experiment("gpt.lua", "laptop.toml", {"mesh.pp=2", "script.stages=2,4"});
    const Program spread = distribute(made->train(), made->mesh);
    std::map<std::string, int> stage_of;
    for (const Op& op : spread.ops)
        if (op.phase == Phase::forward && op.scope.starts_with("h.")) stage_of[op.scope.substr(0, 3)] = op.stage;
    const std::map<std::string, int> wanted{{"h.0", 0}, {"h.1", 0}, {"h.2", 1}, {"h.3", 1}, {"h.4", 1}, {"h.5", 1}};
    CHECK(stage_of == wanted);
}

TEST_CASE("gpt.lua with mesh.rep splits params over dp alone and sums gradients over both") {
    for (const char* zero : {"0", "1", "3"}) {
        CAPTURE(zero);
        const auto made =
            experiment("gpt.lua", "laptop.toml",
                       {"mesh.rep=2", "mesh.dp=2", std::string("script.zero=") + zero, "train.sequences_per_step=8"});
        const Program spread = distribute(made->train(), made->mesh);
        const AxisId rep = *made->mesh.find("rep"), dp = *made->mesh.find("dp");
        std::map<std::string, std::set<std::string>> axes_of;
        for (const Op& op : spread.ops)
            if (op_def(op.kind).collective) axes_of[op.kind].insert(op.attributes.text("axis"));
        for (const ValueId param : spread.params()) {
            CHECK(spread.value(param).layout.at(rep) == Placement::replicated());
            const bool split = spread.value(param).layout.at(dp).kind == Placement::Kind::split;
            CHECK(split == (std::string(zero) == "3"));
        }
        for (const ValueId input : spread.inputs())
            if (spread.dim(input, "batch"))
                for (const AxisId axis : {rep, dp})
                    CHECK(spread.value(input).layout.at(axis).kind == Placement::Kind::split);
        CHECK(axes_of["all_reduce"].contains("rep"));
        CHECK(axes_of["all_gather"] ==
              (std::string(zero) == "0" ? std::set<std::string>{} : std::set<std::string>{"dp"}));
    }
}

TEST_CASE("data parallelism of gpt adds one reduction a gradient and two scalars") {
    const auto made = experiment("gpt.lua", "quickstart.toml");
    const Program spread = distribute(made->train(), made->mesh);
    std::map<std::string, int64_t> collectives;
    for (const Op& op : spread.ops)
        for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
            if (op.kind == kind) ++collectives[kind];
    CHECK(collectives.size() == 1);
    CHECK(collectives["all_reduce"] == static_cast<int64_t>(made->train().params().size()) + 2);
}

TEST_CASE("llama70b traces in the time and memory that check has") {
    const auto made = experiment("gpt.lua", "llama70b.toml");
    CHECK(parameters(made->train()) == 68'976'648'192);
    CHECK(made->mesh.ranks() == 1024);
}

TEST_CASE("the Lua twin of the data strategy gives the identical program") {
    const auto spread = [](const std::string& kind, const std::string& more = "", const std::string& axis = "'dp'") {
        FakeHost host(read(source + "/configs/two_ranks.toml"), {"mesh.cp=2"});
        host.strategies = built_strategy;
        run_script_text(
            "local o = require 'orrery'\nlocal m = require 'orrery.models.gpt' { layers = 2, embed = 12, heads = 2,"
            "vocab = 256, seq = 64 }\nlocal p = o.trace('m', o.data.text{}.signature,"
            "function(b) return m:loss(b.tokens, b.targets) end)\np:train_with(o.optim.adamw {})\n"
            "p:parallel { o." +
                kind + ".data { axis = " + axis + ", bucket_mib = 4" + more + " } }\np:compile()",
            "a.lua", ".", host);
        const Experiment& made = *host.experiment;
        const auto text = [&](const Program& program) {
            const Program done = distribute(program, made.mesh);
            return print(done, &made.mesh);
        };
        return print(made.train()) + text(made.train()) + text(made.find("eval")->program);
    };
    const std::string plugin = spread("strategy");
    CHECK(plugin.find("all_reduce") != std::string::npos);
    CHECK(plugin.find("by data, a.lua:5") != std::string::npos);
    CHECK(plugin == spread("strategies"));
    const std::string both = spread("strategy", "", "{ 'dp', 'cp' }");
    CHECK(both.find("cp:S(0)") != std::string::npos);
    CHECK(both == spread("strategies", "", "{ 'dp', 'cp' }"));
    for (const char* kind : {"strategy", "strategies"}) {
        CHECK_THROWS_WITH(spread(kind, "", "{}"),
                          Catch::Contains("a.lua:") && Catch::Contains("strategy data: axis is an empty list"));
        CHECK_THROWS_WITH(spread(kind, "", "{ 'dp', 'dp' }"),
                          Catch::Contains("a.lua:") && Catch::Contains("axis names the axis dp twice"));
    }
    const std::string narrow = ", reduce = 'bf16'";
    CHECK(spread("strategy", narrow).find("\n  codec dp bf16\n") != std::string::npos);
    CHECK(spread("strategy", narrow) == spread("strategies", narrow));
    const std::string own = ", codec = 'dp=bf16'", axes = "{ 'dp', 'cp' }";
    CHECK(spread("strategy", own, axes).find("\n  codec dp bf16\n") != std::string::npos);
    CHECK(spread("strategy", own, axes).find("codec cp") == std::string::npos);
    CHECK(spread("strategy", own, axes) == spread("strategies", own, axes));
    for (const char* kind : {"strategy", "strategies"})
        CHECK_THROWS_WITH(spread(kind, own + ", feedback = true", axes),
                          Catch::Contains("a.lua:") && Catch::Contains("feedback has no effect: each axis (dp, cp)"));
    for (const char* kind : {"strategy", "strategies"})
        for (const char* codec : {"tp=int8", "dp=int8,cp", "dp=int8,dp=int4"})
            CHECK_THROWS_WITH(spread(kind, ", codec = '" + std::string(codec) + "'", axes),
                              Catch::Contains("a.lua:") && Catch::Contains("codec \"" + std::string(codec) + "\""));
    CHECK(spread("strategies", ", reduce = 'f32'") == plugin);
    CHECK_THROWS_WITH(spread("strategies", ", reduce = 'f16'"),
                      Catch::Contains("gradients over dp cannot be sent as f16"));
    CHECK_THROWS_WITH(spread("strategies", ", reduce = 'half'"), Catch::Contains("unknown type \"half\""));
    CHECK_THROWS_WITH(spread("strategy", ", reduce = 'half'"), Catch::Contains("a.lua:") &&
                                                                   Catch::Contains("reduce is \"half\"") &&
                                                                   Catch::Contains("\"bf16\" in half the bytes"));
}

TEST_CASE("data with zero is the strategy zero in data's name") {
    const auto train = [](const std::string& strategy) {
        FakeHost host(read(source + "/configs/two_ranks.toml"));
        host.strategies = built_strategy;
        run_script_text(
            "local o = require 'orrery'\nlocal m = require 'orrery.models.gpt' { layers = 1, embed = 12, heads = 2,"
            "vocab = 256, seq = 64 }\nlocal p = o.trace('m', o.data.text{}.signature,"
            "function(b) return m:loss(b.tokens, b.targets) end)\np:train_with(o.optim.adamw {})\n"
            "p:parallel { o.strategy." +
                strategy + " }\np:compile()",
            "a.lua", ".", host);
        return host.experiment->train();
    };
    for (const char* stage : {"1", "2", "3"}) {
        const Program data = train("data { bucket_mib = 4, reduce = 'bf16', zero = " + std::string(stage) + " }");
        const Program zero = train("zero { bucket_mib = 4, reduce = 'bf16', stage = " + std::string(stage) + " }");
        CHECK(data.edges() == zero.edges());
        CHECK(data.axes_with("codec") == std::vector<std::string>{"dp"});
        REQUIRE(data.marks().size() == zero.marks().size());
        for (size_t i = 0; i < data.marks().size(); ++i) {
            const Mark &a = data.marks()[i], &b = zero.marks()[i];
            CHECK((a.value == b.value && a.what == b.what && a.axis == b.axis && a.placement == b.placement &&
                   a.keep == b.keep && a.optional == b.optional));
            CHECK(a.origin.text() == "data, a.lua:5");
        }
        CHECK(data.bucket_bytes("dp") == 4 << 20);
        CHECK(zero.marks()[0].origin.text() == "zero, a.lua:5");
    }
    CHECK(train("zero { stage = 3 }").prefetch_depth("dp") == std::nullopt);
    CHECK(train("zero { stage = 3, prefetch = 2 }").prefetch_depth("dp") == PrefetchDepth{2, 0});
    CHECK(train("data { zero = 3, prefetch_mib = 8 }").prefetch_depth("dp") == PrefetchDepth{0, 8 << 20});
    const auto refused = [&](const std::string& strategy, const char* why) {
        CHECK_THROWS_WITH(train(strategy), Catch::Contains("a.lua:5") && Catch::Contains(why));
    };
    refused("zero { stage = 2, prefetch = 1 }", "prefetch applies only to the gathers of stage 3; stage is 2");
    refused("zero { stage = 3, prefetch = -1 }", "prefetch is -1");
    refused("zero { stage = 3, prefetch_mib = 0 }", "prefetch_mib is 0");
    refused("zero { stage = 3, prefetch = 1, prefetch_mib = 8 }", "give one");
    refused("data { zero = 2, prefetch = 1 }", "prefetch");
    CHECK_THROWS_WITH(train("data { zero = 4 }"), Catch::Contains("a.lua:5") && Catch::Contains("zero is 4"));
    CHECK_THROWS_WITH(train("data { zero = 1, stage = 2 }"), Catch::Contains("stage"));
}
