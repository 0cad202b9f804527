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
