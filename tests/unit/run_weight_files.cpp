// A folder of safetensors files as one: its index against what the files hold, and every part read from where it lies.
#include "run/checkpoint/restore/weight_files.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "folders.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "orrery/error.h"
#include "run/checkpoint/restore/pretrained.h"
#include "safetensors_bytes.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// A folder of safetensors files below the build folder.
struct Folder {
    explicit Folder(const std::string& name) : path(in_build(name)) {
        std::filesystem::remove_all(path);
        std::filesystem::create_directory(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }

    void write(const std::string& name, const std::string& text) const {
        std::ofstream(path + "/" + name, std::ios::binary) << text;
    }
    void tensors(const std::string& name, const std::vector<NamedTensor>& all) const {
        const auto bytes = safetensors_bytes(all);
        write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    void index(const std::string& weight_map) const {
        write("model.safetensors.index.json", R"({"metadata":{"total_size":1},"weight_map":{)" + weight_map + "}}");
    }
    std::string said() const {
        try {
            const WeightFiles files(path);
        } catch (const Error& problem) {
            CHECK(problem.fault() == Fault::usage);
            return problem.what();
        }
        return "";
    }

    std::string path;
};

/// A float and its name.
NamedTensor one(const std::string& name, float& value) { return {name, {&value, DType::f32, {1}}}; }

}  // namespace

TEST_CASE("an index and its files are one set of tensors") {
    const Folder folder("weights_indexed");
    float a = 1, b = 2, c = 3;
    folder.tensors("model-1.safetensors", {one("a", a), one("c", c)});
    folder.tensors("model-2.safetensors", {one("b", b)});
    folder.tensors("consolidated.safetensors", {one("a", a), one("z", c)});  // what no index names is left alone
    folder.index(R"("a":"model-1.safetensors","b":"model-2.safetensors","c":"model-1.safetensors")");
    const WeightFiles files(folder.path);
    CHECK(files.tensors().size() == 3);
    CHECK(files.file_of("c").path() == folder.path + "/model-1.safetensors");
    CHECK(files.file_of("b").path() == folder.path + "/model-2.safetensors");
    float got = 0;
    files.file_of("b").read("b", {0}, {&got, DType::f32, {1}});
    CHECK(got == 2);
    CHECK_FALSE(files.has("z"));
    CHECK_THROWS_WITH(files.tensor("bb"), Contains(folder.path + ": no tensor \"bb\"") && Contains("it has: a, b, c"));
}

TEST_CASE("a folder with model.safetensors alone needs no index") {
    const Folder folder("weights_single");
    float a = 1;
    folder.tensors("model.safetensors", {one("a", a)});
    CHECK(WeightFiles(folder.path).has("a"));
    CHECK(WeightFiles(folder.path + "/model.safetensors").has("a"));
    folder.index(R"("a":"model.safetensors")");
    CHECK_THAT(folder.said(), Contains("has both model.safetensors and model.safetensors.index.json"));
}

TEST_CASE("an index and files that disagree are refused with file and tensor") {
    const Folder folder("weights_disagree");
    float a = 1;
    CHECK_THAT(folder.said(),
               Contains("has neither model.safetensors nor model.safetensors.index.json; it has no other"));
    folder.write("pytorch_model.bin", "x");
    CHECK_THAT(folder.said(), Contains("it has pytorch_model.bin\n  give the folder that a model was published in"));
    folder.tensors("1.safetensors", {one("a", a), one("b", a)});
    folder.tensors("2.safetensors", {one("c", a)});
    const std::string index = folder.path + "/model.safetensors.index.json";
    const std::string first = R"("a":"1.safetensors","b":"1.safetensors",)";
    folder.index(first + R"("c":"2.safetensors")");
    CHECK(folder.said() == "");
    folder.index(first + R"("c":"2.safetensors","d":"3.safetensors")");
    CHECK_THAT(folder.said(), Contains("/3.safetensors is missing: according to " + index +
                                       " it has 1 tensor of 4, for example \"d\"\n"));
    folder.index(first + R"("c":"2.safetensors","d":"2.safetensors")");
    CHECK_THAT(folder.said(), Contains("/2.safetensors: tensor \"d\" is missing, but " + index + " lists it"));
    folder.index(R"("a":"1.safetensors","c":"2.safetensors")");
    CHECK_THAT(folder.said(), Contains("/1.safetensors: unexpected tensor \"b\": " + index + " does not name it"));
    folder.tensors("2.safetensors", {one("b", a), one("c", a)});
    folder.index(R"("a":"1.safetensors","b":"2.safetensors","c":"2.safetensors")");
    CHECK_THAT(folder.said(),
               Contains("/1.safetensors: unexpected tensor \"b\": " + index + " maps it to 2.safetensors"));
    folder.index(first + R"("c":"2.safetensors")");
    CHECK_THAT(folder.said(),
               Contains("/2.safetensors: duplicate tensor \"b\", also in " + folder.path + "/1.safetensors"));
}

TEST_CASE("an index that is none, or points elsewhere, is refused") {
    const Folder folder("weights_hostile");
    const std::string index = folder.path + "/model.safetensors.index.json";
    const auto said = [&](const std::string& text) {
        folder.write("model.safetensors.index.json", text);
        return folder.said();
    };
    CHECK_THAT(said("{"), Contains(index));
    CHECK_THAT(said("[]"), Contains(index + ": expected an object weight_map"));
    CHECK_THAT(said(R"({"weight_map":{}})"), Contains(index + ": its weight_map names no tensor"));
    CHECK_THAT(said(R"({"weight_map":{"a":"x","a":"y"}})"), Contains("twice"));
    for (const char* bad : {R"("../a")", R"("/etc/passwd")", R"("")", R"("..")", "7", R"("a\u0000b")"})
        CHECK_THAT(
            said(R"({"weight_map":{"a":)" + std::string(bad) + "}}"),
            Contains(index + ": tensor \"a\" is mapped to ") && Contains("expected the name of a file in this folder"));
    folder.write("cut.safetensors", "short");
    CHECK_THAT(said(R"({"weight_map":{"a":"cut.safetensors"}})"),
               Contains("/cut.safetensors: 5 bytes are too few for a safetensors file\n  copy or export it again"));
}

TEST_CASE("a model is read from several files as from one") {
    const SafetensorsFile whole(in_source("tests/parity/llama/model.safetensors"));
    const Folder folder("weights_model");
    std::vector<std::vector<std::byte>> kept;
    std::vector<NamedTensor> parts[3];
    std::string map;
    for (size_t i = 0; i < whole.tensors().size(); ++i) {
        const StoredTensor& tensor = whole.tensors()[i];
        kept.push_back(whole.bytes_of(tensor.name));
        parts[i % 3].push_back({tensor.name, {kept.back().data(), tensor.type.dtype, tensor.type.shape}});
        map += (i > 0 ? ",\"" : "\"") + tensor.name + "\":\"" + std::to_string(i % 3) + ".safetensors\"";
    }
    uint8_t mask[4] = {1, 0, 1, 0};
    parts[1].push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {mask, DType::u8, {4}}});
    map += R"(,"model.layers.0.self_attn.rotary_emb.inv_freq":"1.safetensors")";
    for (size_t i = 0; i < 3; ++i) folder.tensors(std::to_string(i) + ".safetensors", parts[i]);
    folder.index(map);
    FakeHost host(
        "[train]\nsteps = 10\nsequences_per_step = 3\n[data]\npath = \"x\"\ntokens_per_sequence = 16\n"
        "vocab = 97\n[script]\nmodel = \"llama\"\nlayers = 2\nembed = 40\nheads = 4\nkv_heads = 2\nmlp = 50\n");
    host.strategies = built_strategy;
    run_script(in_source("scripts/gpt.lua"), host);
    const Program& program = host.experiment->train();
    const PublishedWeights& weights = host.experiment->recipe->weights;
    CHECK_NOTHROW(check_weights(program, folder.path, weights));
    const WeightFiles split(folder.path), single(in_source("tests/parity/llama/model.safetensors"));
    for (const WeightSource& source : weights.sources) {
        const Value& param = program.value(*program.find(source.param));
        const Shape from(param.type.shape.size(), 0);
        CHECK(read_weights(split, param, source, from, param.type.shape) ==
              read_weights(single, param, source, from, param.type.shape));
    }
}

TEST_CASE("a param of experts is read from a tensor of each, from one of all, or from one that fills all") {
    const Folder folder("weights_stacked");
    constexpr int64_t experts = 3, in = 4, out = 5;
    std::vector<float> each(experts * out * in), rows(experts * in), dense(out * in);
    for (size_t i = 0; i < each.size(); ++i) each[i] = static_cast<float>(i);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = 100 + static_cast<float>(i);
    for (size_t i = 0; i < dense.size(); ++i) dense[i] = -static_cast<float>(i);
    const auto files_with = [&](int64_t count, const Shape& last) {
        std::vector<NamedTensor> all{{"mlp.w", {dense.data(), DType::f32, {out, in}}},
                                     {"model.fused", {each.data(), DType::f32, {experts, out, in}}}};
        for (int64_t e = 0; e < count; ++e) {
            const std::string name = "model.experts." + std::to_string(e);
            all.push_back(
                {name + ".w",
                 {&each[static_cast<size_t>(e * out * in)], DType::f32, e + 1 == count ? last : Shape{out, in}}});
            all.push_back({name + ".b", {&rows[static_cast<size_t>(e * in)], DType::f32, {in}}});
        }
        folder.tensors("model.safetensors", all);
    };
    const auto host_of = [&](const std::string& weights) {
        auto host = std::make_unique<FakeHost>();
        run_script_text(
            "local o = require 'orrery'\n"
            "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 } }) }, function(b)\n"
            "  local w = o.param { name = 'w', shape = { { 'experts', 3 }, { 'in', 4 }, { 'out', 5 } } }\n"
            "  local v = o.param { name = 'v', shape = { { 'experts', 3 }, { 'in', 4 } } }\n"
            "  return b.x:sum() * w:sum() * v:sum(), b.x:sum()\nend)\n"
            "p:train_with(o.optim.sgd {})\n"
            "p:weights { prefix = 'model.', ignore = { 'mlp.w', '*fused', '*experts.*' }, " +
                weights + " }\np:compile()\n",
            "a.lua", "", *host);
        return host;
    };
    const std::string v = ", { param = 'v', tensor = 'model.experts.*.b' }";
    const std::string by_expert = "{ param = 'w', tensor = 'model.experts.*.w', transpose = true }" + v;
    const auto said = [&](const std::string& weights) -> std::string {
        try {
            const auto host = host_of(weights);
            check_weights(host->experiment->train(), folder.path, host->experiment->recipe->weights);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "";
    };
    /// The block of w at `offset`, element by element.
    const auto check = [&](const std::string& weights, const Shape& offset, const Shape& shape, bool same) {
        const auto host = host_of(weights);
        const Program& program = host->experiment->train();
        const WeightFiles files(folder.path);
        const PublishedWeights table = as_named(host->experiment->recipe->weights, files);
        const Value& param = program.value(*program.find("w"));
        const std::vector<float> block = read_weights(files, param, table.sources[0], offset, shape);
        size_t at = 0, wrong = 0;
        for (int64_t e = offset[0]; e < offset[0] + shape[0]; ++e)
            for (int64_t i = offset[1]; i < offset[1] + shape[1]; ++i)
                for (int64_t o = offset[2]; o < offset[2] + shape[2]; ++o)
                    wrong += block[at++] != (same ? dense[static_cast<size_t>(o * in + i)]
                                                  : each[static_cast<size_t>((e * out + o) * in + i)]);
        CHECK(wrong == 0);
        CHECK(at == block.size());
    };
    files_with(3, {out, in});
    CHECK(said(by_expert) == "");
    const std::string fused = "{ param = 'w', tensor = 'model.fused', transpose = true }" + v;
    const std::string upcycled =
        "{ param = 'w', tensor = 'model.experts.*.w', from = 'model.mlp.w', transpose = true }" + v;
    CHECK(said(fused) == "");
    CHECK(said(upcycled) == "");
    const std::pair<Shape, Shape> blocks[] = {{{0, 0, 0}, {3, 4, 5}},
                                              {{1, 0, 0}, {2, 4, 5}},
                                              {{2, 1, 0}, {1, 2, 5}},
                                              {{1, 2, 3}, {1, 2, 2}},
                                              {{0, 0, 4}, {3, 1, 1}}};
    for (const auto& [offset, shape] : blocks) {
        check(by_expert, offset, shape, false);
        check(fused, offset, shape, false);
        check(upcycled, offset, shape, true);
    }
    CHECK_THAT(said("{ param = 'w', tensor = 'model.*.*.w' }" + v), Contains("one * stands for the index"));
    CHECK_THAT(said("{ param = 'w', tensor = 'w', from = 'mlp.*.w' }" + v), Contains("one * stands for the index"));
    files_with(2, {out, in});
    CHECK_THAT(said(by_expert), Contains("a.lua:8: " + folder.path +
                                         ": no tensor \"model.experts.2.w\": param w is "
                                         "f32[3,4,5] and needs 3 of them, for indices 0 to 2 along its dim experts, "
                                         "but the files have 2\n  give the model the number"));
    CHECK_THAT(said(by_expert + ", fresh = { 'w', 'v' }"), Contains("no tensor \"model.experts.2.w\""));
    files_with(3, {in, out});
    CHECK_THAT(said(by_expert), Contains("tensor model.experts.2.w is f32[4,5], expected [5,4]"));
    files_with(0, {});
    CHECK_THAT(said(by_expert), Contains("no tensor \"model.experts.0.w\""));
    CHECK(said(by_expert + ", fresh = { 'w', 'v' }") == "");
}

TEST_CASE("params that alternate in a tensor are read from it, and a state of o.state as a param") {
    const Folder folder("weights_interleaved");
    std::vector<float> mixed(2 * 3 * 8);
    for (size_t i = 0; i < mixed.size(); ++i) mixed[i] = static_cast<float>(i);
    folder.tensors("model.safetensors",
                   {{"mixed", {mixed.data(), DType::f32, {2, 3, 8}}}, {"bias", {mixed.data(), DType::f32, {3}}}});
    const auto host_of = [&](const std::string& weights) {
        auto host = std::make_unique<FakeHost>();
        run_script_text(
            "local o = require 'orrery'\n"
            "local p = o.trace('m', { x = o.array('f32', { { 'batch', 1 } }) }, function(b)\n"
            "  local function param(name)\n"
            "    return o.param { name = name, shape = { { 'experts', 2 }, { 'in', 3 }, { 'out', 4 } } }:sum()\n"
            "  end\n"
            "  local bias = o.state { name = 'bias', shape = { { 'in', 3 } } }\n"
            "  bias:next(bias)\n"
            "  return b.x:sum() * param('even') * param('odd') * bias:sum(), b.x:sum()\nend)\n"
            "p:train_with(o.optim.sgd {})\n"
            "p:weights { " +
                weights + " }\np:compile()\n",
            "a.lua", "", *host);
        return host;
    };
    const auto part = [](const std::string& name, int index, const std::string& more = "interleaved = true") {
        return "{ param = '" + name + "', tensor = 'mixed', part = { 3, " + std::to_string(index) + ", 2 }, " + more +
               " }, ";
    };
    const auto host = host_of(part("even", 1) + part("odd", 2) + "{ param = 'bias' }");
    const Program& program = host->experiment->train();
    const PublishedWeights& table = host->experiment->recipe->weights;
    CHECK(check_weights(program, folder.path, table).empty());
    CHECK(table.sources.size() == 3);
    const WeightFiles files(folder.path);
    for (const size_t odd : {size_t{0}, size_t{1}}) {
        const Value& param = program.value(*program.find(odd ? "odd" : "even"));
        CHECK(read_weights(files, param, table.sources[odd], {1, 1, 1}, {1, 2, 2}) ==
              std::vector<float>{mixed[24 + 8 + 2 + odd], mixed[24 + 8 + 4 + odd], mixed[24 + 16 + 2 + odd],
                                 mixed[24 + 16 + 4 + odd]});
    }
    const auto said = [&](const std::string& weights) -> std::string {
        try {
            const auto other = host_of(weights);
            check_weights(other->experiment->train(), folder.path, other->experiment->recipe->weights);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "";
    };
    CHECK_THAT(said(part("even", 1) + part("odd", 2)), Contains("the model has no param for 1 of its 2 tensors: bias"));
    CHECK_THAT(said(part("even", 1) + part("odd", 1) + "{ param = 'bias' }"),
               Contains("tensor mixed is [2,3,8], but params are read from 1 to 4 of 8 along dim 3"));
    CHECK_THAT(said(part("even", 1) + part("odd", 2, "") + "{ param = 'bias' }"),
               Contains("tensor mixed is split along"));
    CHECK_THAT(said("{ param = 'even', interleaved = true }"), Contains("even is interleaved without a part"));
}
