#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "draw/picture.h"

namespace orrery::drawing {

/// Returns the live bytes over time on a rank of `rank_class`. Instructions of a fragment are drawn evenly over its
/// time, those before all fragments over a time of `lead`, and so are those after all fragments. `lead` = 0: they are
/// drawn within the timeline, before the first and after the last fragment.
MemoryCurve memory_curve(const Plan& plan, const RankClass& rank_class, const Timeline& timeline, double lead);

/// Returns a row for each param in program order. Params of numbered layers share a row if their layouts are the same.
std::vector<ParamRow> param_rows(const Plan& plan, const Timeline& timeline);

std::vector<int> stages_of(const std::vector<Slot>& slots);   ///< pipeline stages of one rank, by chunk
std::string row_name(const Timeline& timeline, size_t rank);  ///< "stage 2"; "rank 2" for a rank with several stages
/// Formats sorted numbers of stages: "stage 3", "stages 0..3", or with gaps "stages 0 ... 12".
std::string range_text(std::string_view one, std::string_view many, const std::vector<int64_t>& numbers);
std::string letter_of(Fragment::Kind kind);
int chunks_of(const Timeline& timeline);

/// Formats a time of the timeline: "9", with the picture's unit "1.234 s".
std::string time_text(const Picture& picture, double time);
/// Returns the curves to draw: all, or if they are many some of them, the fullest among them.
std::vector<const MemoryCurve*> chosen_curves(const Picture& picture);
/// Says that only `shown` of `count` are drawn: "8 of 512 pipeline ranks, evenly chosen"; "": all are.
std::string chosen_text(size_t shown, size_t count, std::string_view what);

}  // namespace orrery::drawing
