// Families of cases for kernels_specs.cpp: one function a kind of op, for one type and one size.
#pragma once

#include "kernels_specs.h"

namespace orrery::kernels::testing {

using Attributes = std::vector<std::pair<std::string, cuda::Attribute>>;
using Sizes = std::vector<i64>;

class Cases {
public:
    explicit Cases(Source& source) : source_(source) {}

    /// Floats get numbers in [low, high), i32 in [0, 5], u8 0 or 1, u32 a seed.
    OpCase& add(const std::string& op, Attributes attributes, std::vector<Operand> in, std::vector<Operand> out,
                double low = -2, double high = 2);
    Source& source() { return source_; }

    std::vector<OpCase> all;

private:
    Buffer fresh(const Operand& o, double low, double high);

    Source& source_;
};

struct Heads {
    i64 batch, queries, keys, heads, groups, dim;
    bool causal;
    i64 window = 0;
    i64 values = 0;        ///< elements of a head of v, of o; 0: dim
    bool indexed = false;  ///< by documents, padding among them, and positions, both in no order; lse has a gradient
};

struct Reduced {
    Sizes shape, dims, result;
};

void elementwise(Cases& c, Type f, const Sizes& shape);
/// Two or three operands of unequal shapes, with n columns or rows.
void broadcasts(Cases& c, Type f, i64 n);
void broadcasts(Cases& c, Type f);
void random(Cases& c, i64 rows, i64 cols);
void products(Cases& c, Type f, i64 m, i64 n, i64 k);
/// Rows by the matrix of their expert, in slabs of `slots` and sorted: experts with no rows, some, all and too many.
void grouped_products(Cases& c, Type f, i64 experts, i64 slots, i64 n, i64 k);
/// Operands of two types.
void mixed_products(Cases& c, Type f, i64 m, i64 n, i64 k);
/// Outputs of the forward op become inputs of its gradient.
void attentions(Cases& c, Type f, const Heads& z);
void norms(Cases& c, Type f, i64 rows, i64 cols);
void reductions(Cases& c, Type f, const std::vector<Reduced>& sizes, i64 count);
void embeddings(Cases& c, Type f, i64 n, i64 rows, i64 cols);
/// Around a dim of n: ids of elements and of rows, some outside; k of n; sums both ways; counting.
void indices(Cases& c, Type f, i64 outer, i64 n, i64 inner);
/// Codes of rows in blocks of several sizes, packed and back, and the largest of each block.
void codes(Cases& c, Type f, i64 rows, i64 cols);
/// gather alone, of any type.
void gathers(Cases& c, Type type, i64 outer, i64 n, i64 inner);
void ropes(Cases& c, Type f, i64 dim);
void losses(Cases& c, Type f, i64 rows, i64 vocab);
void tiled_losses(Cases& c, Type f, i64 rows, i64 width, i64 vocab);
void updates(Cases& c, Type g, i64 n);
/// a, b, d: 3 or more, 5 or more, 10 or more.
void moves(Cases& c, Type f, i64 a, i64 b, i64 d);

}  // namespace orrery::kernels::testing
