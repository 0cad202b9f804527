#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/summary.h"

namespace orrery {

/// What propagation or lowering inserted, of one kind, at one line of the script: the layers of a model are one entry.
struct Redistribution {
    std::string kind;  ///< "all_gather", "send"
    std::string axis;
    std::string what;       ///< "h.*.mlp.up.weight.grad"
    std::string why;        ///< "for matmul", "update of h.*.attn.q.weight", "result loss_sum"
    std::string by;         ///< the strategies, with their lines, that laid the value so
    Origin origin;          ///< the line that needed it
    bool implicit = false;  ///< a gather that no mark asked for
    int64_t values = 0;     ///< of the program
    int64_t count = 0;      ///< a step, on the rank that sends most of it
    int64_t bytes = 0;      ///< sent a step by that rank
    int64_t streams = 0;    ///< streams with any of it: a pipeline has one for each of its ranks
};

/// Every redistribution of a step, the dearest first. Linear in the program and its streams.
std::vector<Redistribution> redistributions(const Plan& plan, const WireBytes& wires = {});

/// A table of the entries, at most `most` of them, and a line about the implicit ones. "" when nothing is moved.
std::string lint_text(const std::vector<Redistribution>& entries, size_t most = 40);

}  // namespace orrery
