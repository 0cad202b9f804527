// What a model says of itself for exports: config.json by the tables that reading goes by, and back.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/export/published_record.h"

using namespace orrery;

namespace {

/// What a script says of its model; `model`: an expression of Lua that makes one.
PublishedRecord record_of(const std::string& model) {
    FakeHost host("[train]\nsteps = 10\nsequences_per_step = 2\n[data]\npath = \"x\"\ntokens_per_sequence = 13\n");
    host.strategies = built_strategy;
    run_script_text("local o = require \"orrery\"\nlocal data = o.data.file {}\nlocal model = " + model + R"(
local program = o.trace("m", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 1e-3 })
if model.tensors then program:weights(model:tensors()) end
program:compile())",
                    "test.lua", in_source("scripts"), host);
    return PublishedRecord::of(host.experiment->train(), host.experiment->recipe->weights);
}

/// The same of a model that config.json describes.
PublishedRecord read_again(const Json& config) {
    const std::string folder = in_build("as_published");
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/config.json") << config.dump();
    PublishedRecord record = record_of("(o.published.model(\"" + folder + "\", { seq = 13, multiple = 1 }))");
    std::filesystem::remove_all(folder);
    return record;
}

std::string made_from(const std::string& fixture) {
    const std::string folder = in_source("tests/transformers/" + fixture);
    return "(function() local found = o.published.read(\"" + folder +
           "\", { seq = 13 })\nreturn require(\"orrery.models.\" .. found.model)(found.sizes) end)()";
}

Json sorted(const Json& config) {
    std::map<std::string, Json> keys;
    for (const auto& [key, value] : config.items()) keys[key] = value;
    Json all = Json::object();
    for (const auto& [key, value] : keys) all[key] = value;
    return all;
}

}  // namespace

TEST_CASE("a model of a published config says the same config when it is made by its options") {
    for (const std::string name :
         {"deepseek_v3", "deepseek_v3_mtp", "gpt2", "gpt2_bare", "gpt_oss", "llama", "llama_old", "llama_yarn",
          "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_windows", "qwen3", "qwen3_moe"}) {
        INFO(name);
        const PublishedRecord made = record_of(made_from(name));
        const std::string path = in_source("tests/transformers/" + name + "/config.json");
        std::ifstream in(path);
        const Json given = parse_json(std::string{std::istreambuf_iterator<char>(in), {}}, {"", path});
        CHECK(made.architecture == given["model_type"].get<std::string>());
        for (const auto& [key, value] : made.config.items()) {
            const bool ours = key == "architectures" || key == "bos_token_id" || key == "eos_token_id" ||
                              key.starts_with("rope_") || key.ends_with("_pdrop") || key == "activation_function" ||
                              key == "max_position_embeddings" || key == "sliding_window" ||
                              key == "decoder_sparse_step" || key == "mlp_only_layers" ||
                              key == "num_nextn_predict_layers";
            if (ours || !given.contains(key)) continue;
            INFO(key);
            if (!value.is_null() && !given[key].is_null()) CHECK(value == given[key]);
        }
        // What it says is read to the same model, with all of its params in the same places.
        const PublishedRecord again = read_again(made.config);
        CHECK(sorted(again.config) == sorted(made.config));
        REQUIRE(again.params.size() == made.params.size());
        CHECK(PublishedRecord::parse(again.text(), "x").text() == again.text());
    }
}

TEST_CASE("models made here are what their options make them") {
    const auto llama = [](const std::string& options) {
        return record_of("require \"orrery.models.llama\" { layers = 2, embed = 12, heads = 3, mlp = 20, vocab = 17" +
                         options + " }");
    };
    const PublishedRecord plain = llama("");
    CHECK(plain.architecture == "llama");
    CHECK(plain.config["num_key_value_heads"] == 3);
    CHECK(plain.config["head_dim"] == 4);
    CHECK(plain.config["rope_theta"] == 10000.0);
    CHECK(plain.config["rope_scaling"].is_null());
    CHECK(plain.config["max_position_embeddings"] == 13);
    CHECK(plain.config["tie_word_embeddings"] == false);
    CHECK(llama(", qk_norm = true").architecture == "qwen3");
    CHECK(llama(", bias = true").config["attention_bias"] == true);
    CHECK(llama(", window = 5").architecture == "mistral");
    const PublishedRecord window = llama(", window = 5, qkv_bias = true");
    CHECK(window.architecture == "qwen2");
    CHECK(window.config["use_sliding_window"] == true);
    CHECK(window.config["max_window_layers"] == 0);
    CHECK(read_again(window.config).config["sliding_window"] == 5);
    const PublishedRecord windows = llama(", windows = { 0, 5 }, qkv_bias = true");
    CHECK(windows.architecture == "qwen2");
    CHECK(windows.config["layer_types"] == Json({"full_attention", "sliding_attention"}));
    CHECK(sorted(read_again(windows.config).config) == sorted(windows.config));
    CHECK_THROWS_WITH(llama(", windows = { 0, 5 }").require_published("x"), Catch::Contains("windows of some layers"));
    CHECK_THROWS_WITH(llama(", windows = { 4, 5 }, qk_norm = true").require_published("x"),
                      Catch::Contains("windows of 4 and of 5 keys"));
    CHECK_THROWS_WITH(llama(", windows = { 5 }"), Catch::Contains("llama: windows has 1 numbers for 2 layers"));
    const PublishedRecord yarn = llama(
        ", rope_scaling = { factor = 4.0, beta_fast = 8.0, beta_slow = 1.0, original_positions = 16, "
        "magnitude = 1.25 }");
    const Json& scaling = yarn.config["rope_parameters"];
    CHECK(scaling["rope_type"] == "yarn");
    CHECK(scaling["attention_factor"] == 1.25);
    CHECK(scaling["truncate"] == false);
    CHECK(scaling["original_max_position_embeddings"] == 16);
    CHECK(sorted(read_again(yarn.config).config) == sorted(yarn.config));
    CHECK(record_of("require \"orrery.models.gpt\" { layers = 1, embed = 8, heads = 2, vocab = 17, seq = 13 }")
              .config["n_inner"]
              .is_null());

    // Mixtures of experts.
    const std::string small = ", experts = 4, top_k = 2, expert_mlp = 8";
    CHECK(llama(small).architecture == "mixtral");
    CHECK(llama(small).config["intermediate_size"] == 8);
    const PublishedRecord qwen3 = llama(small + ", qk_norm = true, dense = 1, renormalise = false");
    CHECK(qwen3.architecture == "qwen3_moe");
    CHECK(qwen3.config["norm_topk_prob"] == false);
    CHECK(qwen3.config["mlp_only_layers"] == Json({0}));
    CHECK(qwen3.config["num_experts"] == 4);
    CHECK(qwen3.config["intermediate_size"] == 20);
    const std::string shared = small + ", qkv_bias = true, shared = 8, shared_gate = true";
    const PublishedRecord qwen2 = llama(shared + ", window = 5");
    CHECK(qwen2.architecture == "qwen2_moe");
    CHECK(qwen2.config["layer_types"] == Json({"sliding_attention", "sliding_attention"}));
    CHECK(sorted(read_again(qwen2.config).config) == sorted(qwen2.config));
    CHECK_THROWS_WITH(llama(small + ", balance = { rate = 0.001 }").require_published("x"),
                      Catch::Contains("a bias of the choice that balances experts"));
    const std::string latent =
        small +
        ", kv_rank = 8, q_rank = 6, nope_dim = 4, rope_dim = 2, v_dim = 4, scores = 'sigmoid', correction = true, "
        "shared = 16, groups = 2, top_groups = 1, scale = 2.5";
    const PublishedRecord deepseek = llama(latent);
    CHECK(deepseek.architecture == "deepseek_v3");
    CHECK(deepseek.config["n_shared_experts"] == 2);
    CHECK(deepseek.config["num_key_value_heads"] == 3);
    CHECK(sorted(read_again(deepseek.config).config) == sorted(deepseek.config));
    CHECK(deepseek.config["num_nextn_predict_layers"] == 0);
    // With multi-token prediction the table and the head are stored twice.
    const PublishedRecord mtp = llama(latent + ", mtp_weight = 0.3");
    CHECK(mtp.config["num_nextn_predict_layers"] == 1);
    CHECK(std::ranges::count(mtp.params, "embed_tokens.weight", &WeightSource::param) == 2);
    CHECK(std::ranges::count(mtp.params, "model.layers.2.shared_head.head.weight", &WeightSource::tensor) == 1);
    CHECK(PublishedRecord::parse(mtp.text(), "x").text() == mtp.text());
    CHECK_THROWS_WITH(llama(", mtp_weight = 0.3").require_published("x"),
                      Catch::Contains("no architecture but deepseek_v3 has multi-token prediction"));
    const PublishedRecord gpt_oss = llama(
        small + ", bias = true, sinks = true, router_bias = true, expert_bias = true, limit = 7, first = 'top_k'");
    CHECK(gpt_oss.architecture == "gpt_oss");
    CHECK(gpt_oss.config["layer_types"] == Json({"full_attention", "full_attention"}));
    CHECK(gpt_oss.config["swiglu_limit"] == 7);
    CHECK(sorted(read_again(gpt_oss.config).config) == sorted(gpt_oss.config));
    for (const std::string more : {", dense = 1", ", scores = 'sigmoid'", ", shared = 8", ", renormalise = false"}) {
        INFO(more);
        CHECK_THROWS_WITH(llama(small + more).require_published("x"),
                          Catch::Contains("no published architecture has this mixture of experts"));
    }

    const PublishedRecord odd = llama(", qk_norm = true, qkv_bias = true");
    CHECK(odd.architecture.empty());
    CHECK(odd.unnamed.size() == 6);
    CHECK_THROWS_WITH(odd.require_published("runs/x"),
                      Catch::Contains("the model of runs/x has no published architecture") &&
                          Catch::Contains("6 of its 31 params have no published name: layers.*.self_attn.q.bias (2)") &&
                          Catch::Contains("--raw"));
    CHECK_THROWS_WITH(llama(", bias = true, window = 5").require_published("x"), Catch::Contains("beside a window"));
    const PublishedRecord own = record_of("require \"orrery.models.mlp\" { layers = 1, embed = 8, mlp = 8 }");
    CHECK(own.params.size() == 7);
    CHECK_THROWS_WITH(own.require_published("x"), Catch::Contains("7 of its 7 params have no published name"));
}

TEST_CASE("a table that is a list and has names, too, is no JSON") {
    const auto says = [](const std::string& table) {
        return record_of(
            "(function() local m = require 'orrery.models.gpt' { layers = 1, embed = 8, heads = 2, vocab = 17, "
            "seq = 13 }\nm.published = { config = { ids = " +
            table + " } } return m end)()");
    };
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(says("{ 1, 2, last = 3 }"), Contains("config.ids mixes a list of 2 items with the key \"last\""));
    CHECK_THROWS_WITH(says("{ 1, 2, nil, 4 }"),
                      Contains("config.ids mixes a list of 2 items with the key the number 4"));
}

TEST_CASE("what is published is kept as it was read") {
    Json config = {{"model_type", "llama"},
                   {"vocab_size", 17},
                   {"hidden_size", 12},
                   {"intermediate_size", 20},
                   {"num_hidden_layers", 1},
                   {"num_attention_heads", 3},
                   {"tie_word_embeddings", false},
                   {"torch_dtype", "float16"},
                   {"pruned_heads", Json::object()},
                   {"bad_words_ids", Json::array()},
                   {"id2label", {{"0", "a"}, {"1", "b"}}},
                   {"label2id", {{"a", 0}, {std::string("a\0b", 3), 1}}},
                   {"eos_token_id", {1, 2}},
                   {"pad_token_id", nullptr},
                   {"rope_theta", 5000000.0}};
    const PublishedRecord record = read_again(config);
    CHECK(record.dtype() == DType::f16);
    for (const auto& [key, value] : config.items()) {
        INFO(key);
        CHECK(record.config[key] == value);
    }
    CHECK(record.config["rope_parameters"] == Json({{"rope_theta", 5000000.0}, {"rope_type", "default"}}));
    CHECK(record.generation.is_null());
    const std::string text = record.text();
    CHECK_THROWS_WITH(PublishedRecord::parse("{\"version\":4}", "there"),
                      Catch::Contains("there: unsupported version 4"));
    CHECK_THROWS_WITH(PublishedRecord::parse("{\"version\":1}", "there"), Catch::Contains("there: "));
    CHECK_THROWS_WITH(PublishedRecord::parse(text.substr(0, text.size() / 2), "there"), Catch::Contains("there"));
}

TEST_CASE("records of models with several tensors for a param, or interleaved ones, are of version 2") {
    for (const auto& [name, version] : {std::pair{"llama", 1}, {"mixtral", 2}, {"gpt_oss", 2}}) {
        INFO(name);
        const std::string text = record_of(made_from(name)).text();
        CHECK(Json::parse(text)["version"] == version);
        CHECK(PublishedRecord::parse(text, "there").text() == text);
    }
}

TEST_CASE("a record of params with a row for each island is of version 3, which older programs refuse") {
    PublishedRecord record = record_of(made_from("llama"));
    record.islands = true;
    CHECK(Json::parse(record.text())["version"] == 3);
    CHECK(PublishedRecord::parse(record.text(), "there").islands);
    CHECK(PublishedRecord::parse(record.text(), "there").text() == record.text());
}
