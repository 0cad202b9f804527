// nn.attention over rows of documents, and with sinks: what it records, and what comes of it in f64.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "folders.h"
#include "interpreter.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/checkpoint/format/safetensors.h"

using namespace orrery;

namespace {

constexpr int64_t rows = 2, seq = 7, heads = 4, size = 6;
constexpr int32_t documents[rows * seq] = {0, 0, 0, 1, 2, 2, -1, 4, 3, 4, 3, 4, -1, -1};
constexpr int32_t positions[rows * seq] = {0, 1, 2, 0, 0, 1, 0, 0, 0, 1, 1, 2, 0, 1};

/// sum of squares of nn.attention of x [2, 7, 24] with these options, and its gradients.
Program attention(const std::string& options) {
    FakeHost host("[train]\nsteps = 100\n");
    run_script_text(
        "local o = require 'orrery'\n"
        "local ids = o.array('i32', { {'batch', 2}, {'seq', 7} })\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 2}, {'seq', 7}, {'embed', 24} }), d = ids, p = ids "
        "},\n"
        "  function(b)\n    local d, p = b.d, b.p\n"
        "    return o.nn.attention(b.x, { heads = 4, kv_heads = 2" +
            options + " }):sumsq()\n  end)\np:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\np:compile()\n",
        "a.lua", in_source("tests/lua"), host);
    return host.experiment->train();
}

std::vector<test::Array> evaluated(const Program& program) {
    return test::evaluate(program, [](const Value& value, ValueId) {
        test::Array array(test::widened(value.type));
        if (value.name == "d" || value.name == "p") {
            std::copy_n(value.name == "d" ? documents : positions, rows * seq, array.i32());
            return array;
        }
        // By its name: the same in programs of other ops.
        return test::fill_small(value, std::accumulate(value.name.begin(), value.name.end(), ValueId{0}));
    });
}

const Op& only(const Program& program, std::string_view kind) {
    const auto found =
        std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; });
    REQUIRE(found != program.ops.end());
    return *found;
}

void check_params_equal(const Program& a, const Program& b) {
    const auto left = evaluated(a), right = evaluated(b);
    int compared = 0;
    for (const ValueId param : a.params()) {
        INFO(a.value(param).name);
        const test::Array& x = left[static_cast<size_t>(a.grad_of(param))];
        const test::Array& y = right[static_cast<size_t>(b.grad_of(*b.find(a.value(param).name)))];
        REQUIRE(x.type.shape == y.type.shape);
        for (int64_t i = 0; i < x.type.count(); ++i) CHECK(x.f64()[i] == Approx(y.f64()[i]).margin(1e-11));
        ++compared;
    }
    CHECK(compared == 8);
}

}  // namespace

TEST_CASE("nn.attention gives documents and positions to attention and to rope") {
    const Program program = attention(", rope = 100.0, documents = d, positions = p");
    const Op& op = only(program, "attention");
    REQUIRE(op.inputs.size() == 7);
    const ValueId d = *program.find("d"), p = *program.find("p");
    CHECK(std::vector<ValueId>(op.inputs.begin() + 3, op.inputs.end()) == std::vector<ValueId>{d, p, d, p});
    CHECK(only(program, "rope").inputs.at(1) == p);
    CHECK(only(attention(", rope = { theta = 100.0, positions = d }, documents = d, positions = p"), "rope")
              .inputs.at(1) == *program.find("d"));
    CHECK_THROWS_WITH(attention(", documents = d"),
                      Catch::Contains("attention: documents without positions: give both, or neither"));
    CHECK_THROWS_WITH(attention(", sinks = true, fused = false"), Catch::Contains("sinks need fused attention"));
}

TEST_CASE("attention of documents as separate ops has the fused op's gradients") {
    for (const std::string how : {"", ", window = 2", ", causal = false"}) {
        INFO(how);
        const std::string options = ", rope = 100.0, documents = d, positions = p" + how;
        check_params_equal(attention(options), attention(options + ", fused = false"));
    }
}

TEST_CASE("a row of documents has the attention of its documents run one by one") {
    const Program program = attention(", rope = 100.0, documents = d, positions = p");
    const auto values = evaluated(program);
    const test::Array& o = values[static_cast<size_t>(only(program, "attention").outputs[0])];
    // Other tokens of the row change nothing: those of document 4 alone, in the second row.
    const auto alone = test::evaluate(program, [&](const Value& value, ValueId id) {
        test::Array array(test::widened(value.type));
        const bool ids = value.name == "d" || value.name == "p";
        if (!ids) array = test::fill_small(value, std::accumulate(value.name.begin(), value.name.end(), ValueId{0}));
        for (int64_t t = 0; t < rows * seq; ++t) {
            const bool inside = t >= seq && documents[t] == 4;
            if (value.name == "d") array.i32()[t] = inside ? 4 : -1;
            if (value.name == "p") array.i32()[t] = inside ? positions[t] : 0;
            if (value.name == "x" && !inside) std::fill_n(array.f64() + t * 24, 24, 5.0);
        }
        (void)id;
        return array;
    });
    const test::Array& other = alone[static_cast<size_t>(only(program, "attention").outputs[0])];
    for (int64_t t = 0; t < rows * seq; ++t)
        for (int64_t e = 0; e < heads * size; ++e) {
            const double all = o.f64()[t * heads * size + e], one = other.f64()[t * heads * size + e];
            if (t >= seq && documents[t] == 4)
                CHECK(one == all);
            else
                CHECK(one == 0);
            if (documents[t] < 0) CHECK(all == 0);
        }
}

TEST_CASE("sinks are one more logit of the softmax, which has no value") {
    const Program program = attention(", window = 3, documents = d, positions = p, sinks = true");
    const auto values = evaluated(program);
    const Op& op = only(program, "attention");
    const auto array = [&](ValueId id) -> const test::Array& { return values[static_cast<size_t>(id)]; };
    const test::Array &q = array(op.inputs[0]), &k = array(op.inputs[1]), &v = array(op.inputs[2]);
    const test::Array& sinks = array(*program.find("sinks"));
    const auto gated = std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& other) {
        return other.kind == "mul" && other.inputs[0] == op.outputs[0];
    });
    REQUIRE(gated != program.ops.end());
    const test::Array& o = array(gated->outputs[0]);
    for (int64_t b = 0; b < rows; ++b)
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t i = 0; i < seq; ++i) {
                double sum = std::exp(sinks.f64()[h]), expected[size] = {};
                for (int64_t j = 0; j < seq; ++j) {
                    const int32_t back = positions[b * seq + i] - positions[b * seq + j];
                    if (documents[b * seq + i] < 0 || documents[b * seq + i] != documents[b * seq + j] || back < 0 ||
                        back >= 3)
                        continue;
                    double score = 0;
                    for (int64_t e = 0; e < size; ++e)
                        score += q.f64()[((b * seq + i) * heads + h) * size + e] *
                                 k.f64()[((b * seq + j) * 2 + h / 2) * size + e];
                    const double p = std::exp(score / std::sqrt(static_cast<double>(size)));
                    sum += p;
                    for (int64_t e = 0; e < size; ++e)
                        expected[e] += p * v.f64()[((b * seq + j) * 2 + h / 2) * size + e];
                }
                for (int64_t e = 0; e < size; ++e)
                    CHECK(o.f64()[((b * seq + i) * heads + h) * size + e] == Approx(expected[e] / sum).margin(1e-13));
            }
}

TEST_CASE("sinks, yarn and a window give the attention of gpt-oss, by transformers in float64") {
    const SafetensorsFile file(in_source("tests/transformers/sinks.safetensors"));
    const auto stored = [&](const std::string& name) {
        const std::vector<std::byte> bytes = file.bytes_of(name);
        std::vector<double> values(bytes.size() / sizeof(double));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    };
    FakeHost host("[train]\nsteps = 100\n");
    run_script_text(
        "local o = require 'orrery'\n"
        "local x = o.array('f32', { {'batch', 2}, {'seq', 9}, {'embed', 12} })\n"
        "local rope = { theta = 50.0, factor = 4.0, beta_fast = 8.0, beta_slow = 1.0, original_positions = 16,\n"
        "  magnitude = 0.1 * math.log(4) + 1 }\n"
        "local p = o.trace('t', { x = x }, function(b)\n"
        "  return o.nn.attention(b.x, { heads = 4, kv_heads = 2, head_dim = 6, window = 4, sinks = true, rope = rope "
        "})\n"
        "    :named('y'):sumsq()\nend)\n"
        "p:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\np:compile()\n",
        "a.lua", in_source("tests/lua"), host);
    const Program program = host.experiment->train();
    const auto values = test::evaluate(program, [&](const Value& value, ValueId id) {
        if (!file.has(value.name)) return test::fill_small(value, id);
        test::Array array(test::widened(value.type));
        const std::vector<double> given = stored(value.name);
        REQUIRE(static_cast<int64_t>(given.size()) == value.type.count());
        std::copy(given.begin(), given.end(), array.f64());
        return array;
    });
    int compared = 0;
    const auto compare = [&](const std::string& name, ValueId id) {
        INFO(name);
        const std::vector<double> expected = stored(name);
        double largest = 0;
        for (const double e : expected) largest = std::max(largest, std::abs(e));
        // transformers computes angles in float32.
        for (size_t i = 0; i < expected.size(); ++i)
            CHECK(std::abs(values[static_cast<size_t>(id)].f64()[i] - expected[i]) <= 1e-6 * largest);
        ++compared;
    };
    compare("y", *program.find("y"));
    for (const ValueId param : program.params()) compare("grad." + program.value(param).name, program.grad_of(param));
    CHECK(compared == 10);
}
