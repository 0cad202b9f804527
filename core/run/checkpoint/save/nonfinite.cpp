#include "run/checkpoint/save/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace orrery {
namespace {

/// Counts the floats whose bits, without the sign, are `least` or more as an integer; integers of this kind are ordered
/// like the absolute values, with infinity and NaN last. Blocks of fixed length let the compiler vectorize; words are
/// signed, because few processors have unsigned vector comparisons.
template <class Word>
int64_t count_from(const Tensor& tensor, Word least) {
    constexpr int64_t block = 256;
    constexpr Word all_but_sign = std::numeric_limits<Word>::max();
    const auto* bytes = static_cast<const char*>(tensor.data);
    std::array<Word, block> words{};
    int64_t found = 0;
    const auto count = [&](int64_t from, int64_t length) {
        std::memcpy(words.data(), bytes + from * static_cast<int64_t>(sizeof(Word)),
                    static_cast<size_t>(length) * sizeof(Word));
        Word found_here = 0;
        for (const Word word : words) found_here = static_cast<Word>(found_here + ((word & all_but_sign) >= least));
        found += found_here;
    };
    const int64_t total = tensor.count();
    int64_t i = 0;
    for (; i + block <= total; i += block) count(i, block);
    words.fill(0);
    if (i < total) count(i, total - i);
    return found;
}

}  // namespace

int64_t count_diverged(const Tensor& tensor, bool usable) {
    switch (tensor.dtype) {
        case DType::f64: return count_from<int64_t>(tensor, usable ? 0x43f0000000000000 : 0x7ff0000000000000);
        case DType::f32: return count_from<int32_t>(tensor, usable ? 0x5f800000 : 0x7f800000);
        case DType::bf16: return count_from<int16_t>(tensor, usable ? 0x5f80 : 0x7f80);
        case DType::f16: return count_from<int16_t>(tensor, 0x7c00);  // infinity and NaN; the max f16 is 65504
        default: return 0;
    }
}

namespace {

constexpr double about = 10;  // factor within which two losses count as equally high

bool counts(double loss) { return std::isfinite(loss) && loss > 0; }

}  // namespace

std::string LossJudge::judge(int64_t now, double now_loss) {
    const bool next = step_ >= 0 && step_ == now - 1;
    step_ = -1;
    std::string why = next ? suspicion(now, now_loss) : "";
    add(now_loss);
    return why;
}

std::string LossJudge::suspicion(int64_t now, double now_loss) const {
    if (!std::isfinite(now_loss)) return fmt::format("the loss of step {} is {}", now, now_loss);
    if (factor_ <= 0 || count_ < least) return "";
    const double level = median();
    if (now_loss <= factor_ * level || came_back(now_loss, level)) return "";
    return fmt::format("the loss of step {} is {:.6g}, above {:g} times {:.6g}, the median of the last {} losses", now,
                       now_loss, factor_, level, count_);
}

double LossJudge::median() const {
    std::array<double, window> sorted = losses_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count_));
    return (sorted[(count_ - 1) / 2] + sorted[count_ / 2]) / 2;
}

/// Whether recent losses contain an outlier about as high as `loss` that was followed by a normal loss, since batches
/// of a data mixture may differ that much. No outlier enters the window while losses stay high; so that an old recovery
/// does not excuse a diverged run forever, it does not count after `lasting` outliers in a row.
bool LossJudge::came_back(double loss, double median) const {
    if (high_ >= lasting) return false;
    for (size_t i = 0; i + 1 < count_; ++i)
        if (losses_[i] > factor_ * median && loss <= about * losses_[i] && losses_[i + 1] <= about * median)
            return true;
    return false;
}

/// Adds a loss to the window of recent losses. A loss above `factor_` times the highest median is pending until losses
/// are normal again, so that a diverged run never raises its own median.
void LossJudge::add(double loss) {
    if (!counts(loss)) return;
    if (factor_ > 0 && highest_ > 0 && loss > factor_ * highest_) {
        pending_ = std::max(pending_, loss);
        high_ = std::min(high_ + 1, lasting);
        return;
    }
    high_ = 0;
    if (pending_ > 0 && loss <= about * median()) push(std::exchange(pending_, 0));
    push(loss);
    if (count_ >= least) highest_ = std::max(highest_, median());
}

void LossJudge::push(double loss) {
    if (count_ == window) {
        std::copy(losses_.begin() + 1, losses_.end(), losses_.begin());
        --count_;
    }
    losses_[count_++] = loss;
}

void LossJudge::resume(int64_t step, const Kept& kept) {
    step_ = step;
    count_ = 0;
    for (const double loss : kept.losses)
        if (counts(loss)) push(loss);
    highest_ = count_ >= least && counts(kept.highest) ? kept.highest : 0;
    pending_ = highest_ > 0 && counts(kept.pending) ? kept.pending : 0;
    high_ = pending_ > 0 ? std::clamp<int64_t>(kept.high, 0, lasting) : 0;
}

}  // namespace orrery
