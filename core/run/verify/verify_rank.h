#pragma once
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/ranges.h"
#include "run/verify/float_distance.h"
#include "run/verify/inject.h"
#include "run/verify/oracle.h"
#include "run/verify/verify.h"
#include "run/verify/verify_gradients.h"

namespace orrery {

/// `reordered_values` of the first step and of later ones.
using ReorderedValues = std::array<std::vector<ValueId>, 2>;

/// What one rank's steps said.
struct RankReport {
    std::vector<Finding> findings;  ///< the first ones, in order
    int64_t further = 0;            ///< findings beyond those
    std::array<Compared, kinds_of_values> compared;
    std::vector<char> seen;             ///< per value: 1 compared with a replay, 2 with the oracle
    std::set<std::string> dirty_edges;  ///< communication that this rank fed with values that were wrong already
    /// By gradient or multiple of one: this step's squared distance of the blocks that this rank holds first.
    std::map<ValueId, double> gradient;
};

/// The line of the table that a value is in.
size_t kind_of(const Program& program, ValueId id, bool gradient);
/// What a value may be off by; `rounded`: by the rounding of 16-bit terms of a sum over ranks.
double tolerance_of(const Oracle& oracle, ValueId value, DType dtype, double largest, double rounded);

/// Follows one rank's step with a twin: the same stream on arenas of its own, whose values are the oracle's. Right
/// after each instruction the twin repeats it, so that what it gets is the rank's op replayed on the oracle's values
/// cut by their layouts: partial sums, sums over micro-batches, buckets and values in place included. Where a whole
/// value stands complete, the twin's is compared with the oracle's block and replaced by it; the rank's is compared
/// with the twin's. A third executor, the echo, repeats the instruction on what the rank itself has: its bits must be
/// the rank's, and become them. Ranks' twins and echoes talk over communicators of their own.
class TwinRank : public Observer {
public:
    struct Setting {
        const Plan& plan;
        int64_t rank;
        Executor& actual;
        Executor& twin;
        Executor& echo;
        const Oracle& oracle;
        const VerifyOptions& options;
        const ReorderedValues& reordered;
        const Gradients& gradients;
    };
    explicit TwinRank(const Setting& setting);

    /// One step. The first starts from the contents that sources are to hold, others from what the rank's hold.
    void step(int64_t step, const WholeContents& contents);
    const Executor& actual() const { return s_.actual; }
    RankReport& report() { return report_; }

    void before(int index) override;
    void after(int index) override;

private:
    /// What is known of bytes: whether they are wrong, and who wrote them last while they stand uncompared.
    struct Note {
        bool dirty = false;
        int pending = none;
    };
    struct Judged {
        Difference far;
        double tolerance = 0, rounded = 0;
        bool wrong = false, exact = false;
    };

    const Value& value(ValueId id) const { return s_.plan.program.value(id); }
    const Instruction& at(int index) const { return class_.stream[index]; }
    void feed(const Value& source, const Operand& place, const std::vector<std::byte>& whole);
    Ranges<Note>& notes(const Operand& operand);
    Note note_of(const Operand& operand);
    void set_note(const Operand& operand, Note note);
    bool own_kernel(const Instruction& instruction) const;
    bool unpacked(const Operand& operand) const;
    bool completes(const Instruction& instruction, const Operand& operand) const;
    bool cut(ValueId id, int64_t micro, const Tensor& local);
    Judged judge(ValueId id, const Tensor& have, const void* want, bool complete, double rounded = 0) const;
    void weigh_terms(int index);
    bool repeat(int index, size_t which);
    void follow(int index);
    void settle(int index, size_t which);
    void look(int index, size_t which);
    void add_gradient(int index, size_t which);
    void count(ValueId id, const Judged& judged, bool complete);
    Finding& find(int index, ValueId id, const Judged& judged);
    std::string edge(int index);

    Setting s_;
    const RankClass& class_;
    Injector injector_;
    AxisId micro_axis_ = none;
    int64_t step_ = 0;
    bool infected_ = false;
    std::vector<double> rounded_;  ///< of the instruction at hand, by operand
    std::string edge_;
    std::map<std::string, int64_t> sequence_;
    std::array<Ranges<Note>, 2> notes_;
    std::vector<std::byte> want_;
    std::vector<char> left_out_;  ///< of want_; empty when nothing is
    std::vector<char> updates_;   ///< per value: the optimizer reads it
    RankReport report_;
};

}  // namespace orrery
