#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "draw/picture.h"

namespace orrery::drawing {

/// Functions shared by the text and SVG drawings.

/// Returns the live bytes on a rank of a class over time. The instructions of a fragment share its time evenly; those
/// before and after all fragments share `lead` each.
MemoryCurve memory_curve(const RankClass& rank_class, const Timeline& timeline, double lead);

/// Returns rows for the params in program order; params of numbered layers with the same layouts share a row.
std::vector<ParamRow> param_rows(const Plan& plan, const Timeline& timeline);

std::vector<int> stages_of(const std::vector<Slot>& slots);   ///< pipeline stages of one rank, by chunk
std::string row_name(const Timeline& timeline, size_t rank);  ///< "stage 2"; "rank 2" for a rank with several stages
/// Formats numbers of stages: "stage 3", "stages 0..3", "stages 0 ... 12" with gaps. `numbers` must be sorted.
std::string range_text(std::string_view one, std::string_view many, const std::vector<int64_t>& numbers);
std::string letter_of(Fragment::Kind kind);
int chunks_of(const Timeline& timeline);

/// Returns the distance of ticks on an axis of length `span`: 1, 2 or 5 times a power of ten, for at most `most` ticks.
double tick_step(double span, int most);

}  // namespace orrery::drawing
