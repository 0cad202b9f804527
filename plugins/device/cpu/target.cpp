#include "target.h"

#include <algorithm>
#include <cstring>

namespace orrery::cpu_device {

namespace {

using namespace kernels;
using rules::Epilogue;
using rules::in;
using rules::Launch;
using rules::Operands;
using rules::out;

Launch product(const Kernels& kernels, const Matmul& s, Epilogue epilogue, bool bias, bool keeps_pre) {
    if (epilogue == Epilogue::none) {
        return [f = kernels.matmul, s, bias](Context& c, Operands t) {
            f(c, s, in(t[0]), in(t[1]), bias ? in(t[2]) : In{}, out(t[bias ? 3 : 2]));
        };
    }
    return [f = kernels.matmul_bias_gelu, s, keeps_pre,
            op = epilogue == Epilogue::gelu_erf ? Unary::gelu_erf : Unary::gelu_tanh](Context& c, Operands t) {
        f(c, s, op, in(t[0]), in(t[1]), in(t[2]), out(t[3]), keeps_pre ? out(t[4]) : Out{});
    };
}

/// Two kernels of one launch, which take turns in its scratch.
template <class First, class Second>
void in_turn(First first, Second second) {
    using Counted = Context::Counted;
    try {
        first();
    } catch (const Counted& one) {
        try {
            second();
        } catch (const Counted& other) {
            throw Counted{std::max(one.bytes, other.bytes)};
        }
        throw;
    }
    second();
}

Launch bias_grad(const Kernels& kernels, const Matmul& s) {
    return [dw = kernels.matmul, sum = kernels.reduce, s, rows = rules::Sizes{s.k, s.n}](Context& c, Operands t) {
        in_turn([&] { dw(c, s, in(t[0]), in(t[1]), {}, out(t[2])); },
                [&] { sum(c, Reduce::sum, in(t[1]), rows, 1, out(t[3]), s.accumulate); });
    };
}

void copy(Context&, const void* from, void* to, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

rules::Target target(const Kernels& kernels) {
    return {.kernels = kernels, .copy = copy, .product = product, .bias_grad = bias_grad};
}

}  // namespace orrery::cpu_device
