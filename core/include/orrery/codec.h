#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/op.h"

namespace orrery {

/// Where a codec adds its ops.
struct Coding {
    const Program& program;
    const Mesh& mesh;
    const AddPart& add;
};

/// What messages over an edge carry instead of elements: ops that are traced into the program.
struct Codec {
    std::string name;
    /// A type in which codes are elements, which ranks can add; nullopt: codes are decoded before they are added.
    std::optional<DType> sums_in = {};
    int64_t block = 1;  ///< elements along a row that have codes of their own; a shorter row is not encoded
    bool near = false;  ///< whether what is decoded may stand for params and activations, too
    double bound = 1;   ///< ||x - decode(encode(x))|| <= bound ||x||, and 2^-126 more for each element
    /// x [.., n] -> codes [.., k], of the same leading dims.
    std::function<std::vector<ValueId>(const Coding& at, ValueId x)> encode = {};
    /// codes -> what they stand for, f32 of the shape [.., n].
    std::function<ValueId(const Coding& at, const std::vector<ValueId>& codes, const Shape& shape)> decode = {};
    double largest = 1e30;  ///< magnitude of elements up to which the bound holds

    // Set by the core for a codec of a plugin.
    std::string plugin = {}, version = {};  ///< "codec/sundial", "0.1"
    /// Loads the plugin, of which only `name` is known so far, and returns its codec. Throws Error at `asked`.
    std::function<const Codec&(const Origin& asked)> load = {};
};

}  // namespace orrery
