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

/// Writes the tokens and targets of a row; both have as many places as the program has positions.
using FillRow = std::function<void(int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets)>;

/// A sum over predicted tokens, and how many.
struct RowSum {
    double nats = 0, count = 0;
};

/// Throws Error at the script's line where rows of tokens and targets cannot be scored by this program's loss: it has
/// other inputs, or gives no count.
void require_scorable(const Program& program, bool mean);

/// Rows through the programs of a session that evaluate, whatever their batch, length and mesh. Collective.
class RowScores {
public:
    explicit RowScores(Session& session);
    ~RowScores();
    /// Rows [first, first + batch of the program). `predicted`: how many targets they have that count. Throws Error
    /// where the loss has counted others.
    RowSum score(const CompiledProgram& program, int64_t first, const FillRow& fill, int64_t predicted);

private:
    struct Call;
    Call& call_of(const CompiledProgram& program);

    Session& session_;
    std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace orrery
