#pragma once
#include <string>
#include <utility>
#include <vector>

#include "draw/canvas.h"

namespace orrery {

/// Disjoint times [begin, end) in ascending order.
using Intervals = std::vector<std::pair<double, double>>;

double total(const Intervals& times);

namespace drawing {

/// Cuts `from` to `to` into `bins` equal parts and returns the share of each part that the intervals cover.
std::vector<double> shares(const Intervals& times, double from, double to, size_t bins);

/// Returns an SVG path that fills from y = `floor` up to `share` * `height` in each of the equal parts from `x1` to
/// `x2`. A share above 0 is at least a pixel high, so that it remains visible.
std::string steps_path(const std::vector<double>& share, double x1, double x2, double floor, double height);

/// Returns an SVG path of a box for each interval, at least half a pixel wide. `left`, `scale`: time 0 and pixels per
/// unit of time; `gap`: pixels between adjacent boxes.
std::string boxes_path(const Intervals& times, double left, double scale, double y, double height, double gap = 0);

/// Chooses `max` of the numbers 0 to count - 1, evenly, with the first and the last; all if they are fewer.
std::vector<size_t> evenly(size_t count, size_t max);

}  // namespace drawing
}  // namespace orrery
