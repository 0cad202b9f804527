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

/// The whole contents of an input, param or state before a step.
using WholeContents = std::function<std::vector<std::byte>(const Value&, int64_t step)>;

/// One device that runs the annotated program op by op on whole arrays, without plan, layouts or reuse of memory, and
/// keeps every value. It also says how far rounding may move each value: it runs the step again with every float that
/// an op makes moved by a few units in its last place, at random, and measures where that leads. Sums taken in another
/// order are such a movement; mistakes are larger.
///
/// AdamW, Lion and their like turn a gradient that is nothing but noise into a full step of either sign. Elements of a
/// param whose gradient is below what rounding moves it by are left out.
class Oracle {
public:
    /// `propagated` tells the values that propagation added (they are copies of others, or ops of their own) and which
    /// values are summed over ranks in 16 bits. All must outlive the oracle; the device's memory must be the host's.
    Oracle(const Program& annotated, const Program& propagated, const Mesh& mesh, Device& device,
           WholeContents contents, int draws);
    ~Oracle();
    Oracle(const Oracle&) = delete;

    /// Runs a step from its contents. What `whole` gave before is gone.
    void step(int64_t step);
    /// Draws rounding anew for the last step, until there are so many draws of it.
    void draw(int draws);
    int draws() const { return drawn_; }
    /// The value of the last step, row-major; nullptr when the program does not make it.
    const std::byte* whole(ValueId value) const;
    /// Root mean square over the draws of the distance by which rounding moved the whole value.
    double moved(ValueId value) const;
    /// Per element of the whole value whether it is left out; nullptr when none is.
    const char* left_out(ValueId value) const;
    /// Whether such elements went into the value so that it is not known which of its own they are.
    bool uncertain(ValueId value) const;

private:
    struct Array;
    struct Work;
    using Arrays = std::vector<std::shared_ptr<Array>>;

    void collect();
    void find_regrouped();
    bool rewritten(const Op& op) const;
    void find_narrowed();
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
    double noise_of(ValueId value) const;

    const Program& annotated_;
    const Program& propagated_;
    const Mesh& mesh_;
    Device& device_;
    WholeContents contents_;
    std::vector<Work> works_;
    Memory scratch_;
    const int draws_;  ///< of every step
    int drawn_ = 0;    ///< of this one
    int64_t step_ = 0;
    Arrays sources_, values_;
    /// Where a value of the propagated program is among values_: its own place, or one behind all others for a term of
    /// a sum that propagation grouped anew, which is another number there than in the traced program.
    std::vector<size_t> slot_;
    size_t slots_ = 0;
    std::vector<char> narrowed_;            ///< per value: behind a message in a narrower type
    std::map<size_t, size_t> sent_;         ///< by slot of a gradient: that of what such a message made of it
    std::vector<char> rounded_;             ///< per value: summed over ranks in 16 bits
    std::vector<double> squares_;           ///< per slot: of the distances of all draws
    std::map<size_t, size_t> gradient_of_;  ///< by slot of a param's next value: that of its gradient
    /// By slot, of gradients and the params' next values: the same for each element.
    std::map<size_t, std::vector<float>> each_;
    std::map<size_t, std::vector<float>> weak_;  ///< 1 for an element that is left out
    std::map<size_t, std::vector<char>> left_out_;
    std::vector<char> uncertain_;  ///< per slot
};

}  // namespace orrery
