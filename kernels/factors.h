// Orthonormal columns of a matrix, by Cholesky QR, twice (Yamamoto et al. 2015, Roundoff error analysis of the
// CholeskyQR2 algorithm): with G = x^T x = u^T u, the columns of x u^-1 are orthonormal. Column j of the result has the
// direction of what is left of column j of x after its projection on columns 0 to j - 1, as Gram-Schmidt would give it.
// Where at most 2^-20 of the column is left, and of a column of zeros, the result is a column of zeros.
//
// Products of two f32 numbers are exact in f64, and their sums are finite, so no magnitude of f32 needs a scale. The
// second time corrects what the rounding of the first has left of angles; after it dot products of two columns are
// below 1e-6. With an infinite element or a NaN in x, all elements of the result are NaN.
#pragma once

#include "kernels/kernels.h"

namespace orrery::kernels {

constexpr std::int64_t most_factors = 256;  ///< columns
constexpr double least_left = 0x1p-40;      ///< of a column's squared norm

/// The inverse of u (upper triangle, row-major, n x n) from the upper triangle of G, in place of it. `u`: n x n numbers
/// to work with. Called by `threads` threads, of which this is number `thread`; `sync` is their barrier. n^3 / 3
/// multiply-adds.
template <class Sync>
ORRERY_HOST_DEVICE void invert_gram(double* gram, double* u, std::int64_t n, std::int64_t thread, std::int64_t threads,
                                    const Sync& sync) {
    double finite = 0;
    for (std::int64_t j = 0; j < n; ++j) finite += gram[j * n + j] - gram[j * n + j];
    for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t k = j + thread; k < n; k += threads) {
            double left = gram[j * n + k];
            for (std::int64_t i = 0; i < j; ++i) left -= u[i * n + j] * u[i * n + k];
            u[j * n + k] = left;
        }
        sync();
        const double left = u[j * n + j];
        const double scale = left > least_left * gram[j * n + j] ? 1 / __builtin_sqrt(left) : 0;
        sync();
        for (std::int64_t k = j + thread; k < n; k += threads) u[j * n + k] *= scale;
        sync();
    }
    for (std::int64_t k = thread; k < n; k += threads) {
        double* const inverse = gram;
        inverse[k * n + k] = finite != 0 ? finite : u[k * n + k] > 0 ? 1 / u[k * n + k] : 0;
        for (std::int64_t i = k - 1; i >= 0; --i) {
            double sum = finite;
            for (std::int64_t l = i + 1; l <= k; ++l) sum += u[i * n + l] * inverse[l * n + k];
            inverse[i * n + k] = u[i * n + i] > 0 ? -sum / u[i * n + i] : finite;
        }
    }
    sync();
}

}  // namespace orrery::kernels
