#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/executor.h"

namespace orrery {

/// A mistake made on purpose on one rank, to see that it is found.
struct Injection {
    enum class What : uint8_t {
        scale,       ///< what the rank makes of a tensor, times `by`
        unreduced,   ///< after a reduction the rank holds what it put in, of the whole message that the tensor is in
        unexchanged  ///< the same after an all_to_all
    };
    What what = What::scale;
    int64_t rank = 0;
    std::string tensor;
    double by = 1.01;
    int64_t micro = 0;  ///< scale: in which micro-batch, where the tensor is made in each
    std::string text;   ///< as given
};

/// "scale,rank=1,tensor=up.w.grad,by=1.01,micro=0" or "unreduced,rank=1,tensor=up.w.grad". Throws Error naming the part
/// that is none.
Injection parse_injection(const std::string& text);

/// Throws Error when the plan has no such rank or nothing that the mistake could be made in.
void require_injectable(const Injection& injection, const Plan& plan);

/// Makes one rank's mistakes in a step.
class Injector {
public:
    Injector(const Plan& plan, const RankClass& rank_class, int64_t rank, const std::vector<Injection>& injections);
    void before(Executor& executor, int index);
    void after(Executor& executor, int index);

private:
    struct Planned {
        const Injection* injection;
        int index;       ///< instruction
        size_t operand;  ///< scale: which one
    };
    std::vector<Planned> planned_;
    const RankClass& class_;
    std::vector<std::byte> kept_;
};

}  // namespace orrery
