// config.json of published models: what is built of it, and what is refused with file, key and value.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "compile/ids.h"
#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/checkpoint/restore/pretrained.h"

using namespace orrery;

namespace {

Json config_of(const std::string& fixture) {
    const std::string path = in_source("tests/transformers/" + fixture + "/config.json");
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return parse_json(text, {"", path, 0, 0});
}

/// A folder with this config.json alone.
struct Folder {
    explicit Folder(const Json& config) : path(in_build("published_config")) {
        std::filesystem::create_directory(path);
        std::ofstream(path + "/config.json") << config.dump();
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

/// scripts/hf.lua over a folder.
std::unique_ptr<FakeHost> run(const std::string& folder, int64_t seq, const std::vector<std::string>& sets = {}) {
    auto host = std::make_unique<FakeHost>(
        "[train]\nsteps = 10\nsequences_per_step = 2\n[data]\npath = \"x\"\n"
        "tokens_per_sequence = " +
            std::to_string(seq) + "\n[checkpoint]\nload = \"" + folder + "\"\n",
        sets);
    host->strategies = built_strategy;
    run_script(in_source("scripts/hf.lua"), *host);
    return host;
}

/// What is said of it; "" when a program is made.
std::string said(const Json& config, int64_t seq = 13, const std::vector<std::string>& sets = {}) {
    const Folder folder(config);
    try {
        const auto host = run(folder.path, seq, sets);
        CHECK(host->trained == 1);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "";
}

/// Its attribute of the first op of the kind in the train step.
template <class T>
T attribute(const FakeHost& host, const std::string& kind, const std::string& name) {
    for (const Op& op : host.experiment->train().ops) {
        if (op.kind != kind) continue;
        const Attribute* found = op.attributes.find(name);
        REQUIRE(found);
        return std::get<T>(*found);
    }
    FAIL("no op " << kind);
    return {};
}

Json with(Json config, const std::string& key, const Json& value) {
    config[key] = value;
    return config;
}

}  // namespace

TEST_CASE("every published fixture is built from its config.json and fits its weights") {
    for (const char* name :
         {"deepseek_v3", "deepseek_v3_mtp", "gpt2", "gpt2_bare", "gpt_oss", "gpt_oss_mxfp4", "llama", "llama_old",
          "llama_yarn", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_windows", "qwen3", "qwen3_moe"}) {
        INFO(name);
        const std::string folder = in_source(std::string("tests/transformers/") + name);
        const auto host = run(folder, 13);
        CHECK(host->trained == 1);
        CHECK_NOTHROW(check_weights(host->experiment->train(), folder, host->experiment->recipe->weights));
    }
    const auto apart = run(in_source("tests/transformers/llama"), 13, {"mesh.site=2", "script.method=diloco"});
    CHECK(apart->experiment->recipe->also.size() == 3);
}

TEST_CASE("every key of the most used small models is known; only the sizes are smaller here") {
    // Keys of each model's config.json that the fixture of its architecture has not, with their values, and those that
    // differ. Facts of the models' pages: Qwen2.5-0.5B, DeepSeek-R1-Distill-Qwen-1.5B, SmolLM2-135M and -360M,
    // distilgpt2, TinyLlama-1.1B, Llama-3.2-1B (also as copied by unsloth), Qwen3-0.6B, Mistral-7B-v0.1, gpt2,
    // Mixtral-8x7B-v0.1, Qwen1.5-MoE-A2.7B, Qwen3-30B-A3B.
    const Json smollm2 = {{"is_llama_config", true},
                          {"rope_interleaved", false},
                          {"pretraining_tp", 1},
                          {"mlp_bias", false},
                          {"initializer_range", 0.041666666666666664},
                          {"torch_dtype", "bfloat16"},
                          {"rope_scaling", nullptr},
                          {"rope_theta", 100000},
                          {"use_cache", true},
                          {"transformers.js_config", {{"kv_cache_dtype", {{"q4f16", "float16"}}}}}};
    const Json summary = {{"_num_labels", 1},
                          {"id2label", {{"0", "LABEL_0"}}},
                          {"label2id", {{"LABEL_0", 0}}},
                          {"n_ctx", 16},
                          {"summary_activation", nullptr},
                          {"summary_first_dropout", 0.1},
                          {"summary_proj_to_labels", true},
                          {"summary_type", "cls_index"},
                          {"summary_use_proj", true},
                          {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}}};
    const std::vector<std::tuple<std::string, std::string, Json>> models = {
        {"Qwen2.5-0.5B",
         "qwen2",
         {{"use_mrope", false},
          {"sliding_window", 32768},
          {"max_window_layers", 24},
          {"bos_token_id", 1},
          {"torch_dtype", "bfloat16"}}},
        {"DeepSeek-R1-Distill-Qwen-1.5B",
         "qwen2",
         {{"use_mrope", false}, {"sliding_window", 4096}, {"max_window_layers", 21}, {"tie_word_embeddings", false}}},
        {"SmolLM2-135M", "llama_old", smollm2},
        {"SmolLM2-360M", "llama_old", smollm2},
        {"distilgpt2", "gpt2", summary},
        {"TinyLlama-1.1B", "llama_old", {{"pretraining_tp", 1}, {"rope_scaling", nullptr}, {"rope_theta", 10000.0}}},
        {"Llama-3.2-1B", "llama", {{"mlp_bias", false}, {"unsloth_fixed", true}, {"attention_bias", false}}},
        {"Qwen3-0.6B", "qwen3", {{"max_window_layers", 28}, {"sliding_window", nullptr}, {"rope_scaling", nullptr}}},
        {"Mistral-7B-v0.1", "mistral", {{"sliding_window", 4096}, {"torch_dtype", "bfloat16"}}},
        {"gpt2", "gpt2", summary},
        {"Mixtral-8x7B-v0.1",
         "mixtral",
         {{"output_router_logits", false}, {"router_aux_loss_coef", 0.02}, {"sliding_window", nullptr}}},
        {"Qwen1.5-MoE-A2.7B", "qwen2_moe", {{"max_window_layers", 21}, {"sliding_window", 32768}}},
        {"DeepSeek-V3",
         "deepseek_v3",
         {{"aux_loss_alpha", 0.001},
          {"ep_size", 1},
          {"moe_layer_freq", 1},
          {"num_nextn_predict_layers", 1},
          {"scoring_func", "sigmoid"},
          {"seq_aux", true},
          {"topk_method", "noaux_tc"}}},
        {"gpt-oss-20b",
         "gpt_oss_mxfp4",
         {{"experts_per_token", 2},
          {"initial_context_length", 4096},
          {"router_aux_loss_coef", 0.9},
          {"sliding_window", 128}}},
        {"Qwen3-30B-A3B", "qwen3_moe", {{"max_window_layers", 48}, {"sliding_window", nullptr}, {"num_experts", 6}}},
    };
    for (const auto& [name, fixture, keys] : models) {
        INFO(name);
        Json config = config_of(fixture);
        for (const auto& [key, value] : keys.items()) config[key] = value;
        CHECK(said(config) == "");
    }
}

TEST_CASE("a published table has rows up to a multiple of 128, and ids for its words alone") {
    for (const char* mesh : {"mesh.tp=1", "mesh.tp=2"}) {
        const auto host = run(in_source("tests/transformers/gpt2"), 13, {mesh});
        const Program& program = host->experiment->train();
        CHECK(program.value(*program.find("wte.weight")).type.shape == Shape{128, 18});
        CHECK(vocabulary_of(program) == 38);
    }
    // Blocks of a padded param: among the words, across their end, behind it; as stored and transposed.
    const std::string folder = in_source("tests/transformers/llama");
    const auto host = run(folder, 13);
    const WeightFiles files(folder);
    for (const char* name : {"embed_tokens.weight", "lm_head.weight"}) {
        INFO(name);
        const auto& sources = host->experiment->recipe->weights.sources;
        const auto source =
            std::find_if(sources.begin(), sources.end(), [&](const auto& s) { return s.param == name; });
        REQUIRE(source != sources.end());
        const Program& program = host->experiment->train();
        const Value& param = program.value(*program.find(name));
        const bool head = source->transpose;
        CHECK(param.type.shape == (head ? Shape{18, 128} : Shape{128, 18}));
        const auto block = [&](int64_t first, int64_t rows) {
            return read_weights(files, param, *source, head ? Shape{0, first} : Shape{first, 0},
                                head ? Shape{18, rows} : Shape{rows, 18});
        };
        const std::vector<float> all = block(0, 128), across = block(32, 32);
        const auto at = [&](const std::vector<float>& values, int64_t rows, int64_t row, int64_t column) {
            return values[static_cast<size_t>(head ? column * rows + row : row * 18 + column)];
        };
        for (int64_t column = 0; column < 18; ++column) {
            for (int64_t row = 0; row < 128; ++row) CHECK((at(all, 128, row, column) != 0) == (row < 38));
            for (int64_t row = 0; row < 32; ++row) CHECK(at(across, 32, row, column) == at(all, 128, 32 + row, column));
        }
        CHECK(block(64, 64) == std::vector<float>(64 * 18, 0.0f));
    }
}

TEST_CASE("rotary numbers are read in both spellings") {
    const auto theta = [](const Json& config) {
        const Folder folder(config);
        return attribute<double>(*run(folder.path, 13), "rope", "theta");
    };
    const Json qwen = config_of("qwen2"), llama = config_of("llama"), old = config_of("llama_old");
    CHECK(theta(qwen) == 1e4);
    CHECK(theta(old) == 500);
    Json spelt = qwen;
    spelt.erase("rope_parameters");
    CHECK(theta(spelt) == 1e4);  // absent: 10,000
    CHECK(theta(with(spelt, "rope_theta", 250000)) == 250000);
    {
        const Folder folder(llama);
        const auto host = run(folder.path, 13);
        CHECK(attribute<double>(*host, "rope", "factor") == 8);
        CHECK(attribute<double>(*host, "rope", "low_freq_factor") == 1);
        CHECK(attribute<double>(*host, "rope", "high_freq_factor") == 4);
        CHECK(attribute<int64_t>(*host, "rope", "original_positions") == 64);
    }
    // Both spellings beside each other must agree.
    Json both = with(llama, "rope_theta", 100.0);
    both["rope_scaling"] = llama["rope_parameters"];
    CHECK(said(both) == "");
    has(said(with(both, "rope_theta", 10000.0)), "/config.json: rope_parameters = an object: its theta differs from");
    both["rope_scaling"]["factor"] = 4.0;
    has(said(both), "its factor differs from rope_theta or rope_scaling");
}

TEST_CASE("scalings that are not there are refused with key and value") {
    Json config = config_of("llama_old");
    const auto scaled = [&](const Json& scaling) { return said(with(config, "rope_scaling", scaling)); };
    CHECK(scaled(nullptr) == "");
    CHECK(scaled({{"rope_type", "default"}}) == "");
    has(scaled({{"rope_type", "longrope"}, {"factor", 4.0}}),
        "published_config/config.json: rope_scaling.rope_type = \"longrope\": expected default, linear, llama3 or "
        "yarn");
    has(scaled({{"rope_type", "yarn"}}), "no rope_scaling.factor: expected a number above 0");
    has(scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 1}, {"beta_slow", 2}}),
        "rope_scaling.beta_fast = 1: expected more than beta_slow = 2");
    has(scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", 1}}),
        "rope_scaling.truncate = 1: expected true or false");
    has(scaled({{"type", "dynamic"}, {"factor", 4.0}}), "rope_scaling.type = \"dynamic\"");
    has(scaled({{"type", "linear"}}), "no rope_scaling.factor: expected a number above 0");
    has(scaled({{"type", "linear"}, {"factor", -2}}), "rope_scaling.factor = -2: expected a number above 0");
    has(scaled({{"type", "linear"}, {"factor", 2}, {"beta_fast", 32}}),
        "rope_scaling.beta_fast = 32: unknown number of a scaling of kind");
    has(scaled({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}}),
        "no rope_scaling.original_max_position_embeddings");
    has(scaled("linear"), "rope_scaling = \"linear\": expected an object");
    has(said(with(config, "rope_theta", "10000")), "rope_theta = \"10000\": expected a number above 0");
    config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
    has(said(config), "rope_parameters.full_attention = an object");
}

TEST_CASE("yarn is read with the defaults of transformers") {
    Json config = config_of("llama_old");
    const auto rope = [&](const Json& scaling, const std::string& name) {
        const Folder folder(with(config, "rope_scaling", scaling));
        return attribute<double>(*run(folder.path, 13), "rope", name);
    };
    const Json plain{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    CHECK(rope(plain, "factor") == 4);
    CHECK(rope(plain, "beta_fast") == 32);
    CHECK(rope(plain, "beta_slow") == 1);
    CHECK(rope(plain, "magnitude") == Approx(0.1 * std::log(4.0) + 1));
    CHECK(rope(with(plain, "attention_factor", 1.5), "magnitude") == 1.5);
    Json scaled = with(plain, "mscale", 0.7);
    scaled["mscale_all_dim"] = 1.2;
    CHECK(rope(scaled, "magnitude") == Approx((0.07 * std::log(4.0) + 1) / (0.12 * std::log(4.0) + 1)));
    const auto host_of = [&](const Json& scaling) {
        const Folder folder(with(config, "rope_scaling", scaling));
        return run(folder.path, 13);
    };
    CHECK(attribute<int64_t>(*host_of(plain), "rope", "original_positions") == 16);
    CHECK(attribute<bool>(*host_of(plain), "rope", "truncate"));
}

TEST_CASE("windows: of all layers, of none below the sequence's length, of some") {
    const auto window = [](const Json& config, int64_t seq) {
        const Folder folder(config);
        const auto host = run(folder.path, seq);
        for (const Op& op : host->experiment->train().ops)
            if (op.kind == "attention") return op.attributes.integer("window");
        return int64_t{-1};
    };
    const Json mistral = config_of("mistral");
    CHECK(window(mistral, 13) == 5);
    CHECK(window(mistral, 5) == 0);
    CHECK(window(with(mistral, "sliding_window", nullptr), 13) == 0);
    Json absent = mistral;
    absent.erase("sliding_window");
    CHECK(window(absent, 13) == 0);  // 4,096
    has(said(with(mistral, "sliding_window", "wide")), "sliding_window = \"wide\": expected a number of keys");
    Json qwen = config_of("qwen2");
    qwen["sliding_window"] = 4;
    CHECK(window(qwen, 13) == 0);  // use_sliding_window is false
    qwen.erase("layer_types");
    qwen["use_sliding_window"] = true;
    qwen["max_window_layers"] = 1;
    const auto windows = [](const Json& config, int64_t seq) {
        const Folder folder(config);
        const auto host = run(folder.path, seq);
        std::vector<int64_t> found;
        for (const Op& op : host->experiment->train().ops)
            if (op.kind == "attention") found.push_back(op.attributes.integer("window"));
        return found;
    };
    CHECK(windows(qwen, 13) == std::vector<int64_t>{0, 4});
    CHECK(windows(with(qwen, "layer_types", {"sliding_attention", "full_attention"}), 13) ==
          std::vector<int64_t>{4, 0});
    CHECK(window(qwen, 4) == 0);
    CHECK(window(with(qwen, "max_window_layers", 0), 13) == 4);
    CHECK(window(with(qwen, "layer_types", {"sliding_attention", "sliding_attention"}), 13) == 4);
    has(said(with(qwen, "layer_types", {"full_attention", "chunked"})), "layer 2 is \"chunked\", expected");
    has(said(with(qwen, "layer_types", {"full_attention"})), "1 kinds for 2 layers: expected one a layer");
    has(said(with(config_of("llama"), "sliding_window", 4)), "sliding_window = 4: unknown key");
}

TEST_CASE("a mixture of experts is built of its keys, drops nothing, and other mathematics is refused") {
    const Json mixtral = config_of("mixtral"), qwen2 = config_of("qwen2_moe"), qwen3 = config_of("qwen3_moe");
    // The slots of an expert in a sequence, and the numbers of the layers with experts.
    const auto slots = [](const Json& config, const std::vector<std::string>& sets = {}) {
        const Folder folder(config);
        return attribute<int64_t>(*run(folder.path, 13, sets), "assign_slots", "slots");
    };
    const auto layers = [](const Json& config) {
        const Folder folder(config);
        const auto host = run(folder.path, 13);
        std::vector<int64_t> found;
        for (const ValueId id : host->experiment->train().params()) {
            const std::string& name = host->experiment->train().value(id).name;
            if (name.ends_with("experts.up.weight") && name.find("shared") == std::string::npos)
                found.push_back(name[7] - '0');
        }
        return found;
    };
    CHECK(slots(mixtral) == 13);
    CHECK(slots(qwen3) == 13);
    CHECK(slots(mixtral, {"script.capacity=1"}) == 7);
    CHECK(layers(mixtral) == std::vector<int64_t>{0, 1});
    CHECK(layers(qwen2) == std::vector<int64_t>{1});
    CHECK(layers(qwen3) == std::vector<int64_t>{0, 2});
    CHECK(layers(with(with(qwen3, "mlp_only_layers", {0}), "decoder_sparse_step", 1)) == std::vector<int64_t>{1, 2});
    CHECK(layers(with(with(qwen3, "mlp_only_layers", nullptr), "decoder_sparse_step", 3)) == std::vector<int64_t>{2});
    for (const Json& config : {mixtral, qwen2, qwen3}) {
        CHECK(said(with(with(config, "router_aux_loss_coef", 0.1), "output_router_logits", true)) == "");
        has(said(with(config, "quantization_config", {{"quant_method", "gptq"}, {"bits", 4}})),
            "config.json: quantization_config.quant_method = \"gptq\": not supported");
        has(said(with(config, "num_experts_per_tok", 7)), "num_experts_per_tok = 7: more than the");
        has(said(with(config, "hidden_act", "gelu")), "hidden_act = \"gelu\"");
    }
    has(said(with(mixtral, "router_jitter_noise", 0.1)), "router_jitter_noise = 0.1: the llama here computes what 0.0");
    has(said(with(mixtral, "num_experts", 8)), "num_experts = 8: differs from num_local_experts = 4");
    has(said(with(qwen3, "shared_expert_intermediate_size", 8)), "shared_expert_intermediate_size = 8: unknown key");
    has(said(with(qwen3, "decoder_sparse_step", 0)), "decoder_sparse_step = 0: expected an integer above 0");
    has(said(with(qwen3, "mlp_only_layers", 1)), "mlp_only_layers = 1: expected a list of layers");
    has(said(with(qwen2, "qkv_bias", false)), "qkv_bias = false");
    Json window = with(with(qwen2, "use_sliding_window", true), "sliding_window", 4);
    window.erase("layer_types");
    has(said(window), "no layer_types: expected the kind of each layer, as use_sliding_window is set");
    has(said(config_of("llama"), 13, {"script.capacity=1"}), "script.capacity = 1.0: llama has no experts");
    has(said(config_of("llama"), 13, {"script.bias_rate=0.001"}), "script.bias_rate = 0.001: llama has no experts");
    has(said(mixtral, 13, {"script.top_k=1"}), "script.top_k = 1: the folder says num_experts_per_tok = 2");
    has(said(mixtral, 13, {"script.max_capacity=3"}), "script.max_capacity = 3.0: nothing reads it without overflow");
    CHECK(said(mixtral, 13, {"script.overflow=again"}) == "");
    CHECK(said(mixtral, 13, {"script.balance=sequence", "script.z_loss=0.001"}) == "");
    has(said(mixtral, 13, {"script.experts=8"}), "experts are made of the blocks of a dense model of Llama's family");
    has(said(config_of("gpt2"), 13, {"script.experts=8"}), "model_type = \"gpt2\": experts are made of the blocks");
}

TEST_CASE("DeepSeek-V3 and gpt-oss: their keys, and quantisations that are decoded") {
    const Json deepseek = config_of("deepseek_v3"), gpt_oss = config_of("gpt_oss");
    const auto param = [](const Json& config, const std::string& name) {
        const Folder folder(config);
        const auto host = run(folder.path, 13);
        const auto found = host->experiment->train().find(name);
        return found ? host->experiment->train().value(*found).type.shape : Shape{};
    };
    CHECK(param(deepseek, "layers.1.mlp.gate.correction") == Shape{8});
    CHECK(param(deepseek, "layers.1.mlp.shared_experts.up.weight") == Shape{24, 16});
    CHECK(param(deepseek, "layers.0.self_attn.q_a.weight") == Shape{24, 10});
    CHECK(param(with(deepseek, "q_lora_rank", nullptr), "layers.0.self_attn.q.weight") == Shape{24, 40});
    CHECK(param(with(deepseek, "attention_bias", true), "layers.0.self_attn.kv_a.bias") == Shape{16});
    CHECK(param(with(deepseek, "first_k_dense_replace", 0), "layers.0.mlp.gate.weight") == Shape{24, 8});
    has(said(with(deepseek, "scoring_func", "softmax")), "scoring_func = \"softmax\"");
    has(said(with(deepseek, "topk_method", "greedy")), "topk_method = \"greedy\"");
    has(said(with(deepseek, "n_group", 3)), "n_group = 3: does not divide 8 experts");
    Json other = deepseek;
    other["quantization_config"]["weight_block_size"] = {64, 64};
    has(said(other), "quantization_config.weight_block_size = an object: expected [128, 128]");
    other["quantization_config"]["quant_method"] = "awq";
    has(said(other), "quantization_config.quant_method = \"awq\": not supported");
    has(said(with(gpt_oss, "quantization_config", {{"quant_method", "fp8"}})), "quant_method = \"fp8\": not supported");
    has(said(with(gpt_oss, "attention_bias", false)), "attention_bias = false");
    has(said(with(gpt_oss, "swiglu_alpha", 1.5)), "swiglu_alpha = 1.5");
    Json absent = gpt_oss;
    absent.erase("layer_types");
    const Folder folder(absent);
    const auto host = run(folder.path, 13);
    std::vector<int64_t> windows;
    for (const Op& op : host->experiment->train().ops)
        if (op.kind == "attention") windows.push_back(op.attributes.integer("window"));
    CHECK(windows == std::vector<int64_t>{5, 0});
}

TEST_CASE("multi-token prediction is left out, or trained with a weight") {
    const Json config = config_of("deepseek_v3_mtp");
    const Folder folder(config);
    const std::vector<std::string> with_it = {"script.mtp_weight=0.3"};
    CHECK_FALSE(run(folder.path, 13)->experiment->train().find("mtp.eh_proj.weight"));
    const auto host = run(folder.path, 13, with_it);
    const Program& program = host->experiment->train();
    REQUIRE(program.find("mtp.eh_proj.weight"));
    CHECK(program.value(*program.find("mtp.eh_proj.weight")).type.shape == Shape{32, 16});
    CHECK(program.find("mtp.mlp.gate.correction"));
    const auto recomputed = [&](const std::string& layers) {
        const auto made =
            run(folder.path, 13, {with_it[0], "script.recompute=all", "script.recompute_layers=" + layers});
        std::vector<std::string> scopes;
        for (const ScopeMark& mark : made->experiment->train().scope_marks())
            if (mark.recompute) scopes.push_back(mark.scope);
        return scopes;
    };
    CHECK(recomputed("0") == std::vector<std::string>{"layers.0", "layers.1", "mtp"});
    CHECK(recomputed("1") == std::vector<std::string>{"layers.0"});
    has(said(with(config, "num_nextn_predict_layers", 2), 13, with_it),
        "it has 2 modules of multi-token prediction, and mtp_weight needs exactly 1");
    has(said(config_of("llama"), 13, with_it), "it has 0 modules of multi-token prediction");
    has(said(config, 13, {"script.mtp_weight=-1"}), "mtp_weight is -1.0, expected a number of at least 0");

    // Copies of the table that differ are refused, with what to do.
    const std::string weights = in_source("tests/transformers/deepseek_v3_mtp");
    PublishedWeights table = host->experiment->recipe->weights;
    CHECK_NOTHROW(check_weights(program, weights, table));
    REQUIRE(table.copies.size() == 2);
    CHECK(table.copies[0].tensor == "model.layers.2.embed_tokens.weight");
    std::swap(table.copies[0].of, table.copies[1].of);
    CHECK_THROWS_WITH(check_weights(program, weights, table),
                      Catch::Contains("tensor model.layers.2.embed_tokens.weight differs from lm_head.weight") &&
                          Catch::Contains("script.mtp_weight = 0"));
}

TEST_CASE("every expert of a mixture begins as a dense model's block, and the router with its initial values") {
    const std::string folder = in_source("tests/transformers/mistral");
    const auto host = run(folder, 13, {"script.experts=3"});
    const Program& program = host->experiment->train();
    const PublishedWeights& table = host->experiment->recipe->weights;
    CHECK(check_weights(program, folder, table) ==
          std::vector<std::string>{"layers.0.mlp.gate.weight", "layers.1.mlp.gate.weight"});
    const auto dense = run(folder, 13);
    const WeightFiles files(folder);
    const auto values = [&](const FakeHost& of, const std::string& name, int64_t expert) {
        const Program& train = of.experiment->train();
        const PublishedWeights weights = as_named(of.experiment->recipe->weights, files);
        const Value& param = train.value(*train.find(name));
        const auto source = std::ranges::find(weights.sources, name, &WeightSource::param);
        Shape offset(param.type.shape.size(), 0), shape = param.type.shape;
        if (expert >= 0) offset[0] = expert, shape[0] = 1;
        return read_weights(files, param, *source, offset, shape);
    };
    for (const std::string name : {"gate", "up", "down"})
        for (const int64_t expert : {0, 2})
            CHECK(values(*host, "layers.1.mlp.experts." + name + ".weight", expert) ==
                  values(*dense, "layers.1.mlp." + name + ".weight", -1));
    // It is published as a mixture: with a tensor for each expert.
    const auto source = std::ranges::find(table.sources, "layers.1.mlp.experts.up.weight", &WeightSource::param);
    CHECK(source->tensor_at(2) == "model.layers.1.block_sparse_moe.experts.2.w3.weight");
}

TEST_CASE("sizes that no model has are refused before anything is made of them") {
    const Json gpt2 = config_of("gpt2");
    has(said(with(gpt2, "n_layer", int64_t{1} << 60)),
        "n_layer = 1152921504606846976: expected an integer of at most 10000");
    has(said(with(gpt2, "vocab_size", INT64_MAX)), "expected an integer of at most 2147483648");
    has(said(with(gpt2, "n_embd", (int64_t{1} << 31) + 1)), "n_embd = 2147483649: expected an integer of at most");
}

TEST_CASE("what changes the mathematics and is not there is refused, and what is not known") {
    const Json llama = config_of("llama"), gpt2 = config_of("gpt2");
    has(said(with(llama, "mlp_bias", true)), "/config.json: mlp_bias = true: the llama here computes what false says");
    has(said(with(llama, "hidden_act", "gelu")), "hidden_act = \"gelu\": the llama here computes what \"silu\" or");
    has(said(with(llama, "attention_dropout", 0.1)), "attention_dropout = 0.1");
    has(said(with(llama, "pretraining_tp", 2)), "pretraining_tp = 2");
    has(said(with(llama, "quantization_config", {{"bits", 4}})), "quantization_config = an object: not supported");
    has(said(with(llama, "partial_rotary_factor", 0.5)), "partial_rotary_factor = 0.5");
    CHECK(said(with(config_of("qwen2"), "attention_bias", false)) == "");  // it has its biases whatever that says
    has(said(with(config_of("mistral"), "attention_bias", true)), "attention_bias = true");
    has(said(with(llama, "logit_scale", 2)), "logit_scale = 2: unknown key, which may change");
    CHECK(said(with(llama, "logit_scale", 2), 13, {"script.unread=logit_scale"}) == "");
    has(said(with(llama, "logit_scale", 2), 13, {"script.unread=logit_scale,logit_scales"}),
        "/config.json has no key logit_scales");
    has(said(llama, 13, {"script.unread=logit_scale"}), "unread: ");
    // All of them in one message, by name, and the flag that lets the unknown ones be.
    const std::string all = said(with(with(with(llama, "zeta", 1), "logit_scale", 2), "mlp_bias", true));
    has(all, "logit_scale = 2: unknown key");
    has(all, "mlp_bias = true: the llama here computes what false says\n  zeta = 1: unknown key");
    has(all, "--set script.unread=logit_scale,zeta");
    has(said(with(config_of("qwen2"), "use_mrope", true)), "use_mrope = true: the llama here computes what false");
    has(said(with(llama, "rope_interleaved", true)), "rope_interleaved = true");
    CHECK(said(with(llama, "logit_scale", nullptr)) == "");
    has(said(with(gpt2, "activation_function", "relu")), "activation_function = \"relu\"");
    has(said(with(gpt2, "scale_attn_by_inverse_layer_idx", true)), "scale_attn_by_inverse_layer_idx = true");
    has(said(gpt2, 17), "n_positions = 16: sequences of 17 tokens are longer");
    has(said(with(llama, "model_type", "gemma2")),
        "model_type = \"gemma2\": expected one of deepseek_v3, gpt2, gpt_oss, llama, mistral, mixtral, qwen2");
    Json nameless = llama;
    nameless.erase("model_type");
    has(said(nameless), "no model_type: expected one of");
    Json sizeless = llama;
    sizeless.erase("hidden_size");
    has(said(sizeless), "no hidden_size: missing, expected a number");
    has(said(with(llama, "hidden_size", 18.5)), "hidden_size = 18.5: expected an integer");
    has(said(with(llama, "hidden_size", "18")), "hidden_size = \"18\": expected a number that is not negative");
    has(said(with(llama, "hidden_size", false)), "hidden_size = false: expected a number that is not negative");
    has(said(with(llama, "rms_norm_eps", false)), "rms_norm_eps = false: expected a number that is not negative");
    has(said(with(llama, "tie_word_embeddings", 1)), "tie_word_embeddings = 1: expected true or false");
}

TEST_CASE("a folder that is none, and a config.json that is no object, are refused") {
    const auto refused = [](const std::string& folder) -> std::string {
        try {
            run(folder, 13);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    has(refused("/no/such"), "/no/such/config.json cannot be opened: No such file or directory");
    has(refused(""), "set checkpoint.load = FOLDER, with config.json in it");
    const Folder folder(Json::array({1}));
    has(refused(folder.path), "published_config/config.json is no JSON object");
    std::ofstream(folder.path + "/config.json") << "{\"a\":1,\"a\":2}";
    has(refused(folder.path), "has the key \"a\" twice");
}
