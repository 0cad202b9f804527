#pragma once
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layout/shards.h"
#include "plan/ranges.h"
#include "run/verify/encodings.h"
#include "run/verify/float_distance.h"
#include "run/verify/inject.h"
#include "run/verify/oracle.h"
#include "run/verify/verify.h"
#include "run/verify/verify_gradients.h"

namespace orrery {

/// Results of `reordered_values` for the first step and for later steps.
using ReorderedValues = std::array<std::vector<ValueId>, 2>;

/// What was found on one rank in all steps.
struct RankReport {
    std::vector<Finding> findings;  ///< the first findings, in the order of instructions
    int64_t further = 0;
    std::vector<OtherChoice> choices;  ///< those of this step that differ from the oracle's
    std::array<Compared, kinds_of_values> compared;
    std::vector<char> seen;             ///< by value: 1 compared with a replay only, 2 with the oracle
    std::set<std::string> dirty_edges;  ///< names of messages in which this rank sent wrong values
    /// By gradient or its multiple: squared distance in this step, over the blocks that this rank is the first to hold.
    std::map<ValueId, double> gradient;
};

/// Index of a value's line in the report's table (forward, backward, gradients, update).
size_t kind_of(const Program& program, ValueId id, bool gradient);
/// Max distance of a correct value; `rounded`: part due to the rounding of 16-bit terms of a sum over ranks.
double tolerance_of(const Oracle& oracle, ValueId value, DType dtype, double largest, double rounded);

/// Follows one rank's step with two more executors, twin and echo, on their own arenas and communicators. Both repeat
/// each instruction after the rank:
///
///                 its inputs          compared with                then takes over
///     twin        oracle's blocks     oracle's block, if whole     oracle's block
///     echo        rank's values       rank's output, bit by bit    rank's output
///
/// The twin thus replays the rank's op on correct values; that also covers partial sums, sums over micro-batches,
/// buckets and values in place, which the oracle does not have. The rank's own value is compared with the twin's.
///
/// Where an op chooses by comparing floats (OpDef::choice) and the rank chooses otherwise than the oracle, because it
/// has rounded them otherwise, the rank takes over the oracle's choice. So what follows remains comparable. For the
/// same reason it takes over the oracle's sum where the sum that its messages carried as codes is within the codec's
/// bound.
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
        Encodings& encodings;
        AxisId islands = none;  ///< axis of islands, each of which has all gradients
    };
    explicit TwinRank(const Setting& setting);

    /// Runs one step. A `first` step starts from `contents`; others continue from the rank's own params and states,
    /// and take only inputs from `contents`.
    void step(int64_t step, bool first, const WholeContents& contents);
    const Executor& actual() const { return s_.actual; }
    RankReport& report() { return report_; }

    void before(int index) override;
    void after(int index) override;

private:
    /// State of a byte range: whether its contents are wrong, and the last instruction that wrote it, if not compared
    /// yet.
    struct Note {
        bool dirty = false;
        int pending = none;
    };
    struct Judged {
        Difference far;
        double tolerance = 0, rounded = 0;
        bool wrong = false, exact = false;
    };

    /// What a decoded value was encoded from.
    struct Encoded {
        ValueId value = none;
        ValueId decoded = none;
        double bound = 0, floor = 0;  ///< of the codec
        bool terms = false;           ///< whether rows of the first dim are terms of a sum
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
    std::optional<Block> held(ValueId id, int64_t micro) const;
    std::optional<Block> block(ValueId id, int64_t micro) const;
    int64_t whole_index(ValueId id, int64_t micro, int64_t element) const;
    bool cut(ValueId id, int64_t micro, const Tensor& local);
    Judged judge(ValueId id, const Tensor& have, const void* want, bool complete, double rounded = 0) const;
    void weigh_terms(int index);
    double coded_bound(ValueId id, int64_t micro, bool twin) const;
    void find_coded();
    Encodings::Key key_of(ValueId id, int64_t micro, bool twin) const;
    void keep_encoded(int index, size_t which);
    void weigh_decoded(int index, size_t which);
    ValueId stored_as(ValueId id) const;
    ValueId error_in(const CodedMessage& coded) const;
    bool repeat(int index, size_t which);
    void follow(int index);
    void settle(int index, size_t which);
    void take_choice(int index, size_t which);
    void look(int index, size_t which);
    void add_gradient(int index, size_t which);
    void count(ValueId id, const Judged& judged, bool complete);
    Finding finding_of(int index, ValueId id, const Judged& judged) const;
    Finding& find(int index, ValueId id, const Judged& judged);
    std::string edge(int index);

    Setting s_;
    const RankClass& class_;
    Injector injector_;
    AxisId micro_axis_ = none;
    int64_t step_ = 0;
    bool infected_ = false;
    std::vector<double> rounded_;  ///< part of the tolerance due to rounding, by operand of the current instruction
    std::string edge_;
    std::map<std::string, int64_t> sequence_;
    std::array<Ranges<Note>, 2> notes_;
    std::vector<std::byte> want_;
    std::vector<char> left_out_;  ///< for each element of want_: whether it is left out; empty: none is
    std::vector<char> updates_;   ///< by value: whether the optimizer reads it
    std::vector<int> coded_;  ///< by value: index of the coded sum that it is, in the same or another shape; or none
    std::vector<double> bounds_;          ///< of codecs, by message
    std::vector<char> encoded_;           ///< by value: whether it is what members encode
    std::map<ValueId, Encoded> decoded_;  ///< by value that was decoded, or that it is in another shape
    RankReport report_;
};

}  // namespace orrery
