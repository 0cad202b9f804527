#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "orrery/plan.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"
#include "run/verify/float_distance.h"
#include "run/verify/oracle.h"
#include "run/verify/verify_options.h"

namespace orrery {

/// What is verified and with what.
struct VerifyCase {
    const Program& annotated;
    const Plan& plan;
    const Persistent& persistent;
    std::function<std::unique_ptr<Device>()> device;        ///< one for each rank and the oracle
    std::function<std::unique_ptr<Transport>()> transport;  ///< joins threads of one process
    WholeContents contents;
    std::chrono::milliseconds timeout{60'000};
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< by axis, as the run makes them
};

/// How far off a value may be: `margin` times what rounding moves it by, the root mean square of the draws, and as many
/// units in the last place of its largest element. A scalar that rounding moves as far as in the draws, normally
/// distributed, is farther off with the probability of |Student's t| > 10: 5.6e-4 with 4 draws, then `sure` decide, and
/// with 32 it is 2e-11. Values of many elements whose movements are independent stay far below. Real rounding moves f32
/// by a quarter of the draws.
constexpr double margin = 10;

/// A value of one rank that is not what it should be.
struct Finding {
    int64_t step = 0;
    int64_t rank = 0;
    int index = none;  ///< instruction that made it
    OpId op = none;
    ValueId value = none;
    int64_t micro = -1;
    Difference far;
    double tolerance = 0;
    double rounded = 0;            ///< part of the tolerance: of 16-bit terms
    TensorType type;               ///< local
    bool gradient = false;         ///< of a param
    bool planned = false;          ///< replayed on the oracle's values, the op differs too: layout, lowering or kernel
    bool own = false;              ///< replayed on the rank's own values, the op gives other bits
    bool exact = false;            ///< compared bit by bit
    bool infected = false;         ///< what this rank put in was wrong already
    std::string edge;              ///< communication: which message
    std::vector<int64_t> members;  ///< communication: the ranks of the communicator, when all hold it wrong
};

constexpr size_t kinds_of_values = 4;  ///< forward, backward, gradients of params, update

/// One line of the table.
struct Compared {
    int64_t values = 0;       ///< of the program, each once
    int64_t comparisons = 0;  ///< with the oracle; by rank, micro-batch and step
    int64_t replays = 0;      ///< of partial values, with the replay alone
    int64_t elements = 0;
    int64_t left_out = 0;  ///< of those: params whose gradient is below its noise
    double worst = -1;     ///< largest distance as a part of its tolerance
    ValueId value = none;
    int64_t rank = 0;
};

struct VerifyReport {
    std::array<Compared, kinds_of_values> compared;
    int64_t ranks = 0, steps = 0, values = 0, unseen = 0;
    std::vector<std::string> collectives;  ///< "all_reduce over dp by ring": algorithms that are not the transport's
    double gradients = -1;  ///< ||g - ref|| as a part of 1e-5 ||ref|| + 1e-6 ||all gradients||; the worst
    ValueId worst_gradient = none;
    bool judges_gradients = false;     ///< f32 throughout
    std::vector<ValueId> unjudged;     ///< params whose gradient could be compared nowhere
    std::vector<ValueId> noisy;        ///< those of them whose gradient noise on one device leaves uncertain
    int64_t exact = 0, reordered = 0;  ///< bitwise: values compared bit by bit, and those exempt
    std::vector<ValueId> sums;         ///< bitwise: where the order of a sum first changes
    std::vector<Finding> roots;        ///< what went wrong by itself, the first one first
    int64_t further = 0;               ///< findings that follow from those
    int64_t roots_in_all = 0;

    bool passed() const;
    /// The table and the verdict; plan: the one that was verified.
    std::string text(const Plan& plan, const VerifyOptions& options) const;
};

/// Runs the steps on one device and on the mesh, ranks as threads, and compares every value of every rank. Throws Error
/// when the run itself fails.
VerifyReport verify(const VerifyCase& verified, const VerifyOptions& options);

/// For each value the sum because of which its bits may differ from one device's: over ranks, over micro-batches, or of
/// several terms added in place. none where the same numbers are added in the same order, as far as kernels sum rows of
/// any number alike. From step 2 on the params are behind the first step's sums.
std::vector<ValueId> reordered_values(const Plan& plan, int64_t step);

}  // namespace orrery
