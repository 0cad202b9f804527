#include "run/checkpoint/nonfinite.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace orrery {
namespace {

/// Without their sign bit, the bits of floats are ordered like the numbers; infinities and NaN come last.
template <class Word>
int64_t count_from(const Tensor& tensor, Word least) {
    const auto* bytes = static_cast<const char*>(tensor.data);
    constexpr Word all_but_sign = std::numeric_limits<Word>::max() >> 1;
    int64_t found = 0;
    for (int64_t i = 0; i < tensor.count(); ++i) {
        Word word;
        std::memcpy(&word, bytes + i * static_cast<int64_t>(sizeof word), sizeof word);
        found += (word & all_but_sign) >= least;
    }
    return found;
}

}  // namespace

int64_t count_diverged(const Tensor& tensor, bool usable) {
    switch (tensor.dtype) {
        case DType::f64: return count_from<uint64_t>(tensor, usable ? 0x43f0000000000000u : 0x7ff0000000000000u);
        case DType::f32: return count_from<uint32_t>(tensor, usable ? 0x5f800000u : 0x7f800000u);
        case DType::bf16: return count_from<uint16_t>(tensor, usable ? 0x5f80u : 0x7f80u);
        case DType::f16: return count_from<uint16_t>(tensor, 0x7c00u);  // its largest is 65504
        default: return 0;
    }
}

std::string LossJudge::judge(int64_t now, double now_loss) {
    constexpr double most = 1000;
    const bool next = step >= 0 && step == now - 1, finite = std::isfinite(now_loss);
    step = -1;
    const auto above = [&](double before) { return before > 0 && now_loss > most * before; };
    if (!next) {
        if (finite && first <= 0 && sound <= 0) first = now_loss;
        return "";
    }
    if (!finite) return fmt::format("the loss of step {} is {}", now, now_loss);
    if (above(loss) || above(reference()))
        return fmt::format("the loss of step {} is {:.6g}, above {} times the {:.6g} of {}", now, now_loss, most,
                           above(loss) ? loss : reference(), above(loss) ? "this step" : "an earlier one");
    if (loss > 0) sound = loss;
    return "";
}

}  // namespace orrery
