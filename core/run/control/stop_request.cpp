#include "run/control/stop_request.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto soon = std::chrono::seconds(2);  // a process that really ends does so within this time

std::atomic<int> asked{0};
std::atomic<int64_t> asked_ns{0};
std::mutex order;  // guards the variables below; stays locked after a decision to end the process without saving
std::vector<StopAnswer*> answers;
int keeping = 0;
bool ending = false;
Clock::time_point until = Clock::time_point::max();  // end of `ending`, as a script may catch the error and continue

int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

}  // namespace

int stop_signal() { return asked; }

double seconds_since_asked() { return asked == 0 ? 0 : static_cast<double>(now_ns() - asked_ns) * 1e-9; }

bool ask_to_stop(int signal) {
    order.lock();
    if (asked == 0) {
        asked_ns = now_ns();
        asked = signal;
    }
    if (keeping == 0 && (!ending || Clock::now() > until)) return false;
    ending = true;
    order.unlock();
    return true;
}

void ends_by_itself() {
    const std::lock_guard lock(order);
    ending = true;
    until = Clock::time_point::max();
}

void tell_stopped() {
    for (const StopAnswer* answer : answers)
        if (answer->tell_) answer->tell_();
}

StopAnswer::StopAnswer(std::function<void()> tell) : tell_(std::move(tell)) {
    const std::lock_guard lock(order);
    if (answers.empty()) {
        ending = false;
        until = Clock::time_point::max();
    }
    answers.push_back(this);
}

StopAnswer::~StopAnswer() {
    const std::lock_guard lock(order);
    std::erase(answers, this);
    keeping -= keeps_ ? 1 : 0;
    if (answers.empty()) until = Clock::now() + soon;
}

void StopAnswer::keep() {
    const std::lock_guard lock(order);
    keeping += keeps_ ? 0 : 1;
    keeps_ = true;
}

}  // namespace orrery
