#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/round.h"
#include "orrery/communicator.h"
#include "orrery/plan.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"
#include "run/verify/float_distance.h"
#include "run/verify/oracle.h"
#include "run/verify/verify_options.h"

namespace orrery {

/// The program to verify, with what it runs on.
struct VerifyCase {
    const Program& annotated;
    const Plan& plan;
    const Persistent& persistent;
    std::function<std::unique_ptr<Device>()> device;        ///< creates one device for each rank and for the oracle
    std::function<std::unique_ptr<Transport>()> transport;  ///< creates a transport between threads of one process
    WholeContents contents;
    std::chrono::milliseconds timeout{60'000};
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< proved collective algorithms by axis
    /// For a step of islands, by island: what `contents` is of this one. Program and plan are those of one island.
    std::vector<WholeContents> islands = {};
    AxisId islands_axis = none;  ///< axis of the plan's mesh that has them as members; none: there is one
};

/// Factor of a value's tolerance. A value may be off by `margin` times the root mean square of its movement by rounding
/// in the draws, plus as many units in the last place of its largest element. For a scalar with normally distributed
/// movement, a correct value exceeds this with the probability of |Student's t| > 10: 5.6e-4 with 4 draws, after which
/// `sure` draws decide, and 2e-11 with 32. Values of many elements with independent movements stay far below. Real
/// rounding moves f32 by a quarter of the draws.
constexpr double margin = 10;

/// A value of one rank that is wrong.
struct Finding {
    int64_t step = 0;
    int64_t rank = 0;
    int index = none;  ///< index of the instruction that made the value
    OpId op = none;
    ValueId value = none;
    int64_t micro = -1;
    Difference far;
    double tolerance = 0;
    double rounded = 0;  ///< part of the tolerance that comes from rounded 16-bit terms
    TensorType type;     ///< dtype and local shape of the value
    bool gradient = false;
    bool planned = false;  ///< whether the op also fails on the oracle's values: a bug in the plan or a kernel
    bool own = false;      ///< whether the op replayed on the rank's own values gives other bits
    bool exact = false;
    bool chosen = false;    ///< a choice that rounding does not explain, or that not all ranks with this block made
    bool infected = false;  ///< whether an input of the instruction was already wrong on this rank
    std::string replaces;   ///< the traced op, if an op of its decomposition made this output of it
    std::string edge;       ///< for communication: the name of the message
    std::vector<int64_t> members;  ///< for communication: the communicator's ranks, if all of them have a wrong value
};

/// A choice in which a rank differs from the oracle although its inputs are valid and its kernel repeats the result.
struct OtherChoice {
    Finding finding;                    ///< reported if the choice is not a tie
    int64_t element = 0;                ///< index of the choice in the whole value
    std::array<ValueId, 2> values{};    ///< the operands of the two compared elements
    std::array<int64_t, 2> elements{};  ///< their indices in the whole values
};

/// Choices of one op that rounding explains.
struct Ties {
    std::set<std::pair<int64_t, int64_t>> choices;              ///< step and index in the whole value
    double smallest = std::numeric_limits<double>::infinity();  ///< distance of two elements that changed their order
    double largest = 0;
    double worst = 0;  ///< max ratio of such a distance to its tolerance
};

constexpr size_t kinds_of_values = 4;  ///< lines of the table: forward, backward, gradients of params, update

/// One line of the report's table.
struct Compared {
    int64_t values = 0;       ///< values of the program, each counted once
    int64_t comparisons = 0;  ///< comparisons with the oracle; each rank, micro-batch and step counts
    int64_t replays = 0;      ///< comparisons of partial values with a replay, since the oracle lacks them
    int64_t elements = 0;
    int64_t left_out = 0;  ///< number of elements left out: those of params whose gradient is below its noise
    double worst = -1;     ///< max ratio of a value's distance to its tolerance
    ValueId value = none;
    int64_t rank = 0;
};

struct VerifyReport {
    std::array<Compared, kinds_of_values> compared;
    int64_t ranks = 0, steps = 0, values = 0, unseen = 0;
    std::vector<std::string> collectives;  ///< configured algorithms: "all_reduce over dp by ring"
    double gradients = -1;                 ///< max ||g - ref|| / (1e-5 ||ref|| + 1e-6 ||all gradients||) of a gradient
    ValueId worst_gradient = none;
    bool judges_gradients = false;     ///< whether gradients are judged: the program is f32 throughout
    std::vector<ValueId> unjudged;     ///< params without any place where their gradient could be compared
    std::vector<ValueId> noisy;        ///< params among `unjudged` because noise makes their gradient uncertain
    int64_t exact = 0, reordered = 0;  ///< bitwise: values compared bit by bit; values summed in another order
    std::vector<ValueId> sums;         ///< bitwise: sums in which the order of terms first changes
    std::map<std::string, Ties> ties;  ///< by op, with its place in the script
    std::vector<Finding> roots;        ///< findings that no earlier finding explains, in order
    int64_t further = 0;               ///< number of findings that follow from others
    int64_t roots_in_all = 0;

    bool passed() const;
    /// Formats the table and the verdict; `plan` is the verified plan.
    std::string text(const Plan& plan, const VerifyOptions& options) const;
};

/// Runs the steps on one device and on the mesh, with ranks as threads, and compares every value of every rank. Throws
/// Error if the run itself fails.
VerifyReport verify(const VerifyCase& verified, const VerifyOptions& options);
/// The same for the programs of a round. `programs`: by index in round.names(), without actions; at least one. Each
/// program starts from the params and states that the program before it left on the ranks. Stops at the first program
/// with a wrong value. Returns the reports of the programs that ran. Throws Error if a run fails, the mesh has more
/// than 64 ranks, or no program has what an injection names.
std::map<size_t, VerifyReport> verify(const std::map<size_t, VerifyCase>& programs, const Round& round,
                                      const VerifyOptions& options);

/// For each value, returns the sum that may change its bits compared with one device: a sum over ranks, over
/// micro-batches, or of several terms added in place. none: the same numbers are added in the same order, provided that
/// kernels sum any number of rows in the same order. From step 2 on, params depend on the sums of the first step.
std::vector<ValueId> reordered_values(const Plan& plan, int64_t step);

}  // namespace orrery
