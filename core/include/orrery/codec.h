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

/// A round in which ranks add codes of their terms x [.., m, n], arrays [.., k, columns].
struct CodeRound {
    int of = -2;  ///< the dim of x, -2 or -1, that k is
    /// x, what the codec keeps, and what earlier rounds made -> codes, linear in x.
    std::function<ValueId(const Coding& at, ValueId x, ValueId kept, const std::vector<ValueId>& made)> encode = {};
    /// The sum of all codes -> what later rounds and decode read; empty: the sum.
    std::function<ValueId(const Coding& at, ValueId sum)> make = {};
};

/// What messages over an edge carry instead of elements: ops that are traced into the program.
struct Codec {
    std::string name;
    /// A type in which codes are elements, which ranks can add; nullopt: codes are decoded before they are added.
    std::optional<DType> sums_in = {};
    int64_t block = 1;  ///< elements along a row that have codes of their own; a shorter row is not encoded
    bool near = false;  ///< whether what is decoded may stand for params and activations, too
    double bound = 1;   ///< ||x - decode(encode(x))|| <= bound ||x||, and `floor` more for each element
    double floor = 0x1p-126;
    /// x [.., n] -> codes [.., k], of the same leading dims.
    std::function<std::vector<ValueId>(const Coding& at, ValueId x)> encode = {};
    /// codes -> what they stand for, f32 of the shape [.., n].
    std::function<ValueId(const Coding& at, const std::vector<ValueId>& codes, const Shape& shape)> decode = {};
    /// Instead of `encode`: codes that ranks add, round by round. Then decode takes what the rounds made and is linear
    /// in the last: with a member's own codes there, it decodes the member's term.
    std::vector<CodeRound> rounds = {};
    /// With rounds: columns of the codes, and of what every member keeps for the next step: f32 [.., n, columns],
    /// normal numbers at first.
    int64_t columns = 0;
    /// With rounds: the state that the codec keeps, and what the rounds made -> the next state.
    std::function<ValueId(const Coding& at, ValueId kept, const std::vector<ValueId>& made)> keep = {};
    double largest = 1e30;  ///< the bound holds for elements up to this magnitude
    std::string text = {};  ///< of a script's codec: its numbers and the source of its functions

    // Set by the core for a codec of a plugin.
    std::string plugin = {}, version = {};  ///< "codec/sundial", "0.1"
    /// Loads the plugin, of which only `name` is known so far, and returns its codec. Throws Error at `asked`.
    std::function<const Codec&(const Origin& asked)> load = {};

    bool encodes() const { return encode || !rounds.empty(); }
    /// With rounds: whether the codes of a matrix [m, n] are smaller than it.
    bool shortens(int64_t m, int64_t n) const { return columns * (m + n) < m * n; }
};

}  // namespace orrery
