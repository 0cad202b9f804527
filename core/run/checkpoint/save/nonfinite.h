#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/tensor.h"

namespace orrery {

/// Elements that are infinite or NaN, or, with `usable`, so large (2^64 and more) that no model can go on from
/// them: f32 overflows in the first sum of squares. 0 for integers. The tensor is host-readable.
int64_t count_diverged(const Tensor& tensor, bool usable);

/// Tells from the next step's loss whether a state that was saved is one to resume from: the loss must be finite, and
/// at most `factor` times the median of the losses before it. One loss alone says nothing, as batches differ.
class LossJudge {
public:
    static constexpr size_t window = 64;  ///< losses that the median is taken of
    static constexpr size_t least = 8;    ///< with fewer only a loss that is not finite marks

    /// After so many losses in a row that are above all it was near to, a run has not come back: it has diverged,
    /// whatever it came back from before.
    static constexpr int64_t lasting = 2 * least;

    static constexpr double usual_factor = 1000;

    /// 0: only a loss that is not finite marks.
    explicit LossJudge(double factor = usual_factor) : factor_(factor) {}

    /// The step was saved: the next one's loss judges it.
    void saved(int64_t step) { step_ = step; }
    int64_t step() const { return step_; }
    /// To be called with each step's loss. Why the step saved before it is suspect; "" when it is not, or none was.
    std::string judge(int64_t now, double now_loss);

    /// What a checkpoint keeps of it, so that a resumed run judges the same.
    struct Kept {
        std::vector<double> losses = {};  ///< the last ones that are finite and above 0, the oldest first
        double highest = 0;               ///< median that they have had; 0: there were too few of them
        double pending = 0;               ///< the highest of those from which the run has not come back; 0: none
        int64_t high = 0;                 ///< how many of those in a row came last, at most `lasting`
    };
    Kept kept() const {
        return {{losses_.begin(), losses_.begin() + static_cast<int64_t>(count_)}, highest_, pending_, high_};
    }
    /// Of a run that resumes from `step`. Numbers that no run leaves there are left out.
    void resume(int64_t step, const Kept& kept);

private:
    double median() const;
    std::string suspicion(int64_t now, double now_loss) const;
    bool came_back(double loss, double median) const;
    void add(double loss);
    void push(double loss);

    double factor_;
    int64_t step_ = -1;  ///< saved or resumed last, until the next one is done; -1: none
    std::array<double, window> losses_{};
    size_t count_ = 0;
    double highest_ = 0, pending_ = 0;
    int64_t high_ = 0;
};

}  // namespace orrery
