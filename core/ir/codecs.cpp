#include "ir/codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "base/suggest.h"
#include "base/text.h"

namespace orrery {

namespace {

Codec none_at_all() { return {.name = "none", .near = true, .bound = 0}; }

Codec cast_to(DType type) {
    const auto cast = [](const Coding& at, ValueId x, DType to) {
        return at.add("cast", {x}, {{"dtype", std::string(name_of(to))}}, {});
    };
    return {.name = std::string(name_of(type)),
            .sums_in = type,
            .near = true,
            .bound = type == DType::bf16 ? 0x1p-8 : 0x1p-11,
            .floor = type == DType::bf16 ? 0x1p-126 : 0x1p-25,
            .encode = [cast, type](const Coding& at, ValueId x) { return cast(at, x, type); },
            .decode = [cast](const Coding& at, const std::vector<ValueId>& codes,
                             const Shape&) { return cast(at, codes[0], DType::f32)[0]; },
            .largest = type == DType::f16 ? 65504 : 1e30};
}

/// Codes with a scale for each block. Fewer than 8 bits are packed.
Codec quantized(std::string name, DType type, int64_t bits, int64_t block, double bound, bool near = true) {
    Attributes how{{"block", block}};
    if (bits < 8) how.set("bits", bits);
    const auto encode = [how, type, bits](const Coding& at, ValueId x) {
        Attributes attributes = how;
        attributes.set("dtype", std::string(name_of(type)));
        std::vector<ValueId> codes = at.add("quantize", {x}, attributes, {});
        if (bits < 8) codes[0] = at.add("pack", {codes[0]}, {{"bits", bits}}, {})[0];
        return codes;
    };
    const auto decode = [how, bits](const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
        ValueId q = codes[0];
        if (bits < 8) q = at.add("unpack", {q}, {{"bits", bits}, {"size", shape.back()}}, {})[0];
        return at.add("dequantize", {q, codes[1]}, how, {})[0];
    };
    return {.name = std::move(name), .block = block, .near = near, .bound = bound, .encode = encode, .decode = decode};
}

constexpr int64_t top_block = 4096;

/// The k of each block that are largest in magnitude, f32, with their places in it, i32.
Codec largest(std::string name, int64_t k) {
    const auto encode = [k](const Coding& at, ValueId x) {
        return at.add("block_top_k", {x}, {{"k", k}, {"block", top_block}}, {});
    };
    const auto decode = [](const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
        const int64_t n = shape.back(), blocks = (n + top_block - 1) / top_block, last = std::ssize(shape) - 1;
        const ValueId wide = at.add("scatter_add", codes, {{"dim", last + 1}, {"size", top_block}}, {})[0];
        Shape rows = shape;
        rows.back() = blocks * top_block;
        const ValueId padded = at.add("reshape", {wide}, {{"shape", rows}}, {})[0];
        if (rows == shape) return padded;
        return at.add("slice", {padded}, {{"dim", last}, {"start", int64_t{0}}, {"size", n}}, {})[0];
    };
    return {.name = std::move(name), .block = top_block, .bound = 1, .encode = encode, .decode = decode};
}

/// `outer` with the values that it keeps as codes of `inner`. Its places stay as they are, the last of the codes. What
/// is left out and what `inner` changes are different elements, so the squares of both errors add up to at most the
/// larger bound's.
Codec inside(const Codec& outer, const Codec& inner) {
    const auto encode = [outer, inner](const Coding& at, ValueId x) {
        const std::vector<ValueId> kept = outer.encode(at, x);
        std::vector<ValueId> codes = inner.encode(at, kept[0]);
        codes.push_back(kept[1]);
        return codes;
    };
    const auto decode = [outer, inner](const Coding& at, const std::vector<ValueId>& codes, const Shape& shape) {
        const ValueId places = codes.back();
        const Shape kept = at.program.value(places).type.shape;
        const ValueId values = inner.decode(at, {codes.begin(), codes.end() - 1}, kept);
        return outer.decode(at, {values, places}, shape);
    };
    return {.name = fmt::format("{}+{}", outer.name, inner.name),
            .block = outer.block,
            .bound = std::max(outer.bound, inner.bound),
            .floor = std::max(outer.floor, inner.floor),
            .encode = encode,
            .decode = decode,
            .largest = std::min(outer.largest, inner.largest)};
}

/// Of "top_k/64+int2" the codec int2; nullptr: the values that top_k keeps are sent as they are.
const Codec* values_codec(std::string_view name, const Origin& asked) {
    const size_t cut = name.find('+');
    if (cut == std::string_view::npos) return nullptr;
    std::vector<std::string> names;
    for (const Codec& codec : codecs()) {
        if (!codec.encode) continue;
        if (codec.name == name.substr(cut + 1)) return &codec;
        names.push_back(codec.name);
    }
    throw Error(asked, fmt::format("codec {}: the values that top_k keeps cannot be sent as {}; use {}", quote(name),
                                   quote(name.substr(cut + 1)), fmt::join(names, ", ")));
}

/// A matrix as the product of two factors (Vogels et al. 2019, PowerSGD): one step of power iteration from the last
/// result, q. P = sum x q, with orthonormal columns p; Q = sum x^T p; x is about p Q^T, the projection of x on p.
/// The next q has the directions of Q. Where they are fewer than the rank, since x was of a lower rank, old columns
/// of q stay: a zero column would be one for good.
Codec low_rank(std::string name, int64_t rank) {
    const auto one = [](std::string_view kind, const Coding& at, std::vector<ValueId> inputs, Attributes how = {}) {
        return at.add(kind, std::move(inputs), std::move(how), {})[0];
    };
    const CodeRound left{.of = -2,
                         .encode =
                             [one](const Coding& at, ValueId x, ValueId kept, const std::vector<ValueId>&) {
                                 return one("matmul", at, {x, kept});
                             },
                         .make = [one](const Coding& at, ValueId sum) { return one("orthogonalize", at, {sum}); }};
    const CodeRound right{.of = -1,
                          .encode = [one](const Coding& at, ValueId x, ValueId, const std::vector<ValueId>& made) {
                              return one("matmul", at, {x, made[0]}, {{"trans_a", true}});
                          }};
    const auto decode = [one](const Coding& at, const std::vector<ValueId>& codes, const Shape&) {
        return one("matmul", at, codes, {{"trans_b", true}});
    };
    const auto keep = [one](const Coding& at, ValueId kept, const std::vector<ValueId>& made) {
        const ValueId next = one("orthogonalize", at, {made[1]});
        const int64_t rows = std::ssize(at.program.value(next).type.shape) - 2;
        const ValueId alive =
            one("sum", at, {one("mul", at, {next, next})}, {{"dims", std::vector{rows}}, {"keep", true}});
        return one("add", at, {next, one("sub", at, {kept, one("mul", at, {kept, alive})})});
    };
    return {.name = std::move(name),
            .bound = 1,
            .decode = decode,
            .rounds = {left, right},
            .columns = rank,
            .keep = keep,
            .largest = 1e15};
}

/// Codecs with a number in their names, as "top_k/100", made when they are first named.
struct Numbered {
    std::string_view name, meaning, example;
    int64_t least, most;
    Codec (*make)(std::string name, int64_t number);
    bool holds = false;  ///< whether "+C" after the number names a codec of the values that it keeps
};

constexpr Numbered with_number[] = {
    {"top_k/", "in top_k/M, which sends about 1 of M elements, M", "top_k/100", 2, top_block,
     [](std::string name, int64_t of) { return largest(std::move(name), (top_block + of - 1) / of); }, true},
    {"powersgd/", "in powersgd/R, which sends factors of rank R, R", "powersgd/4", 1, 256, low_rank},
};

const Codec& numbered_codec(const Numbered& codec, std::string_view name, const Origin& asked) {
    const std::string_view own = codec.holds ? name.substr(0, name.find('+')) : name;
    const Codec* const inner = codec.holds ? values_codec(name, asked) : nullptr;
    int64_t number = 0;
    const char* const end = own.data() + own.size();
    const auto read = std::from_chars(own.data() + codec.name.size(), end, number);
    if (read.ptr != end || own.size() == codec.name.size() || own[codec.name.size()] == '0' || number < codec.least ||
        number > codec.most)
        throw Error(asked, fmt::format("codec {}: {} must be from {} to {}, as in {}", quote(name), codec.meaning,
                                       codec.least, codec.most, codec.example));
    static std::mutex mutex;
    static std::map<std::string, Codec, std::less<>> made;
    const std::lock_guard lock(mutex);
    const auto known = made.find(name);
    if (known != made.end()) return known->second;
    const Codec plain = codec.make(std::string(own), number);
    return made.emplace(name, inner ? inside(plain, *inner) : plain).first->second;
}

}  // namespace

const std::vector<Codec>& codecs() {
    // kernels/codes.h: an element of int8 is off by at most 0.501 s, s <= (1 + 2^-7) t / 127, where t is the block's
    // largest magnitude, at most the norm of the block. Of int4 it is off by at most 1.005 of itself: what is below
    // half a step becomes 0. Of int2 each element is off by at most s / 2, s <= (1 + 2^-7) t / 2: a block of 64
    // by 2.016 t, where all but one element are 0.
    static const std::vector<Codec> all{
        none_at_all(),
        cast_to(DType::bf16),
        cast_to(DType::f16),
        quantized("f8e4m3", DType::f8e4m3, 8, 256, 0.0626),
        quantized("f8e5m2", DType::f8e5m2, 8, 256, 0.1251),
        quantized("int8", DType::i8, 8, 256, 0.0637),
        quantized("int4", DType::i8, 4, 256, 1.005),
        quantized("int2", DType::i8, 2, 64, 2.016, false),
        quantized("sign", DType::i8, 1, 2048, 1.001, false),
    };
    return all;
}

const Codec& codec_named(const Program& program, std::string_view name, const Origin& asked) {
    std::vector<std::string> names;
    for (const auto& own : program.codecs) {
        if (own->name == name) return own->load ? own->load(asked) : *own;
        names.push_back(own->name);
    }
    for (const Codec& codec : codecs()) {
        if (codec.name == name) return codec;
        names.push_back(codec.name);
    }
    const size_t cut = name.find('+');
    for (const Numbered& codec : with_number) {
        if (name.starts_with(codec.name) && (codec.holds || cut == name.npos))
            return numbered_codec(codec, name, asked);
        names.emplace_back(codec.example);
    }
    if (cut < name.size())
        throw Error(asked, fmt::format("codec {}: {} keeps no values that another codec could encode; use top_k, as in "
                                       "top_k/64+{}",
                                       quote(name), name.substr(0, cut), name.substr(cut + 1)));
    throw Error(asked, fmt::format("there is no codec {}{}", quote(name), choices("known", std::string(name), names)));
}

std::string problem_of(const Codec& codec) {
    if (!codec.encodes() || !codec.decode)
        return fmt::format("the codec {} lacks {}", codec.name, codec.encodes() ? "decode" : "encode");
    const auto wrong = [](const CodeRound& round) { return !round.encode || (round.of != -1 && round.of != -2); };
    if (!codec.rounds.empty() && (codec.columns < 1 || !codec.keep || codec.near || codec.sums_in || codec.encode ||
                                  std::ranges::any_of(codec.rounds, wrong)))
        return fmt::format(
            "the codec {} has rounds: these need columns, keep and an encode each, with `of` -1 or -2, and "
            "the codec no encode of its own, no sums_in and not near",
            codec.name);
    if (!(codec.bound >= 0 && codec.bound < 1e9))
        return fmt::format("the codec {} has the bound {}; give the largest ||x - decode(encode(x))|| / ||x||",
                           codec.name, codec.bound);
    if (codec.block < 1) return fmt::format("the codec {} has blocks of {} elements", codec.name, codec.block);
    if (std::ranges::any_of(codecs(), [&](const Codec& own) { return own.name == codec.name; }))
        return fmt::format("the codec {} is one of the library; rename the plugin", codec.name);
    return "";
}

void require_near(const Program& program, const Codec& codec, std::string_view what, std::string_view remedy,
                  const Origin& asked) {
    if (codec.near) return;
    std::vector<std::string> names;
    for (const Codec& other : codecs())
        if (other.near) names.push_back(other.name);
    for (const auto& own : program.codecs)
        if (own->near || own->load) names.push_back(own->name);
    throw Error(asked, fmt::format("{} cannot be sent as {}: it leaves out too much of a value that is sent only "
                                   "once; use {}{}",
                                   what, codec.name, fmt::join(names, ", "), remedy));
}

}  // namespace orrery
