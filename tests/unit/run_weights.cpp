// Published files against the models of scripts/gpt.lua: what no param is read from is an error.
#include "run/checkpoint/restore/pretrained.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "safetensors_bytes.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// A file of tests/parity with tensors more: its sizes, then { name, shape, first value }.
struct Published {
    struct More {
        std::string name;
        Shape shape;
        float value;
    };

    Published(const std::string& kind, const std::vector<More>& more, const std::string& copied = "",
              const std::string& as = "")
        : path(in_build("published.safetensors")) {
        const SafetensorsFile from(in_source("tests/parity/" + kind + "/model.safetensors"));
        std::vector<NamedTensor> all;
        std::vector<std::vector<std::byte>> read;
        const auto add = [&](const std::string& name, const std::string& of) {
            read.push_back(from.bytes_of(of));
            all.push_back({name, {read.back().data(), from.tensor(of).type.dtype, from.tensor(of).type.shape}});
        };
        for (const StoredTensor& tensor : from.tensors()) add(tensor.name, tensor.name);
        std::vector<std::vector<float>> values;
        for (const More& one : more) {
            values.emplace_back(static_cast<size_t>(count_of(one.shape)), one.value);
            all.push_back({one.name, {values.back().data(), DType::f32, one.shape}});
        }
        if (!copied.empty()) add(as, copied);
        const auto bytes = safetensors_bytes(all);
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    ~Published() { std::filesystem::remove(path); }

    std::string path;
};

/// What is said of the file when scripts/gpt.lua would start from it; "" when it is taken.
std::string refusal(const Published& file, const std::string& sizes, const std::vector<std::string>& sets = {}) {
    FakeHost host(
        "[train]\nsteps = 10\nsequences_per_step = 3\n[data]\npath = \"x\"\ntokens_per_sequence = 16\n" + sizes, sets);
    host.strategies = built_strategy;
    run_script(in_source("scripts/gpt.lua"), host);
    try {
        check_weights(host.experiment->train(), file.path, host.experiment->recipe->weights);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "";
}

const std::string gpt = "vocab = 97\n[script]\nlayers = 3\nembed = 36\nheads = 4\nmlp = 50\n";
const std::string llama =
    "vocab = 97\n[script]\nmodel = \"llama\"\nlayers = 2\nembed = 40\nheads = 4\nkv_heads = 2\nmlp = 50\n";
const std::string qwen2 =
    "vocab = 89\n[script]\nmodel = \"qwen2\"\nlayers = 3\nembed = 36\nheads = 6\nkv_heads = 2\nmlp = 50\n";

}  // namespace

TEST_CASE("published files of each model are taken whole") {
    CHECK(refusal(Published("gpt2", {}), gpt) == "");
    CHECK(refusal(Published("llama", {}), llama) == "");
    CHECK(refusal(Published("qwen2", {}), qwen2) == "");
}

TEST_CASE("a head of the file's own is not dropped for a tied one") {
    const Published untied("qwen2", {{"lm_head.weight", {89, 36}, 0.5f}});
    const std::string text = refusal(untied, qwen2);
    CHECK_THAT(text, Contains("gpt.lua:") &&
                         Contains("published.safetensors: tensor lm_head.weight differs from "
                                  "model.embed_tokens.weight") &&
                         Contains("script.tied = \"no\""));
    CHECK(refusal(untied, qwen2, {"script.tied=no"}) == "");
    CHECK(refusal(Published("qwen2", {}, "model.embed_tokens.weight", "lm_head.weight"), qwen2) == "");
    CHECK_THAT(refusal(Published("gpt2", {{"lm_head.weight", {97, 36}, 0.5f}}), gpt), Contains("differs from wte"));
    CHECK(refusal(Published("gpt2", {}, "wte.weight", "lm_head.weight"), gpt) == "");
    CHECK_THAT(refusal(Published("llama", {}), llama, {"script.tied=yes"}), Contains("lm_head.weight differs"));
}

TEST_CASE("biases that the model lacks are not dropped") {
    const std::string text = refusal(Published("qwen2", {}), qwen2, {"script.model=llama", "script.tied=yes"});
    CHECK_THAT(text,
               Contains("the model has no param for 9 of its 38 tensors: model.layers.*.self_attn.k_proj.bias (3), "
                        "model.layers.*.self_attn.q_proj.bias (3), model.layers.*.self_attn.v_proj.bias (3)") &&
                   Contains("script.model"));
}

TEST_CASE("layers that the model lacks are not dropped") {
    const std::string text = refusal(Published("llama", {}), llama, {"script.layers=1"});
    CHECK_THAT(text,
               Contains("the model has no param for 9 of its 21 tensors: model.layers.*.input_layernorm.weight, ") &&
                   Contains("and 1 more kinds") && Contains("script.layers"));
    CHECK_THAT(refusal(Published("gpt2", {}), gpt, {"script.layers=2"}), Contains("the model has no param for 12 of"));
}

TEST_CASE("what a model's table ignores may be there, and nothing that only looks like it") {
    CHECK(refusal(Published("gpt2", {{"h.0.attn.bias", {1, 1, 16, 16}, 1}, {"h.2.attn.masked_bias", {}, -1e4f}}),
                  gpt) == "");
    CHECK(refusal(Published("llama", {{"model.layers.1.self_attn.rotary_emb.inv_freq", {5}, 1}}), llama) == "");
    CHECK_THAT(refusal(Published("gpt2", {{"h.0.attn.bias2", {1}, 1}}), gpt), Contains("h.*.attn.bias2"));
    CHECK_THAT(refusal(Published("llama", {{"rotary_emb.inv_freq", {5}, 1}}), llama), Contains("rotary_emb.inv_freq"));
}

TEST_CASE("a part of a fused tensor that no param is read from is not dropped") {
    const Published file("gpt2", {{"fused", {3, 36}, 1}});
    // What is said when the params a, b and c, all [1,36], are read from these parts of it.
    const auto said = [&](const std::string& parts) -> std::string {
        FakeHost host;
        run_script_text(
            "local o = require 'orrery'\n"
            "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 }, { 'in', 36 } }) }, function(b)\n"
            "  local sum = b.x:sum()\n"
            "  for _, name in ipairs { 'a', 'b', 'c' } do\n"
            "    local w = o.param { name = name, shape = { { 'out', 1 }, { 'in', 36 } } }\n"
            "    sum = sum + (b.x * w):sum()\n"
            "  end\n"
            "  return sum, b.x:sum()\nend)\n"
            "p:train_with(o.optim.sgd {})\n"
            "p:weights { ignore = { 'h.*', 'w*', 'ln_f*' }, " +
                parts + " }\np:compile()\n",
            "a.lua", "", host);
        try {
            check_weights(host.experiment->train(), file.path, host.experiment->recipe->weights);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const auto part = [](const std::string& param, int number) {
        return "{ param = '" + param + "', tensor = 'fused', part = { 1, " + std::to_string(number) + ", 3 } }, ";
    };
    const std::string all = "tensor fused is [3,36], but params are read from ";
    CHECK(said(part("a", 1) + part("b", 2) + part("c", 3)) == "");
    CHECK_THAT(said(part("a", 1) + part("b", 2) + part("c", 2)), Contains(all + "1 to 1, 2 to 2 of 3 along dim 1"));
    CHECK_THAT(said(part("a", 1) + part("b", 1) + part("c", 3)), Contains(all + "1 to 1, 3 to 3 of 3 along dim 1"));
    CHECK_THAT(said(part("a", 2) + part("b", 2) + part("c", 2)), Contains(all + "2 to 2 of 3 along dim 1"));
}

TEST_CASE("params of a new head keep their initial values where the file has none, and are read where it has") {
    struct Said {
        std::vector<std::string> fresh;
        std::string problem;
    };
    const auto said = [](const std::vector<Published::More>& more, const std::string& table) -> Said {
        const Published file("gpt2", more);
        FakeHost host;
        try {
            run_script_text(
                "local o = require 'orrery'\n"
                "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 }, { 'in', 36 } }) }, function(b)\n"
                "  local sum = b.x:sum()\n"
                "  for _, name in ipairs { 'ln_f.weight', 'score.weight' } do\n"
                "    sum = sum + (b.x * o.param { name = name, shape = { { 'in', 36 } } }):sum()\n"
                "  end\n"
                "  return sum, b.x:sum()\nend)\n"
                "p:train_with(o.optim.sgd {})\n"
                "p:weights { ignore = { 'h.*', 'w*', 'ln_f.bias' }, " +
                    table + " }\np:compile()\n",
                "a.lua", "", host);
            return {check_weights(host.experiment->train(), file.path, host.experiment->recipe->weights), ""};
        } catch (const Error& error) {
            return {{}, error.what()};
        }
    };
    const std::string body = "{ param = 'ln_f.weight' }, ";
    const std::vector<Published::More> without, with{{"score.weight", {36}, 1}};
    CHECK(said(without, body + "fresh = { 'score.*' }").fresh == std::vector<std::string>{"score.weight"});
    CHECK(said(without, body + "{ param = 'score.weight' }, fresh = { 'score.*' }").fresh.size() == 1);
    CHECK(fresh_text({"score.weight"}, "a") == "a has no tensor for score.weight: initialized as in a new run");
    const Said read = said(with, body + "fresh = { 'score.*' }");
    CHECK(read.problem == "");
    CHECK(read.fresh.empty());
    CHECK_THAT(said({{"score.weight", {35}, 1}}, body + "fresh = { 'score.*' }").problem,
               Contains("tensor score.weight is f32[35], expected [36]"));
    CHECK(
        said(without, body + "{ param = 'score.weight', tensor = 'fused', part = { 1, 1, 2 } }, fresh = { 'score.*' }")
            .fresh.size() == 1);
    CHECK_THAT(said(without, body).problem,
               Contains("a.lua:") && Contains("param score.weight is missing in the list") && Contains("`fresh`"));
    CHECK_THAT(said(without, body + "{ param = 'score.weight' }").problem, Contains("score.weight"));
    CHECK_THAT(said(without, body + "fresh = { 'score.*', 'scores.*' }").problem,
               Contains("weights: fresh: no param matches \"scores.*\""));
}

TEST_CASE("states begin as in a new run where the file has none, and only training needs theirs") {
    const auto experiment = [](const std::string& table) {
        FakeHost host;
        run_script_text(
            "local o = require 'orrery'\n"
            "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 }, { 'in', 36 } }) }, function(b)\n"
            "  local y = b.x * o.param { name = 'ln_f.weight', shape = { { 'in', 36 } } }\n"
            "  if o.training() then\n"
            "    local mean = o.state { name = 'mean', shape = { { 'in', 36 } } }\n"
            "    mean:next(mean * 0.5)\n    y = y + mean\n"
            "  end\n"
            "  return y:sum(), b.x:sum()\nend)\n"
            "p:train_with(o.optim.sgd {})\n"
            "p:weights { ignore = { 'h.*', 'w*', 'ln_f.*' }, " +
                table + " }\np:compile()\n",
            "a.lua", "", host);
        return std::move(host.experiment);
    };
    const auto fresh = experiment("{ param = 'ln_f.weight' }, { param = 'mean' }, fresh = { 'mea*' }");
    const auto of = [](const Experiment& made, const Program& program, const Published& from) {
        return check_weights(program, from.path, made.recipe->weights);
    };
    CHECK(of(*fresh, fresh->train(), Published("gpt2", {})) == std::vector<std::string>{"mean"});
    const auto parts = experiment(
        "{ param = 'mean', tensor = 'fused', part = { 1, 1, 2 } }, "
        "{ param = 'ln_f.weight', tensor = 'fused', part = { 1, 2, 2 } }");
    const Published file("gpt2", {{"fused", {72}, 1}});
    CHECK(!parts->find("eval")->program.find("mean"));
    CHECK(of(*parts, parts->train(), file).empty());
    CHECK(of(*parts, parts->find("eval")->program, file).empty());
}

TEST_CASE("a model's table of names is checked") {
    const auto said = [](const std::string& table) -> std::string {
        FakeHost host;
        try {
            run_script_text(
                "local o = require 'orrery'\n"
                "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 } }) }, function(b)\n"
                "  return (b.x * o.param { name = 'w', shape = { { 'batch', 1 } } }):sum(), b.x:sum()\nend)\n"
                "p:weights { { param = 'w' }, " +
                    table + " }",
                "a.lua", "", host);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(said("ignore = { 'a', 'b' }, copies = { c = 'd' }") == "");
    CHECK_THAT(said("ignored = { 'a' }"),
               Contains("a.lua:5: weights: unknown option \"ignored\"") && Contains("did you mean \"ignore\"?"));
    CHECK_THAT(said("ignore = 'a'"), Contains("weights: ignore is the text \"a\", expected a list of texts"));
    CHECK_THAT(said("copies = { 'd' }"), Contains("weights: copies"));
    CHECK_THAT(said("copies = { c = 1 }"), Contains("weights: copies: c is the number 1, expected a text"));
}
