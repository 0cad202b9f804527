// A codec that breaks one promise of orrery/codec.h, which ORRERY_TEST_FAULT names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/codec/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")

#include <cstdlib>
#include <string_view>

namespace {

std::string_view fault() {
    const char* const text = std::getenv("ORRERY_TEST_FAULT");
    return text ? text : "";
}

std::vector<ValueId> encode_wrong(const Coding& at, ValueId x) {
    if (fault() == "nothing") return {};
    std::vector<ValueId> codes = encode(at, x);
    if (fault() == "flat") codes[0] = at.add("reshape", {codes[0]}, {{"shape", std::vector<int64_t>{-1}}}, {})[0];
    return codes;
}

ValueId decode_wrong(const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
    const ValueId x = decode(at, codes, shape);
    if (fault() == "type") return at.add("cast", {x}, {{"dtype", std::string("bf16")}}, {})[0];
    if (fault() != "hides") return x;
    const ValueId zero = at.add("full", {}, {{"shape", std::vector<int64_t>{}}, {"value", 0.0}}, {})[0];
    return at.add("select", {at.add("equal", {x, x}, {}, {})[0], x, zero}, {}, {})[0];
}

void add_wrong(Registry& registry) {
    Codec codec;
    codec.block = block;
    codec.bound = fault() == "bound" ? 0.001 : 1.005;
    codec.encode = encode_wrong;
    if (fault() != "lacks") codec.decode = decode_wrong;
    registry.add_codec("wrong", codec);
}

}  // namespace

ORRERY_PLUGIN("codec.wrong", "0.1", add_wrong);
