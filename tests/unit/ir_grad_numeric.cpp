// Every gradient against five-point central differences, in f64 over the reference kernels.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "compile/differentiate.h"
#include "interpreter.h"
#include "ir/check_program.h"
#include "ir/describe.h"
#include "ir_programs.h"

using namespace orrery;

namespace {

// Builds a program around one op. Params are what is perturbed; `weigh` adds sum(y * random) to the loss.
class Case {
public:
    /// `inside`: the op reads what another op made of the params.
    explicit Case(bool inside) : b_(program_), inside_(inside) {}

    Builder& builder() { return b_; }
    ValueId named(std::string_view name, Shape shape, Builder::DimNames dims) {
        return b_.param(name, {DType::f32, std::move(shape)}, std::move(dims), {}, {});
    }
    ValueId param(Shape shape, bool positive = false) {
        const std::string name = fmt::format("{}{}", positive ? "positive" : "p", next_++);
        const auto dims = names(shape);
        const ValueId p = b_.param(name, {DType::f32, std::move(shape)}, dims, {}, {});
        return inside_ ? one("scale", {p}, {{"by", 1.0}}) : p;
    }
    ValueId data(Shape shape, DType dtype = DType::f32, int top = 0) {
        const ValueId id = b_.input(fmt::format("in{}", next_++), {dtype, std::move(shape)}, {}, {});
        tops_[id] = top;
        return id;
    }
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return b_.add(kind, std::move(inputs), std::move(attributes), {});
    }
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return add(kind, std::move(inputs), std::move(attributes))[0];
    }
    void weigh(ValueId y) {
        const ValueId r = data(program_.value(y).type.shape);
        program_.value(r).dims = program_.value(y).dims;
        plus(one("sum", {one("mul", {y, r})}));
    }
    /// The plain sum: its gradient stays a constant until an op needs it.
    void total(ValueId y) { plus(one("sum", {y})); }
    void plus(ValueId scalar) { loss_ = loss_ == none ? scalar : one("add", {loss_, scalar}); }

    void check() {
        Program full = program_;
        const std::vector<ValueId> gradients = differentiate(full, loss_);
        check_program(full);
        for (size_t i = 0; i < gradients.size(); ++i) {
            if (gradients[i] == none || full.values[i].role == Role::param) continue;
            INFO(describe(full, static_cast<ValueId>(i)) << " and its gradient " << describe(full, gradients[i]));
            CHECK(full.values[i].type.shape == full.value(gradients[i]).type.shape);
            CHECK(full.values[i].dims == full.value(gradients[i]).dims);
        }
        std::map<ValueId, test::Array> contents;
        for (size_t i = 0; i < program_.values.size(); ++i) {
            if (program_.values[i].role != Role::temporary)
                contents[static_cast<ValueId>(i)] = fill(static_cast<ValueId>(i));
        }
        const auto values = test::evaluate(full, [&](const Value&, ValueId id) { return contents.at(id); });
        for (ValueId param : program_.params()) {
            INFO(print_line(full, param));
            const ValueId grad = full.grad_of(param);
            REQUIRE(grad != none);
            const test::Array& analytic = values[static_cast<size_t>(grad)];
            REQUIRE(analytic.type.shape == program_.value(param).type.shape);
            CHECK(full.value(grad).dims == program_.value(param).dims);
            double largest = 0, worst = 0;
            for (int64_t i = 0; i < analytic.type.count(); ++i) {
                const double expected = slope(contents, param, i);
                largest = std::max(largest, std::abs(expected));
                const double error = std::abs(expected - analytic.f64()[i]);
                worst = std::isfinite(error) ? std::max(worst, error) : HUGE_VAL;
            }
            CHECK(worst <= 1e-6 * largest + 1e-10);
        }
    }

private:
    /// A name for each size; one of size 1, which goes with all, has a name of its own that its gradient must have,
    /// too.
    static std::vector<std::string> names(const Shape& shape) {
        std::vector<std::string> dims;
        for (const int64_t size : shape)
            dims.push_back(size == 1 ? fmt::format("one{}", dims.size()) : fmt::format("n{}", size));
        return dims;
    }

    static std::string print_line(const Program& program, ValueId param) {
        return "gradient of " + describe(program, param);
    }

    test::Array fill(ValueId id) const {
        const Value& value = program_.value(id);
        test::Array array(test::widened(value.type));
        std::mt19937 random(static_cast<uint32_t>(7 + id));
        std::uniform_real_distribution<double> draw(0.1, 1.3);
        for (int64_t i = 0; i < array.type.count(); ++i) {
            if (array.type.dtype == DType::f64) {
                const double x = draw(random);
                array.f64()[i] = value.name.starts_with("positive") || random() % 2 ? x : -x;
            } else if (size_of(array.type.dtype) == 4) {
                const int top = tops_.at(id);
                array.i32()[i] =
                    static_cast<int32_t>(random() % static_cast<uint32_t>(top)) - (top_is_ignored_ ? 1 : 0);
            } else {
                array.data[static_cast<size_t>(i)] = static_cast<char>(random() % 2);
            }
        }
        return array;
    }

    double loss(const std::map<ValueId, test::Array>& contents) const {
        const auto values = test::evaluate(program_, [&](const Value&, ValueId id) { return contents.at(id); });
        return values[static_cast<size_t>(loss_)].f64()[0];
    }

    double slope(std::map<ValueId, test::Array>& contents, ValueId param, int64_t i) const {
        constexpr double h = 1e-3;
        double& x = contents.at(param).f64()[i];
        const double middle = x;
        auto at = [&](double offset) {
            x = middle + offset;
            return loss(contents);
        };
        const double result = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        x = middle;
        return result;
    }

public:
    bool top_is_ignored_ = false;  // integers start at -1: rows that cross entropy ignores

private:
    Program program_;
    Builder b_;
    const bool inside_;
    std::map<ValueId, int> tops_;
    ValueId loss_ = none;
    int next_ = 0;
};

using Body = std::function<void(Case&)>;

void binary_cases(std::map<std::string, std::vector<Body>>& cases) {
    for (std::string kind : {"add", "sub", "mul", "div", "maximum", "minimum", "pow"}) {
        const bool positive = kind == "pow";
        auto with = [kind, positive](Shape a, Shape b) {
            return [=](Case& c) { c.weigh(c.one(kind, {c.param(a, positive), c.param(b)})); };
        };
        cases[kind] = {with({3, 5}, {3, 5}),
                       with({3, 5}, {5}),
                       with({5}, {3, 5}),
                       with({3, 1, 5}, {7, 1}),
                       with({}, {3}),
                       [kind, positive](Case& c) { c.total(c.one(kind, {c.param({3, 5}, positive), c.param({5})})); }};
    }
    cases["add"].push_back([](Case& c) {  // used twice
        const ValueId x = c.param({3, 5});
        c.weigh(c.one("add", {x, c.one("mul", {x, x})}));
    });
    cases["mul"].push_back([](Case& c) {
        const ValueId x = c.param({7});
        c.total(c.one("mul", {x, x}));
    });
}

void unary_cases(std::map<std::string, std::vector<Body>>& cases) {
    for (std::string kind :
         {"neg", "exp", "log", "sqrt", "rsqrt", "cos", "sin", "tanh", "sigmoid", "silu", "relu", "square", "abs"}) {
        const bool positive = kind == "log" || kind == "sqrt" || kind == "rsqrt";
        cases[kind] = {[=](Case& c) {
                           c.weigh(c.one(kind, {c.param({3, 7}, positive)}));
                       },
                       [=](Case& c) { c.total(c.one(kind, {c.param({5}, positive)})); }};
    }
    for (std::string approx : {"tanh", "erf"}) {
        cases["gelu"].push_back([=](Case& c) { c.weigh(c.one("gelu", {c.param({3, 7})}, {{"approx", approx}})); });
    }
    cases["scale"] = {[](Case& c) {
                          c.weigh(c.one("scale", {c.param({3, 7})}, {{"by", -0.7}}));
                      },
                      [](Case& c) {
                          c.total(c.one("scale", {c.param({3, 7})}, {{"by", 3.0}}));
                      }};
    cases["cast"] = {[](Case& c) {
        const ValueId low = c.one("cast", {c.param({3, 7})}, {{"dtype", std::string("bf16")}});
        c.weigh(c.one("cast", {c.one("square", {low})}, {{"dtype", std::string("f32")}}));
    }};
    cases["select"] = {[](Case& c) {
        c.weigh(c.one("select", {c.data({3, 5}, DType::u8), c.param({3, 5}), c.param({5})}));
    }};
    cases["swiglu"] = {[](Case& c) { c.weigh(c.one("swiglu", {c.param({3, 7}), c.param({3, 7})})); }};
}

void matmul_cases(std::map<std::string, std::vector<Body>>& cases) {
    for (bool ta : {false, true}) {
        for (bool tb : {false, true}) {
            const Attributes trans{{"trans_a", ta}, {"trans_b", tb}};
            auto pair = [ta, tb](Case& c, Shape lead) {
                Shape a = lead, b = lead;
                a.insert(a.end(), {ta ? 5 : 3, ta ? 3 : 5});
                b.insert(b.end(), {tb ? 7 : 5, tb ? 5 : 7});
                return std::vector{c.param(a), c.param(b)};
            };
            cases["matmul"].push_back([=](Case& c) { c.weigh(c.one("matmul", pair(c, {}), trans)); });
            cases["matmul"].push_back([=](Case& c) { c.weigh(c.one("matmul", pair(c, {2, 3}), trans)); });
            cases["matmul"].push_back([=](Case& c) {
                auto operands = pair(c, {});
                operands.push_back(c.param({7}));
                c.weigh(c.one("matmul", operands, trans));
            });
        }
    }
    for (bool tb : {false, true}) {
        cases["matmul"].push_back([=](Case& c) {
            c.weigh(c.one("matmul", {c.param({2, 3, 5}), c.param(tb ? Shape{7, 5} : Shape{5, 7}), c.param({7})},
                          {{"trans_b", tb}}));
        });
    }
    cases["matmul_bias_gelu"] = {[](Case& c) {
        c.weigh(c.one("matmul_bias_gelu", {c.param({2, 3, 5}), c.param({5, 7}), c.param({7})}));
    }};
}

void reduce_cases(std::map<std::string, std::vector<Body>>& cases) {
    for (bool keep : {false, true}) {
        for (std::vector<int64_t> dims : {std::vector<int64_t>{0, 2}, {1}, {-1}, {0, 1, 2}}) {
            for (std::string kind : {"sum", "max"}) {
                cases[kind].push_back([=](Case& c) {
                    c.weigh(c.one(kind, {c.param({3, 5, 7})}, {{"dims", dims}, {"keep", keep}}));
                });
            }
        }
    }
    cases["sum"].push_back([](Case& c) { c.plus(c.one("sum", {c.one("square", {c.param({3, 5})})})); });
    cases["sumsq"] = {[](Case& c) {
                          c.plus(c.one("sumsq", {c.param({3, 5})}));
                      },
                      [](Case& c) {
                          c.plus(c.one("sqrt", {c.one("sumsq", {c.param({3, 5})})}));
                      }};
}

void norm_cases(std::map<std::string, std::vector<Body>>& cases) {
    for (Shape shape : {Shape{3, 7}, Shape{2, 3, 5}, Shape{7}}) {
        const Shape last{shape.back()};
        cases["softmax"].push_back([=](Case& c) { c.weigh(c.one("softmax", {c.param(shape)})); });
        cases["layernorm"].push_back([=](Case& c) {
            c.weigh(c.one("layernorm", {c.param(shape), c.param(last), c.param(last)}, {{"eps", 1e-3}}));
        });
        cases["rmsnorm"].push_back([=](Case& c) {
            c.weigh(c.one("rmsnorm", {c.param(shape), c.param(last)}, {{"eps", 1e-3}}));
        });
        for (const int read : {1, 2, 3}) {  // of y and the sum of x and a residual: the first, the second, both
            cases["layernorm"].push_back([=](Case& c) {
                const ValueId gain = c.param(last), bias = c.param(last);
                const auto made = c.add("layernorm", {c.param(shape), gain, bias, c.param(shape)}, {{"eps", 1e-3}});
                for (const ValueId y : read & 1 ? std::vector{made[0]} : std::vector{gain, bias}) c.weigh(y);
                if (read & 2) c.weigh(made[3]);
            });
            cases["rmsnorm"].push_back([=](Case& c) {
                const ValueId gain = c.param(last);
                const auto made = c.add("rmsnorm", {c.param(shape), gain, c.param(shape)}, {{"eps", 1e-3}});
                c.weigh(read & 1 ? made[0] : gain);
                if (read & 2) c.weigh(made[2]);
            });
        }
    }
}

void token_cases(std::map<std::string, std::vector<Body>>& cases) {
    cases["embedding"] = {[](Case& c) {
                              c.weigh(c.one("embedding", {c.data({3, 5}, DType::i32, 6), c.param({6, 7})}));
                          },
                          [](Case& c) {
                              c.total(c.one("embedding", {c.data({5}, DType::i32, 3), c.param({4, 3})}));
                          }};
    auto entropy = [](Case& c, Shape logits) {
        Shape rows = logits;
        rows.pop_back();
        c.top_is_ignored_ = true;
        return c.add("cross_entropy", {c.param(logits), c.data(rows, DType::i32, static_cast<int>(logits.back()) + 1)});
    };
    cases["cross_entropy"] = {
        [=](Case& c) {
            c.plus(entropy(c, {3, 5, 7})[0]);
        },
        [=](Case& c) {
            c.plus(c.one("scale", {entropy(c, {5, 3})[0]}, {{"by", 0.3}}));
        },
        [=](Case& c) {
            const auto loss = entropy(c, {9, 4});
            c.plus(c.one("div", {loss[0], loss[1]}));  // the mean: count is a constant
        },
    };
    cases["dropout"] = {[](Case& c) {
        c.weigh(
            c.one("dropout", {c.param({5, 7}), c.data({}, DType::u32, 1000)}, {{"p", 0.4}, {"stream", int64_t{3}}}));
    }};
}

void attention_cases(std::map<std::string, std::vector<Body>>& cases) {
    struct Heads {
        int64_t queries, keys, heads, groups;
        bool causal;
        int64_t window = 0;
    };
    for (Heads h : {Heads{5, 5, 6, 2, true}, Heads{5, 5, 3, 3, true}, Heads{3, 7, 4, 1, false},
                    Heads{5, 5, 6, 2, true, 2}, Heads{5, 5, 2, 1, true, 1}}) {
        cases["attention"].push_back([=](Case& c) {
            const ValueId k = c.param({2, h.keys, h.groups, 3});
            const ValueId v = c.param({2, h.keys, h.groups, 3});
            c.weigh(c.one("attention", {c.param({2, h.queries, h.heads, 3}), k, v},
                          {{"causal", h.causal}, {"window", h.window}}));
        });
    }
    for (bool inverse : {false, true}) {
        cases["rope"].push_back([=](Case& c) {
            c.weigh(c.one("rope", {c.param({2, 5, 3, 6})}, {{"theta", 100.0}, {"inverse", inverse}}));
        });
    }
}

void shape_cases(std::map<std::string, std::vector<Body>>& cases) {
    cases["reshape"] = {[](Case& c) {
                            c.weigh(c.one("reshape", {c.param({3, 10})}, {{"shape", Shape{5, -1}}}));
                        },
                        [](Case& c) {
                            c.total(c.one("reshape", {c.param({3, 10})}, {{"shape", Shape{2, 15}}}));
                        }};
    cases["transpose"] = {[](Case& c) {
                              c.weigh(c.one("transpose", {c.param({2, 3, 5})}, {{"perm", Shape{2, 0, 1}}}));
                          },
                          [](Case& c) {
                              c.total(c.one("transpose", {c.param({3, 5})}, {{"perm", Shape{1, 0}}}));
                          }};
    auto slice = [](Case& c, ValueId x, int64_t start, int64_t size) {
        return c.one("slice", {x}, {{"dim", int64_t{1}}, {"start", start}, {"size", size}});
    };
    cases["slice"] = {
        [=](Case& c) {
            c.weigh(slice(c, c.param({3, 7}), 2, 3));
        },
        [=](Case& c) {  // tiles: one concat
            const ValueId x = c.param({3, 7});
            c.weigh(c.one("mul", {slice(c, x, 0, 3), slice(c, x, 4, 3)}));
            c.weigh(slice(c, x, 3, 1));
        },
        [=](Case& c) {  // overlap, and a use of the whole
            const ValueId x = c.param({3, 7});
            c.weigh(slice(c, x, 0, 5));
            c.total(slice(c, x, 3, 4));
            c.weigh(x);
        },
    };
    cases["concat"] = {[](Case& c) {
        c.weigh(c.one("concat", {c.param({3, 2}), c.param({3, 1}), c.param({3, 4})}, {{"dim", int64_t{-1}}}));
    }};
    cases["pad"] = {[](Case& c) {
        c.weigh(c.one("pad", {c.param({3, 5})}, {{"dim", int64_t{0}}, {"before", int64_t{1}}, {"after", int64_t{2}}}));
    }};
}

std::map<std::string, std::vector<Body>> all_cases() {
    std::map<std::string, std::vector<Body>> cases;
    for (auto add : {binary_cases, unary_cases, matmul_cases, reduce_cases, norm_cases, token_cases, attention_cases,
                     shape_cases}) {
        add(cases);
    }
    return cases;
}

// Ops through which no gradient flows: sources, tests, integers, other ops' gradients, what propagation makes of cross
// entropy, the optimizer, collectives.
const std::set<std::string_view> without_gradient{"full",
                                                  "random",
                                                  "less",
                                                  "less_equal",
                                                  "greater",
                                                  "greater_equal",
                                                  "equal",
                                                  "gelu_grad",
                                                  "silu_grad",
                                                  "relu_grad",
                                                  "swiglu_grad",
                                                  "matmul_dw",
                                                  "matmul_dw_bias",
                                                  "matmul_gelu_grad",
                                                  "all_finite",
                                                  "softmax_grad",
                                                  "layernorm_grad",
                                                  "rmsnorm_grad",
                                                  "embedding_grad",
                                                  "attention_grad",
                                                  "adamw",
                                                  "all_reduce",
                                                  "all_gather",
                                                  "reduce_scatter",
                                                  "all_to_all",
                                                  "shard",
                                                  "transfer",
                                                  "stage_sum",
                                                  "cross_entropy_stats",
                                                  "cross_entropy_loss",
                                                  "cross_entropy_grad"};

/// Experts of x [3, embed], each times a gate that is one number a row.
void mixture(Case& c) {
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

/// h = tanh(x w + h u), four times: the state goes in under another name than it comes out.
void recurrent(Case& c) {
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
void renamed(Case& c) {
    const ValueId a = c.named("a", {3, 5}, {"row", "column"}), b = c.named("b", {3, 5}, {"batch", "embed"});
    const auto as = [&](ValueId x) {
        return c.builder().one("reshape", {x}, {{"shape", Shape{3, 5}}}, {}, {{"batch", "embed"}});
    };
    const ValueId sum = c.one("add", {as(a), c.one("tanh", {b})});
    c.weigh(c.one("tanh", {sum}));
    c.weigh(c.one("mul", {a, a}));
}

}  // namespace

TEST_CASE("gradients of a dense mixture and of a recurrent network equal central differences") {
    for (const auto& body : {mixture, recurrent, renamed}) {
        Case c(false);
        body(c);
        c.check();
    }
}

TEST_CASE("every op's gradient equals central differences") {
    const auto cases = all_cases();
    for (const OpDef* def : all_ops()) {
        const std::string kind(def->name);
        INFO(kind);
        CHECK((def->gradient == nullptr) == without_gradient.contains(kind));
        if (!def->gradient) continue;
        const auto found = cases.find(kind);
        REQUIRE(found != cases.end());
        for (size_t i = 0; i < found->second.size(); ++i)
            for (const bool inside : {false, true}) {
                INFO("case " << i << (inside ? " inside" : ""));
                Case c(inside);
                found->second[i](c);
                c.check();
            }
    }
}
