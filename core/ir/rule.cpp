#include "orrery/infer.h"

namespace orrery {

std::vector<int> RuleMaker::dim(Factor::Kind kind, int64_t size, ReduceOp reduce) {
    if (size == 1) return {};
    rule.factors.push_back({kind, size, reduce});
    return {static_cast<int>(rule.factors.size()) - 1};
}

}  // namespace orrery
