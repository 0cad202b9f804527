#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"
#include "orrery/program.h"

namespace orrery {

/// Reads an option of a strategy that names one axis, "dp", or a list of axes, {"dp", "cp"}. Throws Error for a list
/// that is empty or names an axis twice.
ORRERY_API std::vector<std::string> read_axes(Config& options, std::string_view key, std::string_view fallback);

/// Splits the dim `batch` of all inputs over the axis, for data parallelism. It marks nothing when an earlier strategy
/// has split another dim of an input over the axis, as `context` does with `seq`: each rank then has a part of the
/// batch already. Linear in the number of marks.
ORRERY_API void split_batch(Program& program, std::string_view axis, const Origin& origin);

/// How a data-parallel strategy sends gradients.
struct ORRERY_API GradientMessages {
    int64_t bucket_mib = 25;     ///< max size of a message that joins gradients; 0: each gradient alone
    std::string codec = "none";  ///< as what messages carry them (orrery/codec.h); by axis: "rep=int4,dp=bf16"
    bool feedback = false;       ///< whether each member adds what encoding has left out to its next term
    std::string strategy = {};   ///< name for messages, as "zero"

    /// Reads the options `bucket_mib`, `codec`, `feedback` and `reduce` ("bf16": the codec) of a strategy. Throws Error
    /// for other values.
    static GradientMessages read(Config& options, std::string_view strategy);
    /// Splits the batch over the axes (`split_batch`), and marks how gradients are sent over them. An axis of size 1 or
    /// that the mesh lacks changes nothing. An axis that `codec` leaves out where it names others has none, and
    /// feedback is then for codecs that are decoded before the sum. Throws Error if `codec` names an axis that is not
    /// in `axes`, and for feedback where all are of one rank.
    void mark(Program& program, const Mesh& mesh, const std::vector<std::string>& axes, const Origin& origin) const;
};

}  // namespace orrery
