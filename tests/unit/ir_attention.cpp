// The op attention: its masks against the textbook's, its flops, and what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/passes/differentiate.h"
#include "interpreter.h"
#include "ir/build.h"
#include "ir/check_program.h"
#include "ir/flops.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir_programs.h"

using namespace orrery;

namespace {

constexpr int64_t batch = 2, time_steps = 9, groups = 2, share = 3, dim = 4;

struct Mask {
    bool causal;
    int64_t window;
    bool documents = false;
};

/// Rows of three documents, one of a single token, and padding at the end; in the second row in another order.
constexpr int64_t document[batch][time_steps] = {{0, 0, 0, 1, 2, 2, 2, 2, -1}, {5, 2, 5, 2, 5, 7, 7, 2, -1}};
constexpr int64_t position[batch][time_steps] = {{0, 1, 2, 0, 0, 1, 2, 3, 0}, {0, 0, 1, 1, 2, 1, 0, 2, 0}};

/// sum(weight * attention(q, k, v)) with its gradients, the attention made by `attend`.
struct Model {
    Program program;
    Builder b{program};
    ValueId q = param("q", groups*share), k = param("k", groups), v = param("v", groups);

    ValueId param(const char* name, int64_t heads) {
        return b.param(name, {DType::f32, {batch, time_steps, heads, dim}}, {}, {}, {});
    }
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return b.one(kind, std::move(inputs), std::move(attributes), {});
    }
    ValueId reshape(ValueId x, Shape shape) { return one("reshape", {x}, {{"shape", std::move(shape)}}); }
    ValueId transpose(ValueId x, Shape perm) { return one("transpose", {x}, {{"perm", std::move(perm)}}); }
    ValueId number(double value) { return one("full", {}, {{"shape", Shape{}}, {"value", value}}); }

    /// Gradients of q, k, v, then o.
    std::vector<test::Array> run(const std::function<ValueId(Model&)>& attend) {
        const ValueId o = attend(*this);
        const ValueId weight = b.input("weight", program.value(o).type, {}, {});
        const ValueId loss = one("sum", {one("mul", {o, weight})});
        differentiate(program, loss);
        check_program(program);
        const auto values = test::evaluate(program, [](const Value& value, ValueId id) {
            if (value.name == "weight") return test::fill_small(value, 99);  // the same behind either
            const bool documents = value.name.starts_with("documents");
            if (!documents && value.name != "rows" && value.name != "columns" && value.name != "positions")
                return test::fill_small(value, id);
            test::Array array(test::widened(value.type));
            const int64_t n = array.type.count();
            for (int64_t i = 0; i < n; ++i) {
                const int64_t b = i / time_steps, t = i % time_steps;
                const int64_t number = n == time_steps ? i : documents ? document[b][t] : position[b][t];
                if (is_float(array.type.dtype))
                    array.f64()[i] = static_cast<double>(number);
                else
                    array.i32()[i] = static_cast<int32_t>(number);
            }
            return array;
        });
        std::vector<test::Array> found;
        for (ValueId param : {q, k, v}) found.push_back(values[static_cast<size_t>(program.grad_of(param))]);
        found.push_back(values[static_cast<size_t>(o)]);
        return found;
    }
};

ValueId by_op(Model& m, const Mask& mask) {
    std::vector<ValueId> inputs{m.q, m.k, m.v};
    if (mask.documents) {
        for (const char* name : {"documents", "positions"})
            inputs.push_back(m.b.input(name, {DType::i32, {batch, time_steps}}, {}, {}));
        inputs.insert(inputs.end(), {inputs[3], inputs[4]});  // of the keys
    }
    return m.one("attention", inputs, {{"causal", mask.causal}, {"window", mask.window}});
}

/// Merged attentions over each block of keys, rolled to the queries.
ValueId by_blocks(Model& m, const Mask& mask, int64_t blocks) {
    const ValueId whole = by_op(m, mask);
    std::vector<ValueId> inputs = m.program.op(m.program.value(whole).op).inputs, sum;
    const int64_t block = time_steps / blocks;
    for (int64_t step = 0; step < blocks; ++step) {
        Attributes one{{"causal", mask.causal}, {"window", mask.window}, {"blocks", blocks}};
        if (!mask.documents) one.set("rolled", step * block);
        const std::vector<ValueId> part = m.b.add("attention", inputs, one, {});
        sum = step == 0 ? part : m.b.add("merge", {sum[0], sum[1], part[0], part[1]}, {}, {});
        for (const size_t i : {1, 2, 5, 6})
            if (i < inputs.size()) inputs[i] = m.one("roll", {inputs[i]}, {{"dim", int64_t{1}}, {"by", block}});
    }
    return sum[0];
}

/// softmax(scale q k^T, -1e30 where the mask is) v, heads of a group as rows below each other.
ValueId by_textbook(Model& m, const Mask& mask) {
    const auto rows = [&](ValueId x, int64_t heads) {  // [B,T,G heads,D] -> [B,G,heads T,D]
        x = m.transpose(m.reshape(x, {batch, time_steps, groups, heads, dim}), {0, 2, 3, 1, 4});
        return m.reshape(x, {batch, groups, heads * time_steps, dim});
    };
    ValueId score = m.one("matmul", {rows(m.q, share), rows(m.k, 1)}, {{"trans_b", true}});
    score = m.one("scale", {m.reshape(score, {batch, groups, share, time_steps, time_steps})},
                  {{"by", 1 / std::sqrt(static_cast<double>(dim))}});
    std::vector<ValueId> masks;
    ValueId row, column;
    if (mask.documents) {
        const auto sides = [&](const char* name) {
            const ValueId x = m.b.input(name, {DType::f32, {batch, time_steps}}, {}, {});
            return std::pair(m.reshape(x, {batch, 1, 1, time_steps, 1}), m.reshape(x, {batch, 1, 1, 1, time_steps}));
        };
        const auto [own, other] = sides("documents");
        masks = {m.one("equal", {own, other}), m.one("greater_equal", {own, m.number(0)})};
        std::tie(row, column) = sides("positions");
    } else {
        row = m.b.input("rows", {DType::f32, {time_steps, 1}}, {}, {});
        column = m.b.input("columns", {DType::f32, {1, time_steps}}, {}, {});
    }
    if (mask.causal) masks.push_back(m.one("less_equal", {column, row}));
    if (mask.window > 0) {
        const ValueId back = m.one("sub", {row, column}), window = m.number(static_cast<double>(mask.window));
        masks.push_back(m.one("less", {back, window}));
    }
    for (const ValueId seen : masks) score = m.one("select", {seen, score, m.number(-1e30)});
    ValueId p = m.one("softmax", {score});
    for (const ValueId seen : masks) p = m.one("select", {seen, p, m.number(0)});
    p = m.reshape(p, {batch, groups, share * time_steps, time_steps});
    const ValueId o = m.reshape(m.one("matmul", {p, rows(m.v, 1)}), {batch, groups, share, time_steps, dim});
    return m.reshape(m.transpose(o, {0, 3, 1, 2, 4}), {batch, time_steps, groups * share, dim});
}

std::string refused(const Attributes& attributes) {
    Program program;
    Builder b(program);
    const ValueId x = b.input("x", {DType::f32, {2, 5, 4, 6}}, {}, {"", "m.lua", 3, 0});
    try {
        b.add("attention", {x, x, x}, attributes, {"", "m.lua", 4, 0});
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

/// Of one attention over `time` positions, forward and backward.
std::pair<int64_t, int64_t> counted(int64_t time, Attributes attributes) {
    Program program;
    Builder b(program);
    const ValueId q = b.param("q", {DType::f32, {2, time, 6, 8}}, {}, {}, {});
    const ValueId k = b.param("k", {DType::f32, {2, time, 3, 8}}, {}, {}, {});
    const ValueId o = b.add("attention", {q, k, k}, std::move(attributes), {})[0];
    differentiate(program, b.one("sumsq", {o}, {}, {}));
    std::pair<int64_t, int64_t> found;
    for (const Op& op : program.ops) {
        if (op.kind == "attention") found.first = flops(program, op);
        if (op.kind == "attention_grad") found.second = flops(program, op);
    }
    CHECK(model_flops(program) == 3.0 * static_cast<double>(found.first));
    return found;
}

}  // namespace

TEST_CASE("attention equals softmax over masked scores, its gradients too") {
    for (const Mask mask :
         {Mask{false, 0}, Mask{true, 0}, Mask{true, 1}, Mask{true, 4}, Mask{true, time_steps - 1},
          Mask{true, time_steps}, Mask{true, 1000}, Mask{false, 0, true}, Mask{true, 0, true}, Mask{true, 2, true}}) {
        Model op, textbook;
        const auto got = op.run([&](Model& m) { return by_op(m, mask); });
        const auto expected = textbook.run([&](Model& m) { return by_textbook(m, mask); });
        for (size_t i = 0; i < got.size(); ++i) {
            INFO("causal " << mask.causal << ", window " << mask.window << ", documents " << mask.documents
                           << ", gradients of q, k, v, and o: " << i);
            REQUIRE(got[i].type.shape == expected[i].type.shape);
            double worst = 0, largest = 0;
            for (int64_t e = 0; e < got[i].type.count(); ++e) {
                worst = std::max(worst, std::abs(got[i].f64()[e] - expected[i].f64()[e]));
                largest = std::max(largest, std::abs(expected[i].f64()[e]));
            }
            // A window of one key has no choice: q and k change nothing.
            if (mask.window != 1 || i >= 2) CHECK(largest > 0.1);
            CHECK(worst <= 1e-13 * (1 + largest));
        }
    }
}

TEST_CASE("a window is stored where there is one, printed and parsed") {
    Model none, some;
    by_op(none, {true, 0});
    const ValueId o = by_op(some, {true, 4});
    CHECK(print(none.program).find("window") == std::string::npos);
    CHECK(some.program.op(some.program.value(o).op).attributes.integer("window") == 4);
    CHECK(print(some.program).find("window=4") != std::string::npos);
    CHECK(test::difference(some.program, parse(print(some.program))) == "");
}

TEST_CASE("a window that makes no sense is refused with a remedy") {
    CHECK(refused({{"causal", true}, {"window", int64_t{3}}}).empty());
    CHECK(refused({{"window", int64_t{0}}}).empty());
    CHECK(refused({{"window", int64_t{3}}}) ==
          "m.lua:4: attention: window = 3 needs causal attention: a window has the last keys up to the query's own; "
          "add causal = true, or leave the window out");
    CHECK(refused({{"causal", true}, {"window", int64_t{-1}}}) ==
          "m.lua:4: attention: window = -1 is negative; give 1 or more, the query's own among them, or 0 for "
          "all keys up to it");
    CHECK(refused({{"causal", true}, {"window", 2.5}}).find("expected an integer") != std::string::npos);
}

TEST_CASE("an index that fits no queries or keys is refused, and one of half its operands") {
    const auto said = [](const Shape& keys, size_t operands, const Shape& documents) {
        Program program;
        Builder b(program);
        const ValueId q = b.input("q", {DType::f32, {2, 5, 4, 6}}, {}, {"", "m.lua", 1, 0});
        const ValueId k = b.input("k", {DType::f32, keys}, {}, {"", "m.lua", 2, 0});
        const ValueId d = b.input("d", {DType::i32, documents}, {}, {"", "m.lua", 3, 0});
        const ValueId p = b.input("p", {DType::i32, {2, keys[1]}}, {}, {"", "m.lua", 3, 0});
        std::vector<ValueId> inputs{q, k, k, d, d, p, p};
        inputs.resize(operands);
        try {
            b.add("attention", inputs, {{"causal", true}}, {"", "m.lua", 4, 0});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(said({2, 5, 4, 6}, 7, {2, 5}).empty());
    CHECK(said({2, 8, 2, 6}, 7, {2, 5}).empty());
    const auto refuses = [&](const Shape& keys, size_t operands, const Shape& documents, const char* why) {
        const std::string text = said(keys, operands, documents);
        INFO(text);
        CHECK(text.find(why) != std::string::npos);
    };
    refuses({2, 5, 4, 6}, 5, {2, 5}, "m.lua:4: attention: got 5 operands, expected (q, k, v, documents?, positions??,");
    refuses({2, 5, 4, 6}, 7, {2, 8}, "dims of queries");
    refuses({2, 5, 4, 6}, 7, {2, 5, 1}, "d i32[2,5,1] (m.lua:3)");
    refuses({2, 8, 4, 6}, 3, {2, 5}, "or give the documents and positions of queries and of keys");
}

TEST_CASE("attention's flops are those of the scores that are made") {
    constexpr int64_t full = 4 * 2 * 6 * 8;  // of one score: products forward, batch, heads, head dim
    using Two = std::pair<int64_t, int64_t>;
    CHECK(counted(64, {}) == Two{full * 64 * 64, full * 64 * 64 / 2 * 5});
    CHECK(counted(64, {{"causal", true}}) == Two{full * 64 * 32, full * 64 * 32 / 2 * 5});
    // Twice the positions, twice the work, but for the first window.
    const auto windowed = [&](int64_t time) { return counted(time, {{"causal", true}, {"window", int64_t{16}}}); };
    CHECK(windowed(64) == Two{full * (64 * 16 - 16 * 8), full * (64 * 16 - 16 * 8) / 2 * 5});
    CHECK(windowed(1024).first - windowed(512).first == full * 512 * 16);
    for (const int64_t window : {64, 65, 100000})
        CHECK(counted(64, {{"causal", true}, {"window", window}}) == counted(64, {{"causal", true}}));
}

TEST_CASE("the blocks of a ring have the flops of one attention") {
    for (const Attributes& attributes :
         {Attributes{}, Attributes{{"causal", true}}, Attributes{{"causal", true}, {"window", int64_t{5}}},
          Attributes{{"causal", true}, {"window", int64_t{16}}}, Attributes{{"causal", true}, {"window", int64_t{41}}}})
        for (const int64_t blocks : {2, 4, 16}) {
            std::pair<int64_t, int64_t> sum;
            for (int64_t step = 0; step < blocks; ++step) {
                Attributes one = attributes;
                one.set("blocks", blocks);
                one.set("rolled", step * 64 / blocks);
                const auto [forward, backward] = counted(64, one);
                sum.first += forward, sum.second += backward;
            }
            CHECK(sum == counted(64, attributes));
        }
}

TEST_CASE("blocks that divide nothing, and keys rolled by no block, are refused with a remedy") {
    const auto refuses = [](const Attributes& attributes, const char* why) {
        INFO(refused(attributes));
        CHECK(refused(attributes).find(why) != std::string::npos);
    };
    const auto given = [](int64_t blocks, int64_t rolled) {
        return Attributes{{"causal", true}, {"blocks", blocks}, {"rolled", rolled}};
    };
    CHECK(refused(given(5, -3)).empty());
    CHECK(refused(given(1, 0)).empty());
    refuses(given(2, 0),
            "m.lua:4: attention: blocks = 2 does not divide 5 queries and 5 keys: x f32[2,5,4,6] (m.lua:3)");
    refuses(given(-1, 0), "blocks = -1 does not divide");
    refuses(given(0, 1),
            "of 2 or more: there are 1 blocks of 5 keys; give blocks, and as rolled a multiple of the keys");
    Program program;
    Builder b(program);
    const ValueId x = b.input("x", {DType::f32, {2, 6, 4, 6}}, {}, {}), d = b.input("d", {DType::i32, {2, 6}}, {}, {});
    CHECK_THROWS_WITH(b.add("attention", {x, x, x, d, d, d, d}, given(3, 2), {}),
                      Catch::Contains("both rolled = 2 and an index give the places of keys"));
    CHECK_THROWS_WITH(b.add("attention", {x, x, x}, given(3, 1), {}),
                      Catch::Contains("rolled = 1 must move whole blocks, of 2 or more: there are 3 blocks of 2 keys"));
    const auto stored = [&](const Attributes& attributes) {
        return program.op(program.value(b.add("attention", {x, x, x}, attributes, {})[0]).op).attributes;
    };
    CHECK(stored(given(3, -2)).integer("rolled") == 4);
    CHECK_FALSE(stored(given(3, 6)).has("rolled"));
    CHECK_FALSE(stored(given(1, 0)).has("blocks"));
    CHECK_FALSE(stored({{"blocks", int64_t{3}}, {"rolled", int64_t{2}}}).has("rolled"));  // without a mask
}

TEST_CASE("attentions over the blocks of a ring merge to attention, their gradients too") {
    for (const int64_t blocks : {3, 9})
        for (const Mask mask : {Mask{false, 0}, Mask{true, 0}, Mask{true, 1}, Mask{true, 4}, Mask{false, 0, true},
                                Mask{true, 0, true}, Mask{true, 2, true}}) {
            INFO(blocks << " blocks, causal " << mask.causal << ", window " << mask.window);
            Model whole, ring;
            const auto expected = whole.run([&](Model& m) { return by_op(m, mask); });
            const auto got = ring.run([&](Model& m) { return by_blocks(m, mask, blocks); });
            for (size_t i = 0; i < got.size(); ++i) {
                REQUIRE(got[i].type.shape == expected[i].type.shape);
                for (int64_t e = 0; e < got[i].type.count(); ++e)
                    if (!(std::abs(got[i].f64()[e] - expected[i].f64()[e]) < 1e-13)) FAIL("array " << i << " at " << e);
            }
        }
}

namespace {

/// What rope says of attributes; with `printed`, the program it made instead.
std::string rope_of(const Attributes& attributes, bool printed = false) {
    Program program;
    Builder b(program);
    try {
        const ValueId x = b.input("x", {DType::f32, {1, 4, 2, 8}}, {}, {"", "m.lua", 3, 0});
        b.one("rope", {x}, attributes, Origin{"", "m.lua", 4, 0});
    } catch (const Error& error) {
        return error.what();
    }
    return printed ? print(program) : "";
}

Attributes llama3(double low, double high, int64_t positions) {
    return {{"factor", 8.0}, {"low_freq_factor", low}, {"high_freq_factor", high}, {"original_positions", positions}};
}

}  // namespace

TEST_CASE("a scaling of rotary positions is stored where it scales, printed and parsed") {
    CHECK(rope_of({{"factor", 1.0}}, true).find("factor") == std::string::npos);
    CHECK(rope_of({}, true) == rope_of({{"factor", 1.0}}, true));
    CHECK(rope_of({{"factor", 2.5}}, true).find("factor=2.5") != std::string::npos);
    const std::string text = rope_of(llama3(1, 4, 8192), true);
    CHECK(text.find("factor=8.0, high_freq_factor=4.0, ") != std::string::npos);
    CHECK(text.find("original_positions=8192") != std::string::npos);
    CHECK(print(parse(text)) == text);
}

TEST_CASE("a scaling of rotary positions that makes no sense is refused with a remedy") {
    CHECK(rope_of(llama3(1, 4, 8192)) == "");
    const auto refuses = [](const Attributes& attributes, const char* why) {
        INFO(rope_of(attributes));
        CHECK(rope_of(attributes).find(why) != std::string::npos);
    };
    refuses({{"factor", 0.0}}, "m.lua:4: rope: factor = 0 is not a valid scaling of positions; give a number above 0");
    refuses({{"factor", -2.0}}, "factor = -2 is not a valid scaling");
    refuses({{"factor", INFINITY}}, "factor = inf is not a valid scaling");
    refuses({{"factor", 8.0}, {"low_freq_factor", 1.0}}, "give all four, or factor alone");
    refuses({{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_positions", int64_t{64}}},
            "scaling by wavelength needs factor,");
    const auto yarn = [](double fast, double slow, int64_t positions) {
        return Attributes{{"factor", 8.0}, {"beta_fast", fast}, {"beta_slow", slow}, {"original_positions", positions}};
    };
    CHECK(rope_of(yarn(32, 1, 64)) == "");
    refuses(yarn(1, 1, 64), "beta_slow = 1 and beta_fast = 1 are not a range of wavelengths");
    refuses(yarn(32, 1, 0), "original_positions = 0 is too small");
    refuses({{"factor", 8.0}, {"beta_fast", 32.0}}, "scaling by yarn needs factor, beta_fast, beta_slow and");
    refuses({{"factor", 8.0}, {"truncate", true}}, "scaling by yarn needs factor,");
    refuses({{"magnitude", 0.0}}, "magnitude = 0 is not a factor of the output");
    refuses(llama3(4, 4, 64), "low_freq_factor = 4 and high_freq_factor = 4 are not a range of wavelengths");
    refuses(llama3(-1, 4, 64), "low_freq_factor = -1");
    refuses(llama3(1, 4, 0), "original_positions = 0 is too small");
}
