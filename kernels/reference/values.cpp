#include "kernels/reference/values.h"

#include "kernels/codes.h"

namespace orrery::kernels::reference {

namespace {

template <class T>
double widen(T x) {
    return static_cast<double>(x);
}
double widen(bf16 x) { return to_float(x); }
double widen(f16 x) { return to_float(x); }
double widen(f8e4m3 x) { return from_f8<3>(x.bits); }
double widen(f8e5m2 x) { return from_f8<2>(x.bits); }

template <class T>
void narrow(double x, T& y) {
    y = static_cast<T>(x);
}
void narrow(double x, bf16& y) { y = to_bf16(static_cast<float>(x)); }
void narrow(double x, f16& y) { y = to_f16(static_cast<float>(x)); }
void narrow(double x, std::int8_t& y) { y = static_cast<std::int8_t>(static_cast<std::int64_t>(x)); }
void narrow(double x, f8e4m3& y) { y.bits = to_f8<3>(static_cast<float>(x)); }
void narrow(double x, f8e5m2& y) { y.bits = to_f8<2>(static_cast<float>(x)); }

/// Calls f with a null pointer of the element type.
template <class F>
void visit(Type type, F f) {
    switch (type) {
        case Type::f32: return f(static_cast<float*>(nullptr));
        case Type::f64: return f(static_cast<double*>(nullptr));
        case Type::bf16: return f(static_cast<bf16*>(nullptr));
        case Type::f16: return f(static_cast<f16*>(nullptr));
        case Type::i32: return f(static_cast<std::int32_t*>(nullptr));
        case Type::u32: return f(static_cast<std::uint32_t*>(nullptr));
        case Type::u8: return f(static_cast<std::uint8_t*>(nullptr));
        case Type::i8: return f(static_cast<std::int8_t*>(nullptr));
        case Type::f8e4m3: return f(static_cast<f8e4m3*>(nullptr));
        case Type::f8e5m2: return f(static_cast<f8e5m2*>(nullptr));
    }
}

}  // namespace

Values read(In x, i64 n) {
    Values values(static_cast<size_t>(n));
    visit(x.type, [&]<class T>(T*) {
        for (i64 i = 0; i < n; ++i) values[i] = widen(x.as<T>()[i]);
    });
    return values;
}

double read_one(In x) { return read(x, 1)[0]; }

void write(Out y, const Values& values) {
    visit(y.type, [&]<class T>(T*) {
        for (size_t i = 0; i < values.size(); ++i) narrow(values[i], y.as<T>()[i]);
    });
}

void write_one(Out y, double value) { write(y, Values{value}); }

void write(Out y, const Values& values, bool accumulate) {
    if (!accumulate) return write(y, values);
    Values sum = read(y, static_cast<i64>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    write(y, sum);
}

i64 count(Shape shape) {
    i64 n = 1;
    for (i64 size : shape) n *= size;
    return n;
}

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k{};
        add_elementwise(k);
        add_random(k);
        add_matmul(k);
        add_grouped_matmul(k);
        add_reduce(k);
        add_norm(k);
        add_attention(k);
        add_tokens(k);
        add_index(k);
        add_dispatch(k);
        add_codes(k);
        add_update(k);
        add_layout(k);
        return k;
    }();
    return kernels;
}

}  // namespace orrery::kernels::reference
