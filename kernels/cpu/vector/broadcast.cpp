// Functions of two or three operands with broadcasting.
#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// The broadcast of N shapes in as few dims as possible: adjacent dims with the same pattern in every operand are
/// joined. The last dim is innermost.
template <int N>
struct Walk {
    int dims = 0;
    i64 size[max_dims] = {};
    i64 stride[N][max_dims] = {};
    i64 total = 1;

    explicit Walk(const Shape (&shapes)[N]) {
        int rank = 0;
        for (Shape s : shapes) rank = static_cast<int>(s.size()) > rank ? static_cast<int>(s.size()) : rank;
        i64 step[N];
        for (i64& s : step) s = 1;
        i64 sizes[max_dims], strides[N][max_dims];
        for (int d = rank - 1; d >= 0; --d) {
            sizes[d] = 1;
            for (int j = 0; j < N; ++j) {
                const int at = d - rank + static_cast<int>(shapes[j].size());
                const i64 own = at < 0 ? 1 : shapes[j][static_cast<size_t>(at)];
                strides[j][d] = own == 1 ? 0 : step[j];
                step[j] *= own;
                if (own != 1) sizes[d] = own;
            }
            total *= sizes[d];
        }
        for (int d = 0; d < rank; ++d) {
            if (sizes[d] == 1) continue;
            bool joins = dims > 0;
            for (int j = 0; joins && j < N; ++j) joins = stride[j][dims - 1] == strides[j][d] * sizes[d];
            if (!joins) size[dims++] = 1;
            size[dims - 1] *= sizes[d];
            for (int j = 0; j < N; ++j) stride[j][dims - 1] = strides[j][d];
        }
        if (dims == 0) size[dims++] = 1;
    }
};

/// A run of n elements: contiguous, or one element n times.
ORRERY_INLINE const float* run(In x, i64 at, i64 stride, i64 n, float* buffer) {
    if (stride != 0) return fetch(x, at, n, buffer);
    float value;
    value = *fetch(x, at, 1, &value);
    map(buffer, n, [v = Vec(value)]() { return v; });
    return buffer;
}

template <int N, class F>
ORRERY_INLINE void broadcast_map(Context& c, const In (&x)[N], const Shape (&shapes)[N], Out y, F f) {
    const Walk<N> w(shapes);
    const i64 inner = w.size[w.dims - 1];
    parallel(c.threads(), w.total, grain, 64, [&](i64 begin, i64 end) {
        float buffers[N + 1][tile];
        for (i64 at = begin; at < end;) {
            i64 rest = at / inner, first = at % inner, offset[N];
            for (int j = 0; j < N; ++j) offset[j] = first * w.stride[j][w.dims - 1];
            for (int d = w.dims - 2; d >= 0; rest /= w.size[d], --d) {
                for (int j = 0; j < N; ++j) offset[j] += rest % w.size[d] * w.stride[j][d];
            }
            i64 n = inner - first < end - at ? inner - first : end - at;
            if (n > tile) n = tile;
            const float* runs[N];
            for (int j = 0; j < N; ++j) runs[j] = run(x[j], offset[j], w.stride[j][w.dims - 1], n, buffers[j]);
            float* to = target(y, at, buffers[N]);
            if constexpr (N == 2)
                map(to, n, f, runs[0], runs[1]);
            else
                map(to, n, f, runs[0], runs[1], runs[2]);
            flush(y, at, n, to);
            at += n;
        }
    });
}

Vec power(Vec a, Vec b) {
    float x[width], y[width];
    store(a, x);
    store(b, y);
    for (int i = 0; i < width; ++i) x[i] = __builtin_powf(x[i], y[i]);
    return load(x);
}

void binary(Context& c, Binary op, In a, Shape as, In b, Shape bs, Out y) {
    const In x[] = {a, b};
    const Shape shapes[] = {as, bs};
    switch (op) {
        case Binary::add: return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return p + q; });
        case Binary::sub: return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return p - q; });
        case Binary::mul: return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return p * q; });
        case Binary::div: return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return p / q; });
        case Binary::maximum:  // NaN if either operand is
            return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return select(p == p, select(p > q, p, q), p); });
        case Binary::minimum:
            return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return select(p == p, select(p < q, p, q), p); });
        case Binary::pow: return broadcast_map(c, x, shapes, y, [](Vec p, Vec q) { return power(p, q); });
    }
}

void compare(Context& c, Compare op, In a, Shape as, In b, Shape bs, Out y) {
    // Integers do not fit floats exactly; comparing them is rare, so the reference does it.
    if (a.type == Type::i32 || b.type == Type::i32) return reference::table().compare(c, op, a, as, b, bs, y);
    const In x[] = {a, b};
    const Shape shapes[] = {as, bs};
    const auto with = [&](auto test) {
        broadcast_map(c, x, shapes, y, [=](Vec p, Vec q) { return select(test(p, q), Vec(1.0f), Vec(0.0f)); });
    };
    switch (op) {
        case Compare::less: return with([](Vec p, Vec q) { return p < q; });
        case Compare::less_equal: return with([](Vec p, Vec q) { return p <= q; });
        case Compare::greater: return with([](Vec p, Vec q) { return p > q; });
        case Compare::greater_equal: return with([](Vec p, Vec q) { return p >= q; });
        case Compare::equal: return with([](Vec p, Vec q) { return p == q; });
    }
}

void select_kernel(Context& c, In p, Shape ps, In a, Shape as, In b, Shape bs, Out y) {
    const In x[] = {p, a, b};
    const Shape shapes[] = {ps, as, bs};
    broadcast_map(c, x, shapes, y, [](Vec m, Vec u, Vec v) { return select(m > Vec(0.0f), u, v); });
}

}  // namespace

void add_broadcast(Kernels& k) {
    k.binary = binary;
    k.compare = compare;
    k.select = select_kernel;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
