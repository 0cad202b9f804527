#include <cstring>

#include "resolve.h"

namespace orrery::cpu_device {

namespace {

using kernels::Context;
using Operands = std::span<const Tensor>;

template <kernels::Reduce op>
Launch reduce(const Request& r) {
    const Shape& shape = r.input(0).shape;
    const std::vector<int64_t> dims = r.spec.attributes.integers("dims");
    uint32_t mask = 0;
    for (int64_t d : dims) {
        if (d < 0) d += static_cast<int64_t>(shape.size());
        if (d < 0 || d >= static_cast<int64_t>(shape.size())) r.refuse("no such dim");
        mask |= 1u << d;
    }
    if (!r.spec.attributes.has("dims")) mask = (1u << shape.size()) - 1;
    if (op == kernels::Reduce::max && r.accumulate()) r.refuse("cannot accumulate");
    return [f = r.kernels.reduce, shape, mask, accumulate = r.accumulate()](Context& c, Operands t) {
        f(c, op, in(t[0]), shape, mask, out(t[1]), accumulate);
    };
}

Launch sumsq(const Request& r) {
    return [f = r.kernels.sumsq, n = r.input(0).count()](Context& c, Operands t) { f(c, in(t[0]), out(t[1]), n); };
}

Launch all_finite(const Request& r) {
    return [f = r.kernels.all_finite, n = r.input(0).count()](Context& c, Operands t) {
        f(c, in(t[0]), static_cast<uint8_t*>(t[1].data), n);
    };
}

/// Rows and columns of the first input, with the eps of a norm.
struct Rows {
    int64_t rows, cols;
    double eps;
    bool accumulate;

    explicit Rows(const Request& r)
        : rows(rows_of(r.input(0))),
          cols(cols_of(r.input(0))),
          eps(r.spec.attributes.number("eps", 1e-5)),
          accumulate(r.accumulate()) {}
};

Launch softmax(const Request& r) {
    return [f = r.kernels.softmax, s = Rows(r)](Context& c, Operands t) { f(c, in(t[0]), out(t[1]), s.rows, s.cols); };
}

Launch softmax_grad(const Request& r) {
    return [f = r.kernels.softmax_grad, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), out(t[2]), s.rows, s.cols);
    };
}

Launch layernorm(const Request& r) {
    return [f = r.kernels.layernorm, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), out(t[3]), out(t[4]), out(t[5]), s.rows, s.cols, s.eps);
    };
}

Launch layernorm_grad(const Request& r) {
    return [f = r.kernels.layernorm_grad, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), out(t[5]), out(t[6]), out(t[7]), s.rows, s.cols,
          s.accumulate);
    };
}

Launch rmsnorm(const Request& r) {
    return [f = r.kernels.rmsnorm, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), out(t[2]), out(t[3]), s.rows, s.cols, s.eps);
    };
}

Launch rmsnorm_grad(const Request& r) {
    return [f = r.kernels.rmsnorm_grad, s = Rows(r)](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), in(t[3]), out(t[4]), out(t[5]), s.rows, s.cols, s.accumulate);
    };
}

/// The table rows that this rank holds: `start` of the script plus the shard's offset.
kernels::Embedding embedding_sizes(const Request& r, const TensorType& table) {
    if (table.shape.size() != 2) r.refuse("the table has two dims");
    kernels::Embedding s;
    s.tokens = r.input(0).count();
    s.start = r.spec.attributes.integer("start") + r.offset(0);
    s.rows = table.shape[0];
    s.cols = table.shape[1];
    s.accumulate = r.accumulate();
    return s;
}

Launch embedding(const Request& r) {
    return [f = r.kernels.embedding, s = embedding_sizes(r, r.input(1))](Context& c, Operands t) {
        f(c, s, static_cast<const int32_t*>(t[0].data), in(t[1]), out(t[2]));
    };
}

Launch embedding_grad(const Request& r) {
    return [f = r.kernels.embedding_grad, s = embedding_sizes(r, r.output(0))](Context& c, Operands t) {
        f(c, s, static_cast<const int32_t*>(t[0].data), in(t[1]), out(t[2]));
    };
}

Launch rope(const Request& r) {
    const Shape& x = r.input(0).shape;
    if (x.size() != 4 || x[3] % 2 != 0) r.refuse("expected x [B,T,H,D] with D even");
    kernels::Rope s{.batch = x[0], .seq = x[1], .heads = x[2], .dim = x[3]};
    s.start = r.spec.attributes.integer("start") + r.offset(1);
    s.theta = r.spec.attributes.number("theta", 10000);
    s.inverse = r.spec.attributes.flag("inverse");
    return [f = r.kernels.rope, s](Context& c, Operands t) { f(c, s, in(t[0]), out(t[1])); };
}

Launch cross_entropy(const Request& r) {
    const bool grad = r.spec.outputs.size() == 3;
    const auto ignore = static_cast<int32_t>(r.spec.attributes.integer("ignore", -1));
    if (grad && r.output(2).dtype != r.input(0).dtype) r.refuse("dlogits has the type of logits");
    return [f = r.kernels.cross_entropy, s = Rows(r), ignore, grad, y = r.out()](Context& c, Operands t) {
        f(c, in(t[0]), static_cast<const int32_t*>(t[1].data), y > 2 ? in(t[2]) : kernels::In{}, out(t[y]),
          out(t[y + 1]), grad ? out(t[y + 2]) : kernels::Out{}, s.rows, s.cols, ignore);
    };
}

/// The columns of the logits that this rank holds.
kernels::VocabShard vocab_shard(const Request& r) {
    const Shape& logits = r.input(0).shape;
    const std::vector<int64_t> global = r.spec.attributes.integers("global_shape");
    kernels::VocabShard s;
    s.rows = rows_of(r.input(0));
    s.cols = cols_of(r.input(0));
    s.start = r.offset(logits.size() - 1);
    s.vocab = global.empty() ? s.cols : global.back();
    s.ignore = static_cast<int32_t>(r.spec.attributes.integer("ignore", -1));
    return s;
}

Launch cross_entropy_stats(const Request& r) {
    return [f = r.kernels.cross_entropy_stats, s = vocab_shard(r)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), static_cast<const int32_t*>(t[2].data), out(t[3]), out(t[4]));
    };
}

Launch cross_entropy_loss(const Request& r) {
    const auto ignore = static_cast<int32_t>(r.spec.attributes.integer("ignore", -1));
    return [f = r.kernels.cross_entropy_loss, n = r.input(3).count(), ignore](Context& c, Operands t) {
        f(c, in(t[0]), in(t[1]), in(t[2]), static_cast<const int32_t*>(t[3].data), out(t[4]), out(t[5]), n, ignore);
    };
}

Launch cross_entropy_grad(const Request& r) {
    return [f = r.kernels.cross_entropy_grad, s = vocab_shard(r), y = r.out()](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), static_cast<const int32_t*>(t[3].data), y > 4 ? in(t[4]) : kernels::In{},
          out(t[y]));
    };
}

/// In place where the outputs are the inputs' memory; copied over first where they are not.
Launch adamw(const Request& r) {
    const Attributes& a = r.spec.attributes;
    const kernels::AdamW s{a.number("beta1", 0.9), a.number("beta2", 0.999), a.number("eps", 1e-8), a.number("decay")};
    const bool predicated = r.spec.inputs.size() == 8;
    const size_t y = r.out();
    return [f = r.kernels.adamw, s, y, predicated, n = r.input(0).count()](Context& c, Operands t) {
        const size_t from[] = {0, 2, 3};
        for (size_t i = 0; i < 3; ++i) {
            if (t[y + i].data != t[from[i]].data) std::memcpy(t[y + i].data, t[from[i]].data, t[y + i].bytes());
        }
        f(c, s, out(t[y]), in(t[1]), out(t[y + 1]), out(t[y + 2]), in(t[4]), in(t[5]), in(t[6]),
          predicated ? static_cast<const uint8_t*>(t[7].data) : nullptr, n);
    };
}

constexpr Rule rules[] = {
    {"sum", "F -> F", reduce<kernels::Reduce::sum>, true, true},
    {"max", "F -> F", reduce<kernels::Reduce::max>, false, true},
    {"sumsq", "F -> s", sumsq, false, true},
    {"all_finite", "F -> b", all_finite, false, true},
    {"softmax", "f -> f", softmax, false, true},
    {"softmax_grad", "f f -> f", softmax_grad, false, true},
    {"layernorm", "F F F -> F s s", layernorm, false, true},
    {"layernorm_grad", "F F s s F -> F s s", layernorm_grad, true, true},
    {"rmsnorm", "F F -> F s", rmsnorm, false, true},
    {"rmsnorm_grad", "F F s F -> F s", rmsnorm_grad, true, true},
    {"embedding", "i F -> F", embedding},
    {"embedding_grad", "i F -> s", embedding_grad, true},
    {"rope", "f -> f", rope, false, true},
    {"cross_entropy", "f i s? -> s s F?", cross_entropy, false, true},
    {"cross_entropy_stats", "f F i -> s s", cross_entropy_stats, false, true},
    {"cross_entropy_loss", "F s s i -> s s", cross_entropy_loss},
    {"cross_entropy_grad", "f F s i s? -> f", cross_entropy_grad, false, true},
    {"adamw", "s F s s s s s b? -> s s s", adamw},
};

}  // namespace

std::span<const Rule> row_rules() { return rules; }

}  // namespace orrery::cpu_device
