#include "run/checkpoint/nonfinite.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace orrery {
namespace {

/// Without their sign bit, the bits of floats are ordered like the numbers; infinities and NaN come last. Blocks of a
/// fixed length become vector instructions. Words are signed, as few processors compare others.
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
        case DType::f16: return count_from<int16_t>(tensor, 0x7c00);  // its largest is 65504
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
