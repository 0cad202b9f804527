#pragma once
#include <string>
#include <vector>

#include "run/executor.h"
#include "run/verify/verify_options.h"

namespace orrery {

/// Parses an error to inject: "scale,rank=1,tensor=up.w.grad,by=1.01,micro=0" or "unreduced,rank=1,tensor=up.w.grad".
/// Throws Error naming the invalid part.
Injection parse_injection(const std::string& text);

/// Throws Error if the plan lacks the injection's rank, or an instruction where the error can be injected.
void require_injectable(const Injection& injection, const Plan& plan);

class Injector {
public:
    Injector(const Plan& plan, const RankClass& rank_class, int64_t rank, const std::vector<Injection>& injections);
    void before(Executor& executor, int index);
    void after(Executor& executor, int index);

private:
    struct Planned {
        const Injection* injection;
        int index;
        size_t operand;
    };
    std::vector<Planned> planned_;
    const RankClass& class_;
    std::vector<std::byte> kept_;
};

}  // namespace orrery
