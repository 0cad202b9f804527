#include "run/checkpoint/format/row_sum.h"

#include "orrery/half.h"

namespace orrery {

namespace {

/// Calls `visit` with a number of the type's kind.
template <class Visit>
void with_number(DType dtype, const Visit& visit) {
    dtype == DType::f32 ? visit(float()) : dtype == DType::bf16 ? visit(BFloat16()) : visit(Float16());
}

}  // namespace

bool can_be_added(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

void RowSum::add(DType dtype, const std::byte* from) {
    with_number(dtype, [&]<class Number>(Number) {
        for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += float(reinterpret_cast<const Number*>(from)[i]);
    });
}

void RowSum::write(double parts, DType dtype, std::byte* to) const {
    with_number(dtype, [&]<class Number>(Number) {
        for (size_t i = 0; i < sums_.size(); ++i)
            reinterpret_cast<Number*>(to)[i] = Number(static_cast<float>(sums_[i] / parts));
    });
}

}  // namespace orrery
