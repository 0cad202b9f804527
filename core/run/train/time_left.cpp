#include "run/train/time_left.h"

#include <algorithm>

namespace orrery {
namespace {

constexpr double fades = 0.9;  // factor per step, by which a long step is forgotten after about ten

}  // namespace

void TimeLeft::step_took(double seconds) { step_s_ = std::max(seconds, fades * step_s_); }

double TimeLeft::needed_s(double saving_s) const {
    const double first = saving_s < 0 ? 0 : std::max(0.0, save_s_ - saving_s);
    return 1.25 * (step_s_ + first + save_s_);
}

bool TimeLeft::fits(double since_s, double saving_s) const {
    return grace_s_ == 0 || since_s + needed_s(saving_s) <= grace_s_;
}

}  // namespace orrery
