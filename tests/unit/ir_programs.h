#pragma once
#include <cstdint>
#include <string>

#include "ir/build.h"
#include "orrery/program.h"

/// Programs for the tests of every pass.
namespace orrery::test {

/// x [batch, embed] -> relu(x up + b) down, with the squared distance to y as loss_sum. tp splits mlp in its marks.
Program mlp(int64_t batch = 8, int64_t embed = 6, int64_t hidden = 10);

/// A decoder in the manner of Llama: grouped heads, rope, rmsnorm, swiglu, tied embedding.
struct DecoderShape {
    int64_t layers = 2, batch = 2, seq = 5, embed = 12, heads = 3, kv_heads = 1, mlp = 16, vocab = 11;
};
Program decoder(const DecoderShape& shape);

/// A random legal forward program over all kinds of ops, with names, scopes, origins, marks, updates and results that
/// are awkward to print.
Program random_program(uint32_t seed);

/// "" when the programs are equal in every field, otherwise the first difference.
std::string difference(const Program& a, const Program& b);

}  // namespace orrery::test
