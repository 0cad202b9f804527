#include <cmath>
#include <limits>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

void reduce(Context&, Reduce op, In x, Shape shape, std::uint32_t dims, Out y, bool accumulate) {
    const Values v = read(x, count(shape));
    i64 kept = 1;
    for (size_t d = 0; d < shape.size(); ++d) kept *= (dims >> d & 1) != 0 ? 1 : shape[d];
    const double first = op == Reduce::sum ? 0.0 : -std::numeric_limits<double>::infinity();
    Values r(static_cast<size_t>(kept), first);
    for (size_t i = 0; i < v.size(); ++i) {
        i64 at = 0, stride = 1, rest = static_cast<i64>(i);
        for (i64 d = static_cast<i64>(shape.size()) - 1; d >= 0; --d) {
            if ((dims >> d & 1) == 0) {
                at += rest % shape[d] * stride;
                stride *= shape[d];
            }
            rest /= shape[d];
        }
        if (op == Reduce::sum)
            r[at] += v[i];
        else if (std::isnan(v[i]) || v[i] > r[at])
            r[at] = v[i];
    }
    write(y, r, accumulate);
}

void sumsq(Context&, In x, Out y, i64 n) {
    double sum = 0;
    for (double e : read(x, n)) sum += e * e;
    write_one(y, sum);
}

void all_finite(Context&, In x, std::uint8_t* y, i64 n) {
    *y = 1;
    for (double e : read(x, n)) {
        if (!std::isfinite(e)) *y = 0;
    }
}

}  // namespace

void add_reduce(Kernels& k) {
    k.reduce = reduce;
    k.sumsq = sumsq;
    k.all_finite = all_finite;
}

}  // namespace orrery::kernels::reference
