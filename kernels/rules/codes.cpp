#include <string>

#include "kernels/codes.h"
#include "kernels/factors.h"
#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

/// The blocks of an operand: along its last dim, or without the attribute one block of all elements.
Blocks blocks_of(const Request& r, const Operand& x) {
    const i64 block = r.spec.integer("block");
    if (!r.has("block")) return {1, x.count(), x.count()};
    if (block < 1 || x.shape.empty()) r.refuse("blocks have at least one element, along the last dim");
    return {x.rows(), x.cols(), block};
}

/// The code of q, by its type and the attribute `bits`.
Code code_of(const Request& r, const Operand& q) {
    if (q.type == Type::f8e4m3) return Code::f8e4m3;
    if (q.type == Type::f8e5m2) return Code::f8e5m2;
    if (q.type != Type::i8) r.refuse("codes are i8 or floats of 8 bits");
    switch (r.spec.integer("bits", 8)) {
        case 8: return Code::i8;
        case 4: return Code::i4;
        case 2: return Code::i2;
        case 1: return Code::sign;
        default: r.refuse("bits are 8, 4, 2 or 1");
    }
}

void expect_scales(const Request& r, const Blocks& s, const Operand& scale) {
    if (scale.count() != s.count()) r.refuse("there is one scale a block");
}

Launch quantize(const Request& r) {
    const Blocks s = blocks_of(r, r.input(0));
    const Code code = code_of(r, r.output(0));
    if (r.output(0).shape != r.input(0).shape) r.refuse("x and q have one shape");
    expect_scales(r, s, r.output(1));
    const bool narrow = r.has("block") && code != Code::sign;
    return [f = r.target.kernels.quantize, s, code, narrow](Context& c, Operands t) {
        f(c, s, code, narrow, in(t[0]), t[1].data, out(t[2]));
    };
}

Launch dequantize(const Request& r) {
    const Blocks s = blocks_of(r, r.input(0));
    if (r.output(0).shape != r.input(0).shape) r.refuse("q and y have one shape");
    expect_scales(r, s, r.input(1));
    return [f = r.target.kernels.dequantize, s, code = code_of(r, r.input(0))](Context& c, Operands t) {
        f(c, s, code, t[0].data, in(t[1]), out(t[2]));
    };
}

/// Bits of a packed code, of operands that agree.
int bits_of(const Request& r, const Operand& codes, const Operand& packed) {
    const i64 bits = r.spec.integer("bits", 0);
    if (bits != 4 && bits != 2 && bits != 1) r.refuse("bits are 4, 2 or 1");
    if (codes.shape.empty() || packed.shape.empty() || codes.rows() != packed.rows() ||
        packed.cols() != packed_bytes(codes.cols(), bits))
        r.refuse("packed rows have the bytes that their codes need");
    return static_cast<int>(bits);
}

Launch pack(const Request& r) {
    const Operand& q = r.input(0);
    return [f = r.target.kernels.pack, bits = bits_of(r, q, r.output(0)), rows = q.rows(), cols = q.cols()](
               Context& c, Operands t) {
        f(c, bits, static_cast<const std::int8_t*>(t[0].data), static_cast<std::uint8_t*>(t[1].data), rows, cols);
    };
}

Launch unpack(const Request& r) {
    const Operand& q = r.output(0);
    return [f = r.target.kernels.unpack, bits = bits_of(r, q, r.input(0)), rows = q.rows(), cols = q.cols()](
               Context& c, Operands t) {
        f(c, bits, static_cast<const std::uint8_t*>(t[0].data), static_cast<std::int8_t*>(t[1].data), rows, cols);
    };
}

Launch block_top_k(const Request& r) {
    const Blocks s = blocks_of(r, r.input(0));
    const i64 k = r.output(0).cols();
    if (s.block > i64{1} << 24) r.refuse("a block has at most 2^24 elements");
    if (k < 1 || r.output(0).count() != s.count() * k || r.output(1).shape != r.output(0).shape)
        r.refuse("values and ids are [.., blocks, k]");
    return [f = r.target.kernels.block_top_k, s, k](Context& c, Operands t) {
        f(c, s, k, in(t[0]), out(t[1]), static_cast<std::int32_t*>(t[2].data));
    };
}

Launch orthogonalize(const Request& r) {
    const Operand& x = r.input(0);
    const size_t rank = x.shape.size();
    if (rank < 2 || x.cols() > most_factors) r.refuse("x is matrices of at most 256 columns");
    if (r.output(0).shape != x.shape) r.refuse("x and y have one shape");
    const i64 rows = x.shape[rank - 2], cols = x.cols(), size = rows * cols, matrices = size > 0 ? x.count() / size : 0;
    return [f = r.target.kernels.orthogonalize, matrices, rows, cols](Context& c, Operands t) {
        f(c, matrices, rows, cols, in(t[0]), out(t[1]));
    };
}

constexpr KernelRule lines[] = {
    {"quantize", quantize}, {"dequantize", dequantize},         {"pack", pack},
    {"unpack", unpack},     {"block_top_k", block_top_k, true}, {"orthogonalize", orthogonalize, true},
};

}  // namespace

std::span<const KernelRule> code_rules() { return lines; }

}  // namespace orrery::kernels::rules
