#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "draw/picture.h"

namespace orrery::drawing {

/// What the drawings in text and in SVG share.

/// Bytes alive on a class, over the fragments of its pipeline rank: instructions of a fragment share its time evenly,
/// those before and after the fragments take `lead` each.
MemoryCurve memory_curve(const RankClass& rank_class, const Timeline& timeline, double lead);

/// Params in program order; those of numbered layers that lie alike share a row.
std::vector<ParamRow> param_rows(const Plan& plan, const Timeline& timeline);

std::vector<int> stages_of(const std::vector<Slot>& slots);   ///< of one rank, by chunk
std::string row_name(const Timeline& timeline, size_t rank);  ///< "stage 2", or "rank 2" where it has several
/// "stage 3", "stages 0..3", "stages 0 ... 12" where some are left out. `numbers` are sorted.
std::string range_text(std::string_view one, std::string_view many, const std::vector<int64_t>& numbers);
std::string letter_of(Fragment::Kind kind);
int chunks_of(const Timeline& timeline);

/// Distance of marks on an axis that shows `span`: 1, 2 or 5 times a power of ten, at most `most` marks.
double tick_step(double span, int most);

}  // namespace orrery::drawing
