#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/repeat.h"

namespace orrery {

/// The plan as text: buffers with lifetimes, one line per instruction, no script lines. Equal plans give equal text.
std::string print(const Plan& plan);
std::string print(const Plan& plan, size_t rank_class);

/// Names one execution of an instruction for messages: "class 0 (ranks 0..3), instruction 12: all_reduce %7 grad over
/// dp, train.lua:9". 12 is its index among all executions of a step.
std::string describe(const Plan& plan, const RankClass& rank_class, const Issued& issued);
/// Names an instruction of the stream for messages. In the repeated part, it names the execution in the first run.
std::string describe(const Plan& plan, const RankClass& rank_class, int index);

/// SHA-256 of everything that ranks must agree on: mesh, kernels, places, order, waits, threads per rank.
std::string fingerprint(const Plan& plan);
/// The value of Plan::fingerprint in plans that only predict costs and must not be run.
inline constexpr std::string_view for_prices_alone = "for prices alone";

/// Named parts of the fingerprint, to report where plans differ: mesh, classes, messages between two classes.
std::vector<std::pair<std::string, std::string>> fingerprints(const Plan& plan);

}  // namespace orrery
