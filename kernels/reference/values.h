// The reference kernels read operands into doubles, compute plainly, and round once when they write.
#pragma once

#include <vector>

#include "kernels/kernels.h"

namespace orrery::kernels::reference {

using i64 = std::int64_t;
using Values = std::vector<double>;

Values read(In x, i64 n);
double read_one(In x);
/// Rounds to the type of y; integers truncate.
void write(Out y, const Values& values);
void write_one(Out y, double value);
/// y = values, or y += values.
void write(Out y, const Values& values, bool accumulate);

i64 count(Shape shape);

/// Each file has one function, which fills its members of the table.
void add_elementwise(Kernels&);
void add_random(Kernels&);
void add_matmul(Kernels&);
void add_grouped_matmul(Kernels&);
void add_reduce(Kernels&);
void add_norm(Kernels&);
void add_attention(Kernels&);
void add_tokens(Kernels&);
void add_index(Kernels&);
void add_dispatch(Kernels&);
void add_codes(Kernels&);
void add_update(Kernels&);
void add_layout(Kernels&);

}  // namespace orrery::kernels::reference
