#pragma once
#include <cstdint>
#include <string>

#include "orrery/tensor.h"

namespace orrery {

/// Elements that are infinite or NaN, or, with `usable`, so large (2^64 and more) that no model can go on from
/// them: f32 overflows in the first sum of squares. 0 for integers. The tensor is host-readable.
int64_t count_diverged(const Tensor& tensor, bool usable);

/// Tells from the next step's loss whether a state that was saved is one to go on from.
struct LossJudge {
    int64_t step = -1;  ///< saved or resumed last, until the next one is done; -1: none
    double loss = 0;    ///< of that step; 0: not known
    double first = 0;   ///< of the run's first step; 0: not known
    double sound = 0;   ///< of the last step that was saved and is not suspect; 0: none

    /// What a run that has not diverged stays near to: the states on both sides of a divergence have high losses. Not
    /// below the first loss, or one batch of a very low loss would make all that follow suspect.
    double reference() const { return sound > first ? sound : first; }
    /// To be called with each step's loss. Why the step saved before it is suspect; "" when it is not, or none was.
    std::string judge(int64_t now, double now_loss);
};

}  // namespace orrery
