#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "orrery/device.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Returns the whole contents of an input, param or state before a step.
using WholeContents = std::function<std::vector<std::byte>(const Value&, int64_t step)>;

/// Runs the annotated program on one device op by op, on whole arrays, and keeps every value: no plan, no layouts, no
/// reuse of memory. It also measures how far rounding may move each value: it runs the step again with every float that
/// an op produces moved at random by a few units in its last place. Sums in another order cause movements of this size;
/// bugs cause larger ones.
///
/// In these runs an op that chooses by comparing floats (OpDef::choice) keeps the choice of the run without movements.
///
/// AdamW, Lion and similar optimizers turn a gradient that is only noise into a full step of either sign. Elements of a
/// param whose gradient is below its rounding noise are therefore left out.
class Oracle {
public:
    /// `propagated`: the program after propagation, which added values (copies of others, or results of ops of its
    /// own); it tells which values are summed over ranks in 16 bits. All arguments must outlive the oracle; the
    /// device's memory must be host memory.
    Oracle(const Program& annotated, const Program& propagated, const Mesh& mesh, Device& device,
           WholeContents contents, int draws);
    ~Oracle();
    Oracle(const Oracle&) = delete;

    /// Runs a step from what `contents` returns for it. Invalidates pointers that whole() returned.
    void step(int64_t step);
    /// Runs the last step with further random roundings until there are `draws` of them.
    void draw(int draws);
    int draws() const { return drawn_; }
    /// The value's contents in the last step, row-major; nullptr if the program does not compute it.
    const std::byte* whole(ValueId value) const;
    /// How far rounding moved the whole value: root mean square of the distance over the draws.
    double moved(ValueId value) const;
    /// The same for one element of a float operand of such an op; at least that of all elements of no larger magnitude.
    double moved(ValueId value, int64_t element) const;
    /// A flag for each element of the value, nonzero: the element is not compared; nullptr: all are.
    const char* left_out(ValueId value) const;
    /// Whether the value is a code, or a term of a sum that is sent as codes.
    bool is_code(ValueId value) const { return hidden_[value] != 0; }
    /// Whether left-out elements went into the value at unknown positions, so that it cannot be compared; nor can codes
    /// of terms, which whole arrays do not show. A sum of coded terms is the plain sum.
    bool uncertain(ValueId value) const;

private:
    struct Array;
    struct Work;
    using Arrays = std::vector<std::shared_ptr<Array>>;

    void collect();
    void find_regrouped();
    bool rewritten(const Op& op) const;
    const CodedMessage* message_of(const Op& op) const;
    void find_narrowed();
    void add_works_of_passes();
    size_t slot_read(const Op& op, size_t input);
    void order_works();
    void add_work(const Program& program, const Op& op);
    Arrays evaluate(const Arrays& sources, uint64_t seed);
    void run(const Work& work, Arrays& values, uint64_t seed);
    void add_up(const Work& work, Arrays& values);
    void take_sources(int64_t step);
    Arrays moved_sources(uint64_t seed) const;
    void measure(const Arrays& values);
    std::vector<float> below_noise(size_t gradient) const;
    void leave_out();
    void carry(const Work& work);
    std::vector<float> carried(const Work& work, const std::map<size_t, std::vector<float>>& from);
    void find_rounded_sums();
    void find_compared();
    double noise_of(ValueId value) const;

    const Program& annotated_;
    const Program& propagated_;
    const Mesh& mesh_;
    Device& device_;
    WholeContents contents_;
    std::vector<Work> works_;
    Memory scratch_;
    const int draws_;  ///< number of random roundings of each step
    int drawn_ = 0;
    int64_t step_ = 0;
    Arrays sources_, values_;
    /// Index in values_ of each value of the propagated program: normally the value's id. Terms of a sum that
    /// propagation regrouped differ from the traced program's, so they have extra indices at the end.
    std::vector<size_t> slot_;
    size_t slots_ = 0;
    std::vector<char> narrowed_;            ///< by value: whether a message in a narrower dtype has carried it
    std::map<size_t, size_t> sent_;         ///< from a gradient's index to that of its narrowed copy
    std::vector<char> rounded_;             ///< by value: whether it is summed over ranks in 16 bits
    std::vector<double> squares_;           ///< by index in values_: sum of squared distances over all draws
    std::map<size_t, size_t> gradient_of_;  ///< from the index of a param's next value to that of its gradient
    std::vector<ValueId> compared_;         ///< float operands of ops with a choice
    /// Sums of squared distances of each element of gradients, params' next values and `compared_`, by index in
    /// values_.
    std::map<size_t, std::vector<float>> each_;
    std::map<size_t, std::vector<float>> weak_;  ///< by index in values_: 1 for left-out elements
    std::map<size_t, std::vector<char>> left_out_;
    std::vector<char> hidden_;     ///< by value: whether it is a term of a sum that is sent as codes, or its codes
    std::vector<char> uncertain_;  ///< by index in values_: whether left-out elements went into the value
};

}  // namespace orrery
