#pragma once
#include <string>
#include <vector>

#include "run/executor.h"
#include "run/verify/verify_options.h"

namespace orrery {

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
