// An op as kernels see it: the ops of core/ir/README.md, with types of this folder, which does not depend on core.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/types.h"

namespace orrery::kernels::rules {

/// Thrown for a spec that cannot run, with the reason.
class Refused : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Type and sizes of a dense row-major operand.
struct Operand {
    Type type = Type::f32;
    std::vector<std::int64_t> shape;
    bool moved_only = false;  ///< kernels only move it; i64 and u16 are represented by a type of their width

    std::int64_t count() const;
    std::int64_t rows() const;  ///< product of all sizes but the last
    std::int64_t cols() const;  ///< the last size, 1 for a scalar
};

using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

/// An op with its constants and operand types.
struct Spec {
    std::string op;
    std::vector<std::pair<std::string, Attribute>> attributes;  ///< sorted by name
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;

    // The fallback is returned for an absent attribute; one of another type throws Refused.
    bool flag(std::string_view name, bool fallback = false) const;
    std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const;
    double number(std::string_view name, double fallback = 0) const;
    std::string text(std::string_view name, std::string_view fallback = "") const;
    std::vector<std::int64_t> integers(std::string_view name) const;

    /// "layernorm(bf16[8,512], ...) -> (...)": for messages and as the key of caches, attributes included.
    std::string text() const;
};

}  // namespace orrery::kernels::rules
