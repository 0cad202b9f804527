// The codec sundial: each element as one of 15 levels, in 4 bits, and for each 128 elements a scale of 16 bits. Replace
// encode, decode and what the codec says of them; orrery/codec.h says what each must keep.
#include "orrery/codec.h"

#include "orrery/plugin.h"

namespace {

using namespace orrery;

constexpr int64_t block = 128, bits = 4;

/// x [.., n] -> codes: two elements in a byte, u8 [.., ceil(n / 2)], and scales, bf16 [.., ceil(n / block)]. Ops are
/// those of the table (manual/ops.md).
std::vector<ValueId> encode(const Coding& at, ValueId x) {
    const std::vector<ValueId> coded =
        at.add("quantize", {x}, {{"dtype", std::string("i8")}, {"block", block}, {"bits", bits}}, {});
    const ValueId packed = at.add("pack", {coded[0]}, {{"bits", bits}}, {}).front();
    return {packed, coded[1]};
}

/// The codes -> what they stand for, f32 of the shape [.., n].
ValueId decode(const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
    const ValueId levels = at.add("unpack", {codes[0]}, {{"bits", bits}, {"size", shape.back()}}, {}).front();
    return at.add("dequantize", {levels, codes[1]}, {{"block", block}, {"bits", bits}}, {}).front();
}

void add(Registry& registry) {
    Codec codec;
    codec.block = block;
    // An element is off by at most half a step, s / 2, and one that is below half a step becomes 0. So the error of
    // each is at most itself, and a bit more where s / 2 is rounded.
    codec.bound = 1.005;
    codec.near = true;  // params and activations may be sent so, too
    codec.encode = encode;
    codec.decode = decode;
    registry.add_codec("sundial", codec);
}

}  // namespace

ORRERY_PLUGIN("codec.sundial", "0.1", add);
