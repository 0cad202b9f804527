#pragma once
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/ranges.h"
#include "run/inject.h"
#include "run/numbers.h"
#include "run/oracle.h"
#include "run/verify.h"

namespace orrery {

/// `reordered_values` of the first step and of later ones.
using ReorderedValues = std::array<std::vector<ValueId>, 2>;

/// What one rank's steps said.
struct RankReport {
    std::vector<Finding> findings;  ///< the first ones, in order
    int64_t further = 0;            ///< findings beyond those
    std::array<Compared, kinds_of_values> compared;
    std::vector<char> seen;              ///< per value: 1 compared with a replay, 2 with the oracle
    std::set<std::string> dirty_edges;   ///< communication that this rank fed with values that were wrong already
    std::map<ValueId, double> gradient;  ///< this step's squared distance of the blocks that this rank holds first
};

/// Follows one rank's step with a twin: the same stream on arenas of its own, whose values are the oracle's. Right
/// after each instruction the twin repeats it, so that what it gets is the rank's op replayed on the oracle's values
/// cut by their layouts: partial sums, sums over micro-batches, buckets and values in place included. Where a whole
/// value stands complete, the twin's is compared with the oracle's block and replaced by it; the rank's is compared
/// with the twin's. Ranks' twins talk over communicators of their own.
class TwinRank : public Observer {
public:
    struct Setting {
        const Plan& plan;
        int64_t rank;
        Executor& actual;
        Executor& twin;
        const Oracle& oracle;
        const VerifyOptions& options;
        const ReorderedValues& reordered;
    };
    explicit TwinRank(const Setting& setting);

    /// One step from the contents that the rank's sources are to hold.
    void step(int64_t step, const WholeContents& contents);
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
        double tolerance = 0;
        bool wrong = false;
    };

    const Value& value(ValueId id) const { return s_.plan.program.value(id); }
    const Instruction& at(int index) const { return class_.stream[static_cast<size_t>(index)]; }
    void feed(const Value& source, const Operand& place, const std::vector<std::byte>& whole);
    Ranges<Note>& notes(const Operand& operand);
    Note note_of(const Operand& operand);
    void set_note(const Operand& operand, Note note);
    bool own_kernel(const Instruction& instruction) const;
    bool completes(const Instruction& instruction, const Operand& operand) const;
    bool cut(ValueId id, int64_t micro, const Tensor& local);
    Judged judge(ValueId id, const Tensor& have, const void* want, bool complete) const;
    void settle(int index, size_t which);
    void look(int index, size_t which);
    void add_gradient(int index, size_t which);
    bool partial_over_ranks(const Layout& layout) const;
    void count(ValueId id, const Judged& judged, bool complete);
    void find(int index, ValueId id, const Judged& judged, bool planned, bool infected);
    std::string edge(int index);

    Setting s_;
    const RankClass& class_;
    Injector injector_;
    AxisId micro_axis_ = none;
    int64_t step_ = 0;
    bool infected_ = false;
    std::string edge_;
    std::map<std::string, int64_t> sequence_;
    std::array<Ranges<Note>, 2> notes_;
    std::vector<std::byte> want_;
    std::vector<ValueId> gradient_;  ///< per value: the gradient that is whole in it, or none
    RankReport report_;
};

}  // namespace orrery
