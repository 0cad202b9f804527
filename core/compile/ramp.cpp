#include "compile/ramp.h"

#include <fmt/format.h>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {

BatchSizes::BatchSizes(int64_t full, const BatchRamp& ramp) {
    if (ramp.start == 0) {
        stages_.push_back({full, 1, 0});
        return;
    }
    const int64_t rise = full - ramp.start;
    if (ramp.start < 1 || ramp.increment < 1 || ramp.samples < 1 || rise < 1 || rise % ramp.increment != 0)
        throw Error(
            fmt::format("a batch ramp from {} by {} over {} samples does not reach the full batch of {} sequences\n"
                        "  choose start below {} and an increment that divides the difference",
                        ramp.start, ramp.increment, ramp.samples, full, full));
    const int64_t rises = rise / ramp.increment;
    int64_t step = 1, drawn = 0;
    for (int64_t i = 0; i < rises; ++i) {
        // This batch lasts until (i + 1) / rises of the ramp's samples are drawn. A large step may skip a batch size.
        const int64_t batch = ramp.start + i * ramp.increment;
        const int64_t missing = (i + 1) * ramp.samples - drawn * rises;
        if (missing <= 0) continue;
        const int64_t steps = (missing + rises * batch - 1) / (rises * batch);
        stages_.push_back({batch, step, drawn});
        step += steps;
        drawn += steps * batch;
    }
    stages_.push_back({full, step, drawn});
}

const BatchSizes::Stage& BatchSizes::stage(int64_t step) const {
    size_t at = stages_.size() - 1;
    while (at > 0 && stages_[at].step > step) --at;
    return stages_[at];
}

int64_t BatchSizes::samples_before(int64_t step) const {
    const Stage& here = stage(step);
    int64_t samples = 0;
    if (__builtin_mul_overflow(step - here.step, here.batch, &samples) ||
        __builtin_add_overflow(samples, here.sample, &samples))
        throw Error(fmt::format(
            "step {} is too large: with {} samples a step it exceeds 2^63 samples\n  choose an earlier step", step,
            here.batch));
    return samples;
}

std::vector<int64_t> BatchSizes::sizes() const {
    std::vector<int64_t> sizes;
    for (const Stage& stage : stages_) sizes.push_back(stage.batch);
    return sizes;
}

std::string BatchSizes::text() const {
    std::vector<std::string> parts;
    for (const Stage& stage : stages_) parts.push_back(fmt::format("{} from step {}", stage.batch, stage.step));
    return join(parts, ", ");
}

}  // namespace orrery
