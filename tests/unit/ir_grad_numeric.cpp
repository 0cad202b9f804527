// Gradients of a few ops together against central differences; each op alone: tests/ops.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "ops/gradient_case.h"

using namespace orrery;
using test::GradientCase;

namespace {

/// A value that is read twice, by one op or two.
void twice(GradientCase& c) {
    const ValueId x = c.param({3, 5}), y = c.param({7});
    c.weigh(c.one("add", {x, c.one("mul", {x, x})}));
    c.total(c.one("mul", {y, y}));
}

void low_precision(GradientCase& c) {
    const ValueId low = c.one("cast", {c.param({3, 7})}, {{"dtype", std::string("bf16")}});
    c.weigh(c.one("cast", {c.one("square", {low})}, {{"dtype", std::string("f32")}}));
}

void sums_of_sums(GradientCase& c) {
    c.plus(c.one("sum", {c.one("square", {c.param({3, 5})})}));
    c.plus(c.one("sqrt", {c.one("sumsq", {c.param({3, 5})})}));
}

ValueId piece(GradientCase& c, ValueId x, int64_t start, int64_t size) {
    return c.one("slice", {x}, {{"dim", int64_t{1}}, {"start", start}, {"size", size}});
}

/// Slices that tile a value: one concat.
void tiles(GradientCase& c) {
    const ValueId x = c.param({3, 7});
    c.weigh(c.one("mul", {piece(c, x, 0, 3), piece(c, x, 4, 3)}));
    c.weigh(piece(c, x, 3, 1));
}

/// Slices that overlap, and a use of the whole.
void overlapping(GradientCase& c) {
    const ValueId x = c.param({3, 7});
    c.weigh(piece(c, x, 0, 5));
    c.total(piece(c, x, 3, 4));
    c.weigh(x);
}

std::vector<ValueId> entropy(GradientCase& c, Shape logits) {
    const Draw targets{-1, static_cast<double>(logits.back() - 1)};  // -1: rows that are ignored
    const Shape rows(logits.begin(), logits.end() - 1);
    return c.add("cross_entropy", {c.param(logits), c.data({DType::i32, rows}, targets)});
}

void scaled_loss(GradientCase& c) { c.plus(c.one("scale", {entropy(c, {5, 3})[0]}, {{"by", 0.3}})); }

/// The mean: the count is a constant.
void mean_loss(GradientCase& c) {
    const auto loss = entropy(c, {9, 4});
    c.plus(c.one("div", {loss[0], loss[1]}));
}

/// The script asks for the gradients of x and of the head; that of the bias is wanted too.
void asked_for_two(GradientCase& c) {
    const ValueId targets = c.data({DType::i32, {5}}, Draw{-1, 8});
    c.plus(c.add("linear_cross_entropy", {c.param({5, 3}), c.param({3, 9}), targets, c.param({9})},
                 {{"grad", true}, {"tile", int64_t{2}}})[0]);
}

/// Experts of x [3, embed], each times a gate that is one number a row.
void mixture(GradientCase& c) {
    const ValueId x = c.named("x", {3, 5}, {"batch", "embed"});
    ValueId y = none;
    for (const std::string e : {"a", "b"}) {
        const ValueId expert = c.one("matmul", {x, c.named("expert " + e, {5, 7}, {"embed", "mlp"})});
        const ValueId gate = c.one("sigmoid", {c.one("matmul", {x, c.named("gate " + e, {5, 1}, {"embed", "gate"})})});
        const ValueId part = c.one("mul", {expert, gate});
        y = y == none ? part : c.one("add", {y, part});
    }
    c.weigh(y);
}

/// The gates of the chosen weigh rows that are picked and put back by index; some come from nowhere.
void routed(GradientCase& c) {
    const auto along = [](int64_t dim) { return Attributes{{"dim", dim}}; };
    const ValueId gates = c.one("softmax", {c.param({6, 4})});
    const auto chosen = c.add("top_k", {gates}, {{"k", int64_t{2}}});
    const ValueId rows = c.data({DType::i32, {8, 1}}, Draw{-1, 6});
    const ValueId x = c.one("tanh", {c.one("gather", {c.param({6, 3}), rows}, along(0))});
    const ValueId y = c.one("scatter_add", {x, rows}, {{"dim", int64_t{0}}, {"size", int64_t{6}}});
    const ValueId before = c.one("cumsum", {chosen[0]}, along(1));
    c.weigh(c.one("mul", {y, c.one("sum", {before}, {{"dims", Shape{1}}, {"keep", true}})}));
}

/// h = tanh(x w + h u), four times: the state goes in under another name than it comes out.
void recurrent(GradientCase& c) {
    const ValueId w = c.named("w", {5, 7}, {"embed", "hidden"}), u = c.named("u", {7, 7}, {"state", "hidden"});
    ValueId h = none;
    for (const std::string t : {"1", "2", "3", "4"}) {
        ValueId z = c.one("matmul", {c.named("x" + t, {3, 5}, {"batch", "embed"}), w});
        if (h != none) {
            const ValueId state = c.builder().one("reshape", {h}, {{"shape", Shape{3, 7}}}, {}, {{"batch", "state"}});
            z = c.one("add", {z, c.one("matmul", {state, u})});
        }
        h = c.one("tanh", {z});
    }
    c.weigh(h);
}

/// The gradient of a sum is that of both terms, which call their dims by other names than the params behind them.
void renamed(GradientCase& c) {
    const ValueId a = c.named("a", {3, 5}, {"row", "column"}), b = c.named("b", {3, 5}, {"batch", "embed"});
    const auto as = [&](ValueId x) {
        return c.builder().one("reshape", {x}, {{"shape", Shape{3, 5}}}, {}, {{"batch", "embed"}});
    };
    const ValueId sum = c.one("add", {as(a), c.one("tanh", {b})});
    c.weigh(c.one("tanh", {sum}));
    c.weigh(c.one("mul", {a, a}));
}

}  // namespace

TEST_CASE("gradients of ops together equal central differences") {
    for (const auto& body :
         {twice, low_precision, sums_of_sums, tiles, overlapping, scaled_loss, mean_loss, asked_for_two, routed})
        for (const bool inside : {false, true}) {
            GradientCase c(inside);
            body(c);
            CHECK(c.check() > 0);
        }
}

TEST_CASE("gradients of a dense mixture and of a recurrent network equal central differences") {
    for (const auto& body : {mixture, recurrent, renamed}) {
        GradientCase c(false);
        body(c);
        CHECK(c.check() > 0);
    }
}
