// Checkpoints of ranks that are threads, exported: every element where it belongs, in blocks of any size.
#include "run/export/export.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "orrery/half.h"
#include "run/checkpoint/restore/weight_files.h"
#include "run/export/convert.h"
#include "run/export/output_folder.h"
#include "states.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

WeightSource source(const std::string& param, const std::string& tensor) {
    WeightSource one;
    one.param = param;
    one.tensor = tensor;
    return one;
}

/// A table whose last columns are no words, a head, pieces of one tensor, a vector; an optimizer's state is no param.
std::vector<Variable> spread(const Mesh& mesh) {
    std::vector<Variable> all;
    const auto add = [&](const std::string& name, const Shape& shape, std::vector<std::pair<std::string, int>> splits) {
        all.push_back({name, {DType::f32, shape}, layout_of(mesh, std::move(splits), shape.size())});
    };
    add("table", {24, 10}, {{"tp", 0}, {"dp", 1}});
    add("head", {10, 24}, {{"tp", 1}, {"dp", 0}});
    for (const char* name : {"q", "k", "v"}) add(name, {12, 6}, {{"tp", 1}});
    for (const char* name : {"q.b", "k.b", "v.b"}) add(name, {6}, {{"dp", 0}});
    add("norm", {12}, {});
    add("even", {3, 2, 4}, {{"tp", 2}});
    add("odd", {3, 2, 4}, {{"dp", 1}});
    add("gate", {4, 6, 8}, {{"tp", 0}, {"dp", 2}});
    add("up", {4, 6, 8}, {{"tp", 2}});
    add("down", {4, 8, 6}, {{"dp", 0}});
    add("down.b", {4, 6}, {{"tp", 1}});
    add("head.m", {10, 24}, {{"tp", 1}});
    return all;
}

PublishedRecord record() {
    PublishedRecord out;
    out.architecture = "llama";
    out.config = {{"vocab_size", 21}, {"eos_token_id", 3}, {"a_key", 1e-5}};
    out.params = {source("table", "embed.weight"), source("head", "lm_head.weight"), source("norm", "norm.weight")};
    out.params[0].padded = 0, out.params[0].rows = 21;
    out.params[1].padded = 0, out.params[1].rows = 21, out.params[1].transpose = true;
    for (int64_t i = 0; i < 3; ++i) {
        const std::string name(1, "qkv"[i]);
        WeightSource matrix = source(name, "attn.weight"), bias = source(name + ".b", "attn.bias");
        matrix.dim = 1, bias.dim = 0;
        matrix.start = bias.start = 6 * i, matrix.size = bias.size = 6;
        out.params.push_back(matrix);
        out.params.push_back(bias);
    }
    for (int64_t i = 0; i < 2; ++i) {  // one tensor of two stacks of matrices
        WeightSource fused = source(i == 0 ? "gate" : "up", "experts.gate_up");
        fused.transpose = true;
        fused.dim = 1, fused.start = 8 * i, fused.size = 8;
        out.params.push_back(fused);
    }
    for (int64_t i = 0; i < 2; ++i) {  // elements of two params in turn
        WeightSource mixed = source(i == 0 ? "even" : "odd", "mixed");
        mixed.dim = 2, mixed.start = i, mixed.size = 4, mixed.stride = 2;
        out.params.push_back(mixed);
    }
    for (const std::string name : {"down", "down.b"}) {  // a tensor for each expert
        WeightSource stacked = source(name, "experts.*." + name);
        stacked.stacked = stacked.transpose = true;
        out.params.push_back(stacked);
    }
    return out;
}

/// A whole variable as it was saved.
std::vector<float> saved(const std::string& name) {
    for (const Variable& variable : spread(single)) {
        if (variable.name != name) continue;
        const std::vector<uint8_t> bytes = RankState::expected(variable, single, 0, 5);
        std::vector<float> values(bytes.size() / 4);
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    throw std::runtime_error("no " + name);
}

using Bits = std::vector<uint32_t>;

Bits bits_of(const std::vector<float>& values) {
    Bits bits(values.size());
    std::memcpy(bits.data(), values.data(), values.size() * 4);
    return bits;
}

Bits read(const WeightFiles& files, const std::string& tensor) {
    const std::vector<std::byte> bytes = files.file_of(tensor).bytes_of(tensor);
    Bits bits(bytes.size() / 4);
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    return bits;
}

void check_all(const WeightFiles& files) {
    const std::vector<float> table = saved("table"), head = saved("head");
    CHECK(read(files, "embed.weight") == bits_of({table.begin(), table.begin() + 21 * 10}));
    std::vector<float> turned, joined, biases;
    for (size_t word = 0; word < 21; ++word)
        for (size_t i = 0; i < 10; ++i) turned.push_back(head[i * 24 + word]);
    CHECK(read(files, "lm_head.weight") == bits_of(turned));
    for (size_t row = 0; row < 12; ++row)
        for (const char* name : {"q", "k", "v"})
            for (size_t i = 0; i < 6; ++i) joined.push_back(saved(name)[row * 6 + i]);
    CHECK(read(files, "attn.weight") == bits_of(joined));
    for (const char* name : {"q.b", "k.b", "v.b"})
        for (const float x : saved(name)) biases.push_back(x);
    CHECK(read(files, "attn.bias") == bits_of(biases));
    CHECK(read(files, "norm.weight") == bits_of(saved("norm")));
    std::vector<float> fused;
    for (size_t expert = 0; expert < 4; ++expert) {
        for (const char* name : {"gate", "up"}) {
            const std::vector<float> matrices = saved(name);
            for (size_t out = 0; out < 8; ++out)
                for (size_t in = 0; in < 6; ++in) fused.push_back(matrices[expert * 48 + in * 8 + out]);
        }
        std::vector<float> down;
        const std::vector<float> matrices = saved("down"), rows = saved("down.b");
        for (size_t out = 0; out < 6; ++out)
            for (size_t in = 0; in < 8; ++in) down.push_back(matrices[expert * 48 + in * 6 + out]);
        const std::string name = "experts." + std::to_string(expert) + ".down";
        CHECK(read(files, name) == bits_of(down));
        CHECK(files.tensor(name).type.shape == Shape{6, 8});
        const auto first = rows.begin() + static_cast<std::ptrdiff_t>(expert) * 6;
        CHECK(read(files, name + ".b") == bits_of({first, first + 6}));
    }
    CHECK(read(files, "experts.gate_up") == bits_of(fused));
    CHECK(files.tensor("experts.gate_up").type.shape == Shape{4, 16, 6});
    std::vector<float> mixed;
    for (size_t i = 0; i < 24; ++i)
        for (const char* name : {"even", "odd"}) mixed.push_back(saved(name)[i]);
    CHECK(read(files, "mixed") == bits_of(mixed));
    CHECK(files.tensor("mixed").type.shape == Shape{3, 2, 8});
    CHECK(files.tensors().size() == 15);
}

std::string text_of_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// A checkpoint of step 1, saved on a mesh.
struct Saved {
    explicit Saved(const std::string& name, const Mesh& mesh = dp2tp2) : scratch(name), stores("posix") {
        std::filesystem::create_directories(scratch.path);
        for (const std::string& problem : save(stores, place(), spread(mesh), mesh, 1, 5)) CHECK(problem.empty());
        store = stores.open(place());
        manifest = Manifest::of(*store, 1);
    }
    std::string place() const { return (scratch.path / "steps").string(); }
    std::string out(const std::string& name = "out") const { return (scratch.path / name).string(); }

    Scratch scratch;
    TestStore stores;
    std::unique_ptr<CheckpointStore> store;
    Manifest manifest;
};

}  // namespace

TEST_CASE("an export has every element where it belongs, whatever the mesh, the blocks and the files") {
    for (const Mesh& mesh : {single, dp2tp2}) {
        const Saved at("export_all", mesh);
        for (const int64_t block : {1, 50, 100, 1 << 20}) {
            INFO(block);
            ExportOptions options;
            options.block_bytes = block;
            if (block == 100) options.file_bytes = 900;
            const std::string out = at.out(std::to_string(block));
            const Exported told = export_checkpoint(*at.store, at.manifest, record(), out, options);
            CHECK(told.tensors == 15);
            CHECK(told.elements == 2 * 210 + 12 + 216 + 18 + 3 * 192 + 24 + 48);
            CHECK(told.files == (block == 100 ? 7 : 1));
            const WeightFiles files(out);
            check_all(files);
            for (const auto& [key, value] : files.file_of("norm.weight").header().metadata) {
                CHECK(key == "format");
                CHECK(value == "pt");
            }
            CHECK(text_of_file(out + "/config.json") ==
                  "{\n  \"a_key\": 1e-05,\n  \"dtype\": \"float32\",\n  \"eos_token_id\": 3,\n  \"torch_dtype\": "
                  "\"float32\",\n  \"vocab_size\": 21\n}\n");
            CHECK(text_of_file(out + "/generation_config.json") ==
                  "{\n  \"_from_model_config\": true,\n  \"eos_token_id\": 3\n}\n");
        }
    }
}

TEST_CASE("raw exports have the params, whole, under their own names") {
    const Saved at("export_raw");
    ExportOptions options;
    options.raw = true;
    export_checkpoint(*at.store, at.manifest, record(), at.out(), options);
    const WeightFiles files(at.out());
    CHECK(files.tensors().size() == 15);
    for (const char* name : {"table", "head", "q", "k.b", "norm", "down"})
        CHECK(read(files, name) == bits_of(saved(name)));
    CHECK(files.tensor("head").type.shape == Shape{10, 24});
    CHECK_FALSE(std::filesystem::exists(at.out() + "/config.json"));
}

TEST_CASE("an export that fails leaves nothing") {
    const Saved at("export_fails");
    const auto said = [&](const PublishedRecord& wanted, const ExportOptions& options = {}) -> std::string {
        std::string text;
        try {
            export_checkpoint(*at.store, at.manifest, wanted, at.out(), options);
        } catch (const Error& problem) {
            text = problem.what();
        }
        CHECK_FALSE(std::filesystem::exists(at.out()));
        CHECK_FALSE(std::filesystem::exists(at.out() + ".part"));
        return text;
    };
    ExportOptions half;
    half.dtype = DType::f16;  // the bytes of these states are of any size as floats
    CHECK_THAT(said(record(), half), Contains("has a value that overflows f16") && Contains("--dtype bf16"));
    PublishedRecord wanted = record();
    wanted.params[2].param = "gone";
    CHECK_THAT(said(wanted), Contains("the checkpoint of step 1 has no param gone"));
    wanted = record();
    wanted.params.erase(wanted.params.begin() + 6);  // the piece in the middle
    CHECK_THAT(said(wanted), Contains("the params of tensor attn.bias do not cover it exactly once"));
    wanted = record();
    std::erase_if(wanted.params, [](const WeightSource& one) { return one.param == "odd"; });
    CHECK_THAT(said(wanted), Contains("the params of tensor mixed do not cover it exactly once"));
    wanted = record();
    wanted.params[0].rows = 25;
    CHECK_THAT(said(wanted), Contains("param table is f32[24,10]") && Contains("embed.weight"));

    const std::string object = at.place() + "/step-00000001/" + at.manifest.objects.back().key;
    std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end).put('\x55');
    file.close();
    CHECK_THAT(said(record()), Contains("step 1, " + at.manifest.objects.back().key));
}

TEST_CASE("a folder in the way is refused, an empty one taken") {
    const Saved at("export_way");
    std::filesystem::create_directory(at.out("empty"));
    export_checkpoint(*at.store, at.manifest, record(), at.out("empty") + "//", {});
    CHECK(std::filesystem::exists(at.out("empty") + "/model.safetensors"));
    CHECK_THROWS_WITH(OutputFolder(at.out("empty")), Contains("exists and is not empty"));
    { const OutputFolder inner(at.out("no/such/folder")); }
    CHECK(std::filesystem::is_directory(at.out("no/such")));
    std::ofstream(at.out("file")) << "a file";
    CHECK_THROWS_WITH(OutputFolder(at.out("file/a/b")), Contains("cannot create the folder " + at.out("file/a")));
    const OutputFolder first(at.out("two"));
    CHECK_THROWS_WITH(OutputFolder(at.out("two")), Contains("another export is writing"));
    CHECK(std::filesystem::exists(at.out("two.part")));
    CHECK_THROWS_WITH(first.require_room(INT64_MAX), Contains("not enough disk space"));
}

TEST_CASE("blocks are rounded as the kernels round, and turned") {
    std::vector<float> values;
    for (int i = 0; i < 70 * 45; ++i)
        values.push_back(std::ldexp(static_cast<float>(i * 37 % 4099 - 2000), i % 20 - 16));
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
        for (const bool transpose : {false, true}) {
            std::vector<std::byte> to(values.size() * static_cast<size_t>(size_of(type)));
            CHECK(convert(from, DType::f32, to.data(), type, 70, 45, transpose) == -1);
            size_t wrong = 0;
            for (size_t row = 0; row < 70; ++row)
                for (size_t column = 0; column < 45; ++column) {
                    const float x = values[row * 45 + column];
                    const size_t at = transpose ? column * 70 + row : row * 45 + column;
                    if (type == DType::f32) {
                        float y;
                        std::memcpy(&y, to.data() + 4 * at, 4);
                        wrong += y != x;
                        continue;
                    }
                    uint16_t y;
                    std::memcpy(&y, to.data() + 2 * at, 2);
                    wrong += y != (type == DType::bf16 ? narrow_bf16(x) : narrow_f16(x));
                }
            CHECK(wrong == 0);
        }
    values[100] = 65520.0f;
    std::vector<std::byte> to(values.size() * 2);
    CHECK(convert(from, DType::f32, to.data(), DType::f16, 70, 45, true) == 100);
    values[100] = INFINITY;  // infinite already
    CHECK(convert(from, DType::f32, to.data(), DType::f16, 70, 45, true) == -1);
    // A half that is kept has its bits.
    const std::vector<uint16_t> halves{0x7e01, 0xfe37, 0x8000, 0x0001};
    std::vector<uint16_t> kept(4);
    convert(reinterpret_cast<const std::byte*>(halves.data()), DType::f16, reinterpret_cast<std::byte*>(kept.data()),
            DType::f16, 2, 2, true);
    CHECK(kept == std::vector<uint16_t>{0x7e01, 0x8000, 0xfe37, 0x0001});
}
