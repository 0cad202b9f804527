// The promises of every codec (orrery/codec.h), of its own ops on the reference kernels and on those of the CPU.
#include "orrery/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "ir/build.h"
#include "ir/codecs.h"
#include "ir/op.h"
#include "orrery/device.h"
#include "suites/chosen.h"

using namespace orrery;

namespace {

constexpr int64_t rows = 3;

/// The chosen plugins; when none is chosen, the codecs of the library, some with parameters, and all plugins.
std::vector<const Codec*> tested() {
    std::vector<const Codec*> all;
    std::vector<std::string> plugins = suites::chosen("codec");
    if (plugins.empty()) {
        for (const Codec& codec : codecs())
            if (codec.encodes()) all.push_back(&codec);
        for (const char* name :
             {"top_k/10", "top_k/100", "top_k/64+int2", "top_k/64+sign", "top_k/100+int8", "top_k/10+bf16",
              "top_k/10+f16", "top_k/2+int4", "top_k/4096+f8e4m3", "powersgd/1", "powersgd/4", "powersgd/16"})
            all.push_back(&codec_named({}, name, {}));
        plugins = Loader(suites::folders()).present("codec");
    }
    if (!plugins.empty()) plugins = suites::usable("codec");
    for (const std::string& name : plugins) all.push_back(&suites::loaded("codec", name).codec(name, {}));
    return all;
}

/// x of n elements in each row; a codec whose codes ranks add, in rounds, has matrices there, of 2 columns + 3 rows.
Shape shape_of(const Codec& codec, Shape leading, int64_t n) {
    const int64_t m = 2 * codec.columns + 3;
    if (!codec.rounds.empty()) leading.push_back(m), n /= m;
    leading.push_back(n);
    return leading;
}

/// A codec's ops on x f32[.., n], of a single member.
struct Traced {
    Program program;
    ValueId x = none, decoded = none;
    ValueId kept = none;  ///< with rounds: what the codec keeps, f32[.., n, columns]
    std::vector<ValueId> codes;

    Traced(const Codec& codec, const Shape& shape) {
        program.name = "codec";
        Builder build(program);
        x = build.input("x", {DType::f32, shape}, std::vector<std::string>(shape.size()), {});
        const AddPart add = [&](std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                                const std::vector<ValueId>&) {
            return build.add(kind, std::move(inputs), std::move(attributes), {});
        };
        const Mesh one_device;
        const Coding at{program, one_device, add};
        std::vector<ValueId> made;
        if (codec.rounds.empty()) {
            made = codes = codec.encode(at, x);
        } else {
            Shape wide = shape;
            wide[wide.size() - 2] = shape.back(), wide.back() = codec.columns;
            kept = build.input("kept", {DType::f32, wide}, std::vector<std::string>(wide.size()), {});
        }
        for (const CodeRound& round : codec.rounds) {
            codes.push_back(round.encode(at, x, kept, made));
            made.push_back(round.make ? round.make(at, codes.back()) : codes.back());
        }
        if (!codes.empty()) decoded = codec.decode(at, made, shape);
    }
    const TensorType& type(ValueId id) const { return program.value(id).type; }
};

struct Machine {
    std::string name;
    std::unique_ptr<Device> device;

    Machine(std::string shown, bool reference) : name(std::move(shown)) {
        Config config("device.cpu");
        config.set("reference", {reference});
        config.set("threads", {int64_t{1}});
        device = suites::loaded("device", "cpu").device("cpu", {})(config);
    }

    void launch(const KernelSpec& spec, const std::vector<Tensor>& operands) {
        if (const std::string why = device->why_not(spec); !why.empty()) FAIL(name << " have no kernel: " << why);
        const std::unique_ptr<Kernel> kernel = device->prepare(spec);
        size_t room = static_cast<size_t>(kernel->scratch_bytes()) + 2 * scratch_alignment;
        std::vector<std::byte> scratch(room);
        void* begin = scratch.data();
        std::align(scratch_alignment, room - scratch_alignment, begin, room);
        device->launch(0, *kernel, operands, begin);
        device->synchronize(0);
    }

    /// The bytes of every value.
    std::vector<std::vector<char>> run(const Traced& traced, const std::vector<float>& x) {
        std::vector<std::vector<char>> values;
        for (const Value& value : traced.program.values) values.emplace_back(value.type.bytes());
        std::memcpy(values[traced.x].data(), x.data(), values[traced.x].size());
        if (traced.kept != none) {
            std::mt19937 source(11);
            std::normal_distribution<float> normal;
            std::vector<float> kept(values[traced.kept].size() / sizeof(float));
            std::generate(kept.begin(), kept.end(), [&] { return normal(source); });
            std::memcpy(values[traced.kept].data(), kept.data(), values[traced.kept].size());
        }
        for (const Op& op : traced.program.ops) {
            KernelSpec spec{op.kind, op.attributes, {}, {}};
            std::vector<Tensor> operands;
            for (const bool output : {false, true})
                for (const ValueId id : output ? op.outputs : op.inputs) {
                    (output ? spec.outputs : spec.inputs).push_back(traced.type(id));
                    operands.push_back({values[id].data(), traced.type(id).dtype, traced.type(id).shape});
                }
            if (op_def(op.kind).alias)
                values[op.outputs[0]] = values[op.inputs[0]];
            else
                launch(spec, operands);
        }
        return values;
    }

    std::vector<float> decoded(const Traced& traced, const std::vector<float>& x) {
        const std::vector<char> bytes = run(traced, x)[traced.decoded];
        std::vector<float> numbers(bytes.size() / sizeof(float));
        std::memcpy(numbers.data(), bytes.data(), bytes.size());
        return numbers;
    }
};

std::vector<Machine>& machines() {
    static auto& both = *new std::vector<Machine>;
    if (both.empty()) {
        both.emplace_back("the reference kernels", true);
        both.emplace_back("the CPU's kernels", false);
    }
    return both;
}

/// One block, whole blocks, and a short last one. Of matrices: a square one, and wider ones.
std::vector<int64_t> sizes(const Codec& codec) {
    const int64_t m = 2 * codec.columns + 3;
    if (!codec.rounds.empty()) return {m * m, m * (m + 1), m * (9 * codec.columns + 5)};
    const int64_t whole = codec.block * std::max<int64_t>(2, (199 + codec.block) / codec.block);
    return {codec.block, whole, whole + (codec.block + 2) / 3};
}

struct Numbers {
    std::string name;
    std::vector<float> x;
};

std::vector<Numbers> arrays(const Codec& codec, int64_t n) {
    std::mt19937 source(7);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::normal_distribution<double> normal;
    const auto made = [&](const std::string& name, auto element) {
        std::vector<float> x;
        for (int64_t i = 0; i < rows * n; ++i) x.push_back(static_cast<float>(element(i)));
        return Numbers{name, std::move(x)};
    };
    return {made("random", [&](int64_t) { return normal(source); }),
            made("uniform", [&](int64_t) { return 1.3 * uniform(source); }),
            made("zero", [](int64_t) { return 0; }),
            made("constant", [](int64_t) { return -2.5; }),
            made("one of a block", [&](int64_t i) { return i % n % codec.block == i / n ? 3 : 0; }),
            made("one large", [&](int64_t i) { return i % n == n - 1 ? 1 : 1e-4 * uniform(source); }),
            made(fmt::format("{:g}", codec.largest), [&](int64_t) { return codec.largest * uniform(source); }),
            made("small", [&](int64_t) { return 1e-6 * uniform(source); }),
            made("denormal", [&](int64_t) { return 1e-39 * uniform(source); })};
}

void check_bound(const Codec& codec, const std::string& where, const Numbers& numbers, int64_t n,
                 const std::vector<float>& decoded) {
    for (int64_t row = 0; row < rows; ++row) {
        double error = 0, norm = 0;
        for (int64_t i = row * n; i < (row + 1) * n; ++i) {
            const double x = numbers.x[i];
            norm += x * x;
            error += (x - decoded[i]) * (x - decoded[i]);
        }
        error = std::sqrt(error), norm = std::sqrt(norm);
        const double denormal = codec.floor * std::sqrt(static_cast<double>(n));
        if (!(error <= codec.bound * norm + denormal))
            FAIL_CHECK(
                fmt::format("codec {} breaks its bound on {}: array {}, n {}, row {}: ||x - decode(encode(x))|| "
                            "is {:.6g}, {:.6g} of ||x||; its bound is {:g}",
                            codec.name, where, numbers.name, n, row, error, error / norm, codec.bound));
    }
}

}  // namespace

TEST_CASE("codes keep the leading dims, and stand for f32 of the shape") {
    for (const Codec* codec : tested()) {
        INFO("codec " << codec->name);
        for (const Shape& leading : {Shape{rows}, Shape{2, 1, rows}})
            for (const int64_t n : sizes(*codec)) {
                const Shape shape = shape_of(*codec, leading, n);
                const Traced traced(*codec, shape);
                REQUIRE_FALSE(traced.codes.empty());
                for (const ValueId code : traced.codes) {
                    const Shape& made = traced.type(code).shape;
                    INFO("x " << traced.type(traced.x).text() << ", a code " << traced.type(code).text());
                    REQUIRE(made.size() > leading.size());
                    CHECK(std::equal(leading.begin(), leading.end(), made.begin()));
                }
                INFO("decode makes " << traced.type(traced.decoded).text());
                CHECK(traced.type(traced.decoded) == TensorType{DType::f32, shape});
                if (codec->sums_in) {
                    CHECK(traced.codes.size() == 1);
                    CHECK(traced.type(traced.codes[0]) == TensorType{*codec->sums_in, shape});
                }
            }
    }
}

TEST_CASE("what codes stand for is within the codec's bound") {
    for (const Codec* codec : tested())
        for (const int64_t n : sizes(*codec)) {
            const Traced traced(*codec, shape_of(*codec, {rows}, n));
            for (const Numbers& numbers : arrays(*codec, n))
                for (Machine& machine : machines())
                    check_bound(*codec, machine.name, numbers, n, machine.decoded(traced, numbers.x));
        }
}

TEST_CASE("an array with an infinity or a NaN is decoded to one with at least one") {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const Codec* codec : tested())
        for (const int64_t n : sizes(*codec)) {
            const Traced traced(*codec, shape_of(*codec, {rows}, n));
            for (const float wrong : {infinity, -infinity, nan})
                for (const int64_t at : {int64_t{0}, n + n / 2, rows * n - 1})
                    for (Machine& machine : machines()) {
                        std::vector<float> x = arrays(*codec, n)[0].x;
                        x[at] = wrong;
                        const std::vector<float> d = machine.decoded(traced, x);
                        if (std::all_of(d.begin(), d.end(), [](float e) { return std::isfinite(e); }))
                            FAIL_CHECK(fmt::format("codec {} hides {} on {}: element {} of f32[{}, {}]", codec->name,
                                                   wrong, machine.name, at, rows, n));
                    }
        }
}

TEST_CASE("the same array has the same codes") {
    for (const Codec* codec : tested())
        for (const int64_t n : sizes(*codec)) {
            const Traced traced(*codec, shape_of(*codec, {rows}, n));
            for (Machine& machine : machines()) {
                const std::vector<float> x = arrays(*codec, n)[0].x;
                const auto first = machine.run(traced, x), second = machine.run(traced, x);
                for (const ValueId code : traced.codes)
                    if (first[code] != second[code])
                        FAIL_CHECK(fmt::format("codec {} encodes twice to other bits on {}: n {}", codec->name,
                                               machine.name, n));
            }
        }
}
