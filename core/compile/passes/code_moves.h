#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/code_ops.h"

namespace orrery {

/// Replaces messages that move a value and add nothing to it by messages of codes (encode_edges.h): what is gathered or
/// exchanged over an axis, and what passes to another stage.
class CodeMoves : public CodeOps {
public:
    using CodeOps::CodeOps;

    /// Whether an all_gather or all_to_all sends codes.
    bool takes(const Op& moved, const Codec& codec);
    /// Whether x, which passes to another stage along the axis, is sent as codes.
    bool takes(const Op& maker, ValueId x, const Codec& codec, const std::string& axis);
    /// Appends the ops that encode, send and decode in place of an all_gather or all_to_all.
    void send(const Op& moved, const Codec& codec);
    /// Appends the ops that encode x on the stage of its maker and decode it on others. Returns what these read.
    std::vector<ValueId> pass_on(const Op& maker, ValueId x, const Codec& codec, const std::vector<int>& stages,
                                 const std::string& axis);

private:
    /// A value in parts [from, to, shards, elements]: `from` members have them and `to` get them (1: all); shards are
    /// what other axes split.
    struct Cut {
        std::optional<AxisId> over;  ///< nullopt: to another stage
        Shape wide;                  ///< the value's shape, with a dim of its own for each axis that splits it
        std::vector<int64_t> perm;   ///< of `wide`, to [from?, to?, axes.., rest..]
        std::vector<std::pair<AxisId, int>> places;  ///< other axes that split `wide`
        int before = none, after = none;             ///< dims of `wide` that `over` splits before and after
        int64_t from = 1, to = 1, shards = 1, size = 1;
        Shape parts() const { return {from, to, shards, size}; }
    };
    Cut cut(ValueId x, std::optional<AxisId> over, int into) const;
    Cut cut(const Op& moved) const;
    Layout laid_wide(const Cut& how, bool ordered, int over) const;
    Layout laid_in_parts(const Cut& how, int over) const;
    ValueId in_parts(const Op& like, ValueId x, const Cut& how);
    void put_together(const Op& like, ValueId x, const Cut& how, const std::string& axis, const Codec& codec,
                      ValueId out);
};

}  // namespace orrery
