#pragma once
#include <utility>
#include <vector>

#include "ir/op.h"
#include "orrery/backward.h"

/// Type inference, factor rules and samples that several families of ops share.
namespace orrery::ops {

/// The type to which operands `from` and later broadcast, as in numpy. Throws Error if sizes do not match.
Typed broadcast(const Infer& at, size_t from = 0);

Typed make_typed(DType dtype, Shape shape, std::vector<std::string> names);

/// The type of an output with the shape of attribute `shape` and unnamed dims. Throws Error for a size below 1.
Typed shaped(Infer& at, DType dtype);

/// The inferred output of an op that has the type and dim names of input 0.
std::vector<Typed> like_input(Infer& at);

/// The factor rule (dims that may be split) of an elementwise op with operands that broadcast to output 0.
FactorRule elementwise_rule(const Program& program, const Op& op);
/// The factor rule of an elementwise op that is linear in input 0, so that input 0 may be partial.
FactorRule linear_rule(const Program& program, const Op& op);
/// The factor rule of an op with scalar inputs only: every dim of the outputs may be split.
FactorRule source_rule(const Program& program, const Op& op);
/// The factor rule of an op on rows, with operands of one shape: every dim except the last may be split.
FactorRule last_dim_whole_rule(const Program& program, const Op& op);

/// `slope` times the gradient of the op's scalar output 0, in type `in` unless that gradient is a constant.
ValueId times_dy(Backward& g, ValueId slope, DType in);

int64_t no_flops(const Program& program, const Op& op);
int64_t input_flops(const Program& program, const Op& op);  ///< 1 per element of input 0
int64_t one_flop(const Program& program, const Op& op);     ///< 1 per element of output 0
int64_t some_flops(const Program& program, const Op& op);   ///< 10 per element of output 0

inline bool is_f8(DType type) { return type == DType::f8e4m3 || type == DType::f8e5m2; }

inline const Shape& shape_of(const Program& program, ValueId id) { return program.value(id).type.shape; }
inline int rank_of(const Program& program, ValueId id) { return static_cast<int>(shape_of(program, id).size()); }

inline TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }
inline TensorType i32(Shape shape) { return {DType::i32, std::move(shape)}; }
inline TensorType u32(Shape shape) { return {DType::u32, std::move(shape)}; }
inline TensorType u8(Shape shape) { return {DType::u8, std::move(shape)}; }
inline TensorType i8(Shape shape) { return {DType::i8, std::move(shape)}; }
using Samples = std::vector<OpSample>;
using Ints = std::vector<int64_t>;

inline AttributeDef flag(std::string_view name) { return {name, AttributeDef::Kind::flag}; }
inline AttributeDef integer(std::string_view name, std::optional<Attribute> fallback = {}) {
    return {name, AttributeDef::Kind::integer, false, std::move(fallback)};
}
inline AttributeDef number(std::string_view name, std::optional<Attribute> fallback = {}) {
    return {name, AttributeDef::Kind::number, false, std::move(fallback)};
}
inline AttributeDef text(std::string_view name, std::vector<std::string_view> choices = {},
                         std::optional<Attribute> fallback = {}) {
    return {name, AttributeDef::Kind::text, false, std::move(fallback), std::move(choices)};
}
inline AttributeDef integers(std::string_view name) { return {name, AttributeDef::Kind::integers}; }
inline AttributeDef required(AttributeDef def) {
    def.required = true;
    return def;
}

}  // namespace orrery::ops
