#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "plan/repeat.h"

namespace orrery {

/// The plan as text: buffers with their lifetimes, then one line an instruction. The same for equal plans; knows no
/// script lines.
std::string print(const Plan& plan);
/// The same of one class.
std::string print(const Plan& plan, size_t rank_class);

/// "class 0 (ranks 0..3), instruction 12: all_reduce %7 grad over dp, train.lua:9"; 12 is its number among all that a
/// step issues.
std::string describe(const Plan& plan, const RankClass& rank_class, const Issued& issued);
/// By its place in the stream: of a repeated stretch its first run.
std::string describe(const Plan& plan, const RankClass& rank_class, int index);

/// SHA-256 over all that ranks must agree on: mesh, kernels, places, order, waits, threads per rank.
std::string fingerprint(const Plan& plan);
/// Stands in Plan::fingerprint where a plan says what a step would cost, and nothing may run it (sim/software).
inline constexpr std::string_view for_prices_alone = "for prices alone";

/// Its parts, each with a name, to tell where two plans differ: the mesh, each class, and the messages between two
/// classes over an axis as either end has them.
std::vector<std::pair<std::string, std::string>> fingerprints(const Plan& plan);

}  // namespace orrery
