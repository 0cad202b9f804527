#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/ids.h"
#include "run/host_side.h"
#include "run/session.h"

namespace orrery {

/// Writes the tokens and targets of row number `row`. Both spans have the program's sequence length.
using FillRow = std::function<void(int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets)>;

/// The negative log-likelihood of predicted tokens, summed, and the number of these tokens.
struct RowSum {
    double nats = 0, count = 0;
};

/// A row of tokens that is one document, as a program's inputs hold it: arrays of as many i32 as the row has positions.
class DocumentRow {
public:
    explicit DocumentRow(int64_t positions);
    /// Whether an input is an array of such rows: i32 [batch, seq] named tokens, targets, documents (0 everywhere),
    /// positions or places (both count from 0).
    static bool fills(const Value& input);
    /// The array for an input that the row fills.
    const std::vector<int32_t>& array(const Value& input) const;

    std::vector<int32_t> tokens, targets;  ///< all 0 at first

private:
    std::vector<int32_t> documents_, places_;
};

/// Throws Error at the script's line if the program's loss cannot score rows of tokens and targets: the program has
/// other inputs, or (`mean`) its loss is a mean without a count.
void require_scorable(const Program& program, bool mean);

/// Scores rows of tokens with a session's evaluation programs, which may have any batch, length and mesh. Collective.
class RowScores {
public:
    explicit RowScores(Session& session);
    ~RowScores();
    /// Scores the rows [first, first + batch of the program). `predicted`: number of targets in them that are not -1.
    /// Blocks. Throws Error if the loss counted another number of targets.
    RowSum score(const CompiledProgram& program, int64_t first, const FillRow& fill, int64_t predicted);

private:
    struct Call;
    Call& call_of(const CompiledProgram& program);

    Session& session_;
    std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace orrery
