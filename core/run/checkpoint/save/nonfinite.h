#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/tensor.h"

namespace orrery {

/// Counts the elements of a host-readable tensor that are infinite or NaN. `usable`: also counts elements of 2^64 and
/// more, since their squares overflow f32. Returns 0 for integers.
int64_t count_diverged(const Tensor& tensor, bool usable);

/// Decides whether a saved step is suspect, from the loss of the step after it: that loss must be finite, and at most
/// `factor` times the median of recent losses. Outliers from which the run recovered before do not count.
class LossJudge {
public:
    static constexpr size_t window = 64;  ///< number of losses of which the median is taken
    static constexpr size_t least = 8;    ///< min losses for a median; with fewer, only a nonfinite loss counts

    /// Number of outliers in a row after which the run counts as diverged, even if it recovered from outliers before.
    static constexpr int64_t lasting = 2 * least;

    static constexpr double usual_factor = 1000;

    /// `factor` 0: only a loss that is not finite is suspect.
    explicit LossJudge(double factor = usual_factor) : factor_(factor) {}

    /// Sets the step that was saved. The loss of the next step decides whether it is suspect.
    void saved(int64_t step) { step_ = step; }
    int64_t step() const { return step_; }
    /// Must be called with every step's loss. Returns why the previous step, if saved, is suspect; "": it is not.
    std::string judge(int64_t now, double now_loss);

    /// The judge's state as checkpoints store it, so that a resumed run decides the same.
    struct Kept {
        std::vector<double> losses = {};  ///< the window: recent losses that are finite and above 0, oldest first
        double highest = 0;               ///< highest median of the window so far; 0: too few losses
        double pending = 0;               ///< highest outlier that has not entered the window yet; 0: none
        int64_t high = 0;                 ///< number of outliers since the last normal loss, at most `lasting`
    };
    Kept kept() const {
        return {{losses_.begin(), losses_.begin() + static_cast<int64_t>(count_)}, highest_, pending_, high_};
    }
    /// Restores the judge's state for a run that resumes from `step`. Ignores impossible values.
    void resume(int64_t step, const Kept& kept);

private:
    double median() const;
    std::string suspicion(int64_t now, double now_loss) const;
    bool came_back(double loss, double median) const;
    void add(double loss);
    void push(double loss);

    double factor_;
    int64_t step_ = -1;  ///< saved or resumed step whose next loss is awaited; -1: none
    std::array<double, window> losses_{};
    size_t count_ = 0;
    double highest_ = 0, pending_ = 0;
    int64_t high_ = 0;
};

}  // namespace orrery
