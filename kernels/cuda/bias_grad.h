// The gradient of a bias together with a product, by a library that accepts only aligned operands: chooses between the
// library and own kernels, with scratch for both.
#pragma once

#include <algorithm>

#include "kernels/cuda/rules.h"

namespace orrery::kernels::ORRERY_BLOCKS {

/// dbias [n] (+)= the sum of the rows of b [k, n].
inline void sum_rows(Call& call, const Matmul& s, In b, Out dbias) {
    const i64 rows[] = {s.k, s.n};
    table().reduce(call, Reduce::sum, b, Shape(rows, 2), 1, dbias, s.accumulate);
}

/// dw [m, n] (+)= a b, dbias as above. `library` has workspace(), takes(a, b, dw, sums), and run(a, b, dw, sums,
/// workspace), which overwrites the sums and cannot add to them. Own kernels handle operands that it does not take. A
/// rehearsal sees no addresses: its scratch is enough for both ways, which start at the same byte.
template <class Library>
void bias_grad(Call& call, const Matmul& s, Library& library, In a, In b, Out dw, Out dbias) {
    const i64 from = call.used;
    void* const workspace = call.take(library.workspace());
    const Out sums = s.accumulate ? Out(call.take(s.n * 4), Type::f32) : dbias;
    if (!call.rehearsal && library.takes(a, b, dw, sums)) {
        library.run(a, b, dw, sums, workspace);
        const Shape shape(&s.n, 1);
        if (s.accumulate) table().binary(call, Binary::add, dbias, shape, sums, shape, dbias);
        return;
    }
    const i64 library_needs = call.used;
    call.used = from;
    table().matmul(call, s, a, b, {}, dw);
    sum_rows(call, s, b, dbias);
    call.used = std::max(call.used, library_needs);
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
