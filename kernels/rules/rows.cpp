#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

template <Reduce op>
Launch reduce(const Request& r) {
    const Sizes& shape = r.input(0).shape;
    const std::vector<i64> dims = r.spec.integers("dims");
    uint32_t mask = 0;
    for (i64 d : dims) {
        if (d < 0) d += static_cast<i64>(shape.size());
        if (d < 0 || d >= static_cast<i64>(shape.size())) r.refuse("dim is out of range");
        mask |= 1u << d;
    }
    if (!r.has("dims")) mask = (1u << shape.size()) - 1;
    return [f = r.target.kernels.reduce, shape, mask, accumulate = r.accumulate()](Context& c, Operands t) {
        f(c, op, in(t[0]), shape, mask, out(t[1]), accumulate);
    };
}

Launch sumsq(const Request& r) {
    return
        [f = r.target.kernels.sumsq, n = r.input(0).count()](Context& c, Operands t) { f(c, in(t[0]), out(t[1]), n); };
}

Launch all_finite(const Request& r) {
    return [f = r.target.kernels.all_finite, n = r.input(0).count()](Context& c, Operands t) {
        f(c, in(t[0]), static_cast<uint8_t*>(t[1].data), n);
    };
}

/// Rows and columns of the first input, with the eps of a norm.
struct Rows {
    i64 rows, cols;
    double eps;
    bool accumulate;

    explicit Rows(const Request& r)
        : rows(rows_of(r.input(0))),
          cols(cols_of(r.input(0))),
          eps(r.spec.number("eps", 1e-5)),
          accumulate(r.accumulate()) {}
};

Launch softmax(const Request& r) {
    return [f = r.target.kernels.softmax, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), out(t[1]), s.rows, s.cols);
    };
}

Launch softmax_grad(const Request& r) {
    return [f = r.target.kernels.softmax_grad, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), out(t[2]), s.rows, s.cols);
    };
}

Merge merge_sizes(const Request& r) {
    const Sizes& o = r.input(0).shape;
    if (o.size() != 4 || r.input(2).shape != o || r.input(1).shape != Sizes{o[0], o[2], o[1]} ||
        r.input(3).shape != r.input(1).shape) {
        r.refuse("expected o [B,T,H,D] and lse [B,H,T], twice");
    }
    return {o[0], o[1], o[2], o[3]};
}

Launch merge(const Request& r) {
    return [f = r.target.kernels.merge, s = merge_sizes(r)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), out(t[4]), out(t[5]));
    };
}

Launch merge_grad(const Request& r) {
    return [f = r.target.kernels.merge_grad, s = merge_sizes(r), to = r.out()](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), to > 5 ? in(t[5]) : In{}, out(t[to]), out(t[to + 1]),
          out(t[to + 2]), out(t[to + 3]));
    };
}

void check_norm(const Request& r, size_t dy) {
    if (!r.target.norms_of_one_type) return;
    if (r.output(0).type != r.input(0).type || r.input(dy).type != r.input(0).type)
        r.refuse("x, y and their gradients have one type");
}

/// Checks a norm and returns whether it adds a residual first. vectors: gain and bias, or gain only.
bool check_sum(const Request& r, size_t vectors) {
    check_norm(r, 0);
    const bool sums = r.spec.inputs.size() > 1 + vectors;
    if (sums != (r.spec.outputs.size() > 1 + vectors)) r.refuse("a residual comes with the sum as the last output");
    return sums;
}

Launch layernorm(const Request& r) {
    const bool sums = check_sum(r, 2);
    return [f = r.target.kernels.layernorm, s = Rows(r), sums, y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), sums ? in(t[3]) : In{}, out(t[y]), out(t[y + 1]), out(t[y + 2]),
          sums ? out(t[y + 3]) : Out{}, s.rows, s.cols, s.eps);
    };
}

Launch layernorm_grad(const Request& r) {
    check_norm(r, 4);
    return [f = r.target.kernels.layernorm_grad, s = Rows(r), y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), y > 5 ? in(t[5]) : In{}, out(t[y]), out(t[y + 1]),
          out(t[y + 2]), s.rows, s.cols, s.accumulate);
    };
}

Launch rmsnorm(const Request& r) {
    const bool sums = check_sum(r, 1);
    return [f = r.target.kernels.rmsnorm, s = Rows(r), sums, y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), sums ? in(t[2]) : In{}, out(t[y]), out(t[y + 1]), sums ? out(t[y + 2]) : Out{}, s.rows,
          s.cols, s.eps);
    };
}

Launch rmsnorm_grad(const Request& r) {
    check_norm(r, 3);
    return [f = r.target.kernels.rmsnorm_grad, s = Rows(r), y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), in(t[3]), y > 4 ? in(t[4]) : In{}, out(t[y]), out(t[y + 1]), s.rows, s.cols,
          s.accumulate);
    };
}

/// The table rows of this rank: `start` of the script plus the shard's offset.
Embedding embedding_sizes(const Request& r, const Operand& table) {
    if (table.shape.size() != 2) r.refuse("the table has two dims");
    Embedding s;
    s.tokens = r.input(0).count();
    s.start = r.spec.integer("start") + r.offset(0);
    s.rows = table.shape[0];
    s.cols = table.shape[1];
    s.accumulate = r.accumulate();
    return s;
}

Launch embedding(const Request& r) {
    return [f = r.target.kernels.embedding, s = embedding_sizes(r, r.input(1))](Context& c, Operands t) {
        f(c, s, static_cast<const int32_t*>(t[0].data), in(t[1]), out(t[2]));
    };
}

Launch embedding_grad(const Request& r) {
    return [f = r.target.kernels.embedding_grad, s = embedding_sizes(r, r.output(0))](Context& c, Operands t) {
        f(c, s, static_cast<const int32_t*>(t[0].data), in(t[1]), out(t[2]));
    };
}

Launch rope(const Request& r) {
    const Sizes& x = r.input(0).shape;
    if (x.size() != 4 || x[3] % 2 != 0) r.refuse("expected x [B,T,H,D] with D even");
    Rope s{.batch = x[0], .seq = x[1], .heads = x[2], .dim = x[3]};
    s.start = r.spec.integer("start") + r.offset(1);
    s.theta = r.given("theta");
    s.inverse = r.spec.flag("inverse");
    s.factor = r.spec.number("factor", 1);
    s.low_freq_factor = r.spec.number("low_freq_factor");
    s.high_freq_factor = r.spec.number("high_freq_factor");
    s.beta_fast = r.spec.number("beta_fast");
    s.beta_slow = r.spec.number("beta_slow");
    s.truncate = r.spec.flag("truncate");
    s.original_positions = r.spec.integer("original_positions");
    s.magnitude = r.spec.number("magnitude", 1);
    const bool given = r.spec.inputs.size() > 1;
    if (given && r.input(1).shape != Sizes{s.batch, s.seq}) r.refuse("expected positions [B,T]");
    return [f = r.target.kernels.rope, s, given](Context& c, Operands t) {
        f(c, s, in(t[0]), given ? static_cast<const int32_t*>(t[1].data) : nullptr, out(t.back()));
    };
}

Launch cross_entropy(const Request& r) {
    const bool grad = r.spec.outputs.size() == 3;
    const auto ignore = static_cast<int32_t>(r.spec.integer("ignore", -1));
    return [f = r.target.kernels.cross_entropy, s = Rows(r), ignore, grad, y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), static_cast<const int32_t*>(t[1].data), y > 2 ? in(t[2]) : In{}, out(t[y]), out(t[y + 1]),
          grad ? out(t[y + 2]) : Out{}, s.rows, s.cols, ignore);
    };
}

/// The columns of the logits of this rank.
VocabShard vocab_shard(const Request& r) {
    const Sizes& logits = r.input(0).shape;
    const std::vector<i64> global = r.spec.integers("global_shape");
    VocabShard s;
    s.rows = rows_of(r.input(0));
    s.cols = cols_of(r.input(0));
    s.start = r.offset(logits.size() - 1);
    s.vocab = global.empty() ? s.cols : global.back();
    s.ignore = static_cast<int32_t>(r.spec.integer("ignore", -1));
    return s;
}

Launch cross_entropy_stats(const Request& r) {
    return [f = r.target.kernels.cross_entropy_stats, s = vocab_shard(r)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), static_cast<const int32_t*>(t[2].data), out(t[3]), out(t[4]));
    };
}

Launch cross_entropy_loss(const Request& r) {
    const auto ignore = static_cast<int32_t>(r.spec.integer("ignore", -1));
    return [f = r.target.kernels.cross_entropy_loss, n = r.input(3).count(), ignore](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), static_cast<const int32_t*>(t[3].data), out(t[4]), out(t[5]), n, ignore);
    };
}

Launch cross_entropy_grad(const Request& r) {
    return [f = r.target.kernels.cross_entropy_grad, s = vocab_shard(r), y = r.out()](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), static_cast<const int32_t*>(t[3].data), y > 4 ? in(t[4]) : In{},
          out(t[y]));
    };
}

/// Sizes of a loss in tiles; the operand `bias`, if there is one, is the last.
TiledLoss tiled_sizes(const Request& r, TiledLoss::Part part, size_t bias) {
    const Sizes& head = r.input(1).shape;
    if (head.size() != 2) r.refuse("the head has two dims");
    TiledLoss s{.part = part, .rows = rows_of(r.input(0)), .width = cols_of(r.input(0))};
    const size_t dim = r.dim(2);
    s.trans_b = dim == 0;
    s.cols = head[dim];
    if (head[1 - dim] != s.width || r.input(2).count() != s.rows) r.refuse("x, head and targets differ in size");
    s.start = r.offset(dim);
    const std::vector<i64> global = r.spec.integers("global_shape");
    s.vocab = global.empty() ? s.cols : global[dim];
    s.ignore = static_cast<int32_t>(r.spec.integer("ignore", -1));
    s.blocks = part == TiledLoss::Part::statistics ? r.output(0).shape.back() : 1;
    if (s.blocks < 1 || s.cols % s.blocks != 0) r.refuse("the blocks do not divide the vocabulary");
    s.bias = r.spec.inputs.size() > bias;
    if (s.bias && r.input(bias).count() != s.cols) r.refuse("the bias has another size");
    s.accumulate = r.accumulate();
    constexpr i64 most_bytes = i64{64} << 20, unit = 64;  // of the logits of a tile
    const i64 row_bytes = s.cols * size_of(r.input(0).type), fit = row_bytes > 0 ? most_bytes / row_bytes : s.rows;
    s.tile = r.spec.integer("tile");
    if (s.tile <= 0) s.tile = fit > unit ? fit / unit * unit : fit > 0 ? fit : 1;
    return s;
}

/// Sets that there are gradients: outputs `first` and later.
void add_slopes(const Request& r, TiledLoss& s, size_t first) {
    s.gradients = r.spec.outputs.size() > first;
    s.bias_gradient = r.spec.outputs.size() > first + 2;
    if (s.gradients && r.input(0).type == Type::f16 && r.output(first).type != Type::f32)
        r.refuse("the gradient of an f16 x is f32");
}

auto tiled_kernel(const Request& r) {
    const auto table = r.target.kernels.tiled_loss;
    return r.target.tiled_loss ? r.target.tiled_loss()
                               : std::function<void(Context&, const TiledLoss&, const TiledLossData&)>(table);
}

TiledLossData tiled_data(const TiledLoss& s, Operands t, size_t bias) {
    return {.x = in(t[0]),
            .head = in(t[1]),
            .bias = s.bias ? in(t[bias]) : In{},
            .targets = static_cast<const int32_t*>(t[2].data)};
}

Launch linear_cross_entropy(const Request& r) {
    TiledLoss s = tiled_sizes(r, TiledLoss::Part::whole, 3);
    add_slopes(r, s, 2);
    return [f = tiled_kernel(r), s, y = r.out()](Context& c, Operands t) {
        TiledLossData data = tiled_data(s, t, 3);
        data.loss = out(t[y]), data.count = out(t[y + 1]);
        if (s.gradients) data.dx = out(t[y + 2]), data.dhead = out(t[y + 3]);
        if (s.bias_gradient) data.dbias = out(t[y + 4]);
        f(c, s, data);
    };
}

Launch linear_cross_entropy_stats(const Request& r) {
    return
        [f = tiled_kernel(r), s = tiled_sizes(r, TiledLoss::Part::statistics, 3), y = r.out()](Context& c, Operands t) {
            TiledLossData data = tiled_data(s, t, 3);
            data.lse = out(t[y]), data.picked = out(t[y + 1]);
            f(c, s, data);
        };
}

Launch linear_cross_entropy_grad(const Request& r) {
    TiledLoss s = tiled_sizes(r, TiledLoss::Part::gradients, 5);
    add_slopes(r, s, 0);
    return [f = tiled_kernel(r), s, y = r.out()](Context& c, Operands t) {
        TiledLossData data = tiled_data(s, t, 5);
        data.top = in(t[3]), data.total = in(t[4]);
        data.dx = out(t[y]), data.dhead = out(t[y + 1]);
        if (s.bias_gradient) data.dbias = out(t[y + 2]);
        f(c, s, data);
    };
}

/// Updates in place when outputs alias inputs; otherwise copies the inputs to the outputs first.
Launch adamw(const Request& r) {
    const i64 n = r.input(0).count();
    for (size_t i = 1; i < 4; ++i) {
        if (r.input(i).count() != n) r.refuse("p, g, m and v differ in size");
    }
    const AdamW s{r.spec.number("beta1", 0.9), r.spec.number("beta2", 0.999), r.spec.number("eps", 1e-8),
                  r.spec.number("decay")};
    return [f = r.target.kernels.adamw, copy = r.target.copy, s, n, y = r.out(),
            predicated = r.spec.inputs.size() == 8](Context& c, Operands t) {
        const size_t from[] = {0, 2, 3};
        for (size_t i = 0; i < 3; ++i) {
            if (t[from[i]].data != t[y + i].data) copy(c, t[from[i]].data, t[y + i].data, t[y + i].bytes);
        }
        f(c, s, out(t[y]), in(t[1]), out(t[y + 1]), out(t[y + 2]), in(t[4]), in(t[5]), in(t[6]),
          predicated ? static_cast<const std::uint8_t*>(t[7].data) : nullptr, n);
    };
}

constexpr KernelRule lines[] = {
    {"sum", reduce<Reduce::sum>, true},
    {"max", reduce<Reduce::max>, true},
    {"sumsq", sumsq, true},
    {"all_finite", all_finite, true},
    {"softmax", softmax, true},
    {"softmax_grad", softmax_grad, true},
    {"merge", merge, true},
    {"merge_grad", merge_grad, true},
    {"layernorm", layernorm, true},
    {"layernorm_grad", layernorm_grad, true},
    {"rmsnorm", rmsnorm, true},
    {"rmsnorm_grad", rmsnorm_grad, true},
    {"embedding", embedding},
    {"embedding_grad", embedding_grad},
    {"rope", rope, true},
    {"cross_entropy", cross_entropy, true},
    {"cross_entropy_stats", cross_entropy_stats, true},
    {"cross_entropy_loss", cross_entropy_loss},
    {"cross_entropy_grad", cross_entropy_grad, true},
    {"linear_cross_entropy", linear_cross_entropy, true},
    {"linear_cross_entropy_stats", linear_cross_entropy_stats, true},
    {"linear_cross_entropy_grad", linear_cross_entropy_grad, true},
    {"adamw", adamw},
};

}  // namespace

std::span<const KernelRule> row_rules() { return lines; }

}  // namespace orrery::kernels::rules
