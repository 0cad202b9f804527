// Elementwise kernels: runs of eight elements of one type at full bandwidth, and single elements of any shapes and
// types.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"
#include "kernels/math.h"

namespace orrery::kernels::ORRERY_BLOCKS {

/// out... = F(in...), all of type T. period[k]: operand k repeats after this many elements (1 or a multiple of 8); 0:
/// it is as long as the result.
template <class T, class F>
struct Map {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const T* in[F::inputs];
    T* out[F::outputs];
    i64 period[F::inputs];
    i64 n;
    bool wide, dense;  ///< dense: no operand repeats
    F f;

    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = (b.index() * threads + b.thread()) * run; i < n; i += b.blocks() * threads * run) {
            float x[F::inputs][run], y[F::outputs][run];
            if (dense && n - i >= run) {
                Packed<T> packed[F::inputs];
#pragma unroll
                for (int k = 0; k < F::inputs; ++k) fetch(in[k] + i, packed[k]);
#pragma unroll
                for (int k = 0; k < F::inputs; ++k) unpack(packed[k], x[k]);
            } else {
#pragma unroll
                for (int k = 0; k < F::inputs; ++k) {
                    if (period[k] == 1) {
#pragma unroll
                        for (int l = 0; l < run; ++l) x[k][l] = widen(in[k][0]);
                    } else {
                        load_run(in[k] + at(i, period[k]), n - i, wide, x[k]);
                    }
                }
            }
            f.apply(x, y);
#pragma unroll
            for (int k = 0; k < F::outputs; ++k) store_run(out[k] + i, n - i, wide, y[k]);
        }
    }
    ORRERY_DEVICE i64 at(i64 i, i64 every) const {
        if (every == 0) return i;
        return n < (i64{1} << 32) ? static_cast<i64>(static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(every))
                                  : i % every;
    }
};

template <class F, int IN, int OUT>
void map_runs(Call& call, const F& f, const In (&in)[IN], const i64 (&period)[IN], const Out (&out)[OUT], i64 n) {
    visit_float(out[0].type, [&]<class T>(T*) {
        Map<T, F> map{};
        map.n = n;
        map.f = f;
        map.wide = true;
        for (int k = 0; k < IN; ++k) {
            map.in[k] = static_cast<const T*>(in[k].data);
            map.period[k] = period[k];
            map.wide = map.wide && (period[k] == 1 || aligned(in[k].data));
        }
        for (int k = 0; k < OUT; ++k) {
            map.out[k] = static_cast<T*>(out[k].data);
            map.wide = map.wide && aligned(out[k].data);
        }
        map.dense = map.wide;
        for (i64 p : period) map.dense = map.dense && p == 0;
        launch(call, blocks_for(call, n, Map<T, F>::threads * run), map);
    });
}

/// y[l] = f(x[l]) for a run.
template <class F>
ORRERY_DEVICE void each(const float (&x)[run], float (&y)[run], F f) {
#pragma unroll
    for (int l = 0; l < run; ++l) y[l] = f(x[l]);
}
template <class F>
ORRERY_DEVICE void each(const float (&a)[run], const float (&b)[run], float (&y)[run], F f) {
#pragma unroll
    for (int l = 0; l < run; ++l) y[l] = f(a[l], b[l]);
}

/// One operand broadcast to the shape of a result by numpy's rules, at most 8 dims.
struct Spread {
    AnyIn x;
    i64 stride[max_dims];
};

/// y = f of up to three operands of any types and shapes, element by element.
template <class F>
struct Single {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Spread in[F::inputs];
    AnyOut y;
    i64 size[max_dims];
    int dims;
    i64 n;
    F f;

    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = b.index() * threads + b.thread(); i < n; i += b.blocks() * threads) {
            i64 at[F::inputs] = {};
            i64 rest = i;
            for (int d = dims - 1; d >= 0; --d) {
                const i64 index = rest % size[d];
                rest /= size[d];
                for (int k = 0; k < F::inputs; ++k) at[k] += index * in[k].stride[d];
            }
            typename F::Value x[F::inputs];
            for (int k = 0; k < F::inputs; ++k) x[k] = in[k].x.template as<typename F::Value>(at[k]);
            y.put(i, f.one(x));
        }
    }
};

/// The broadcast of shapes; adjacent dims are joined if the strides of every operand allow it.
class Broadcast {
public:
    explicit Broadcast(std::span<const Shape> shapes) {
        int all = 0;
        for (Shape s : shapes) all = all > static_cast<int>(s.size()) ? all : static_cast<int>(s.size());
        i64 full[max_dims], step[3][max_dims] = {};
        for (i64& f : full) f = 1;
        for (Shape s : shapes) {
            for (size_t d = 0; d < s.size(); ++d) {
                if (s[d] != 1) full[static_cast<size_t>(all) - s.size() + d] = s[d];
            }
        }
        for (size_t k = 0; k < shapes.size(); ++k) {
            i64 dense = 1;
            const int first = all - static_cast<int>(shapes[k].size());
            for (int d = static_cast<int>(shapes[k].size()) - 1; d >= 0; --d) {
                const i64 own = shapes[k][static_cast<size_t>(d)];
                step[k][first + d] = own == 1 ? 0 : dense;
                dense *= own;
            }
        }
        for (int d = 0; d < all; ++d) {
            n *= full[d];
            if (full[d] == 1) continue;
            bool joins = dims > 0;
            for (size_t k = 0; joins && k < shapes.size(); ++k) joins = stride[k][dims - 1] == step[k][d] * full[d];
            const int at = joins ? dims - 1 : dims++;
            size[at] = joins ? size[at] * full[d] : full[d];
            for (size_t k = 0; k < shapes.size(); ++k) stride[k][at] = step[k][d];
        }
    }

    /// Period of operand k as defined in Map, -1 when it has none.
    i64 period(int k) const {
        i64 dense = 1;
        int d = dims - 1;
        for (; d >= 0 && stride[k][d] == dense; --d) dense *= size[d];
        for (int rest = d; rest >= 0; --rest) {
            if (stride[k][rest] != 0) return -1;
        }
        if (d < 0) return dims == 0 ? 1 : 0;
        return dense == 1 || dense % run == 0 ? dense : -1;
    }

    i64 size[max_dims] = {};
    i64 stride[3][max_dims] = {};
    int dims = 0;
    i64 n = 1;
};

template <class F, int IN>
void map_single(Call& call, const F& f, const In (&in)[IN], const Shape (&shapes)[IN], Out y) {
    const Broadcast shape(shapes);
    Single<F> body{};
    for (int k = 0; k < IN; ++k) {
        body.in[k].x = AnyIn(in[k], false);
        for (int d = 0; d < shape.dims; ++d) body.in[k].stride[d] = shape.stride[k][d];
    }
    for (int d = 0; d < shape.dims; ++d) body.size[d] = shape.size[d];
    body.dims = shape.dims;
    body.n = shape.n;
    body.y = AnyOut(y, false);
    body.f = f;
    launch(call, blocks_for(call, shape.n, Single<F>::threads), body);
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
