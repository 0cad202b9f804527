#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "draw/page.h"
#include "draw/shares.h"
#include "draw/ticks.h"

namespace orrery::drawing {
namespace {

/// Returns the fullest point of each stretch of `pixels`.
std::vector<MemoryCurve::Point> thinned(const MemoryCurve& curve, double scale, double pixels) {
    std::vector<MemoryCurve::Point> kept;
    for (const MemoryCurve::Point& p : curve.points) {
        if (!kept.empty() && std::floor(p.time * scale / pixels) == std::floor(kept.back().time * scale / pixels)) {
            if (p.all() > kept.back().all()) kept.back() = p;
        } else {
            kept.push_back(p);
        }
    }
    return kept;
}

template <class Bytes>
std::string area(const Page& page, const std::vector<MemoryCurve::Point>& points, double from, double to, double floor,
                 double per_byte, const Bytes& bytes) {
    std::string steps = "M" + point(from, floor), level;
    for (size_t i = 0; i < points.size(); ++i) {
        const std::string next = number(floor - static_cast<double>(bytes(points[i])) * per_byte);
        if (next == level) continue;
        steps += fmt::format("H{}V{}", number(i == 0 ? from : page.x(points[i].time)), next);
        level = next;
    }
    return steps + fmt::format("H{}V{}Z", number(to), number(floor));
}

void draw_curve(Page& page, const MemoryCurve& curve, double height, int64_t top, double pixels) {
    const double from = page.x(-page.picture.lead);
    const double to = page.end() + page.picture.lead * page.scale;
    const double floor = page.y + height;
    const double per_byte = height / static_cast<double>(std::max<int64_t>(1, top));
    const double step = byte_ticks(static_cast<double>(top), 5).step;
    const auto points = thinned(curve, page.scale, pixels);
    page.canvas.path(
        area(page, points, from, to, floor, per_byte, [&](const auto& p) { return curve.persistent + p.all(); }),
        "workspaces");
    page.canvas.path(area(page, points, from, to, floor, per_byte,
                          [&](const auto& p) { return curve.persistent + p.all() - p.workspaces; }),
                     "activations");
    page.canvas.path(area(page, points, from, to, floor, per_byte,
                          [&](const auto& p) { return curve.persistent + p.gradients + p.param_copies; }),
                     "copies");
    page.canvas.path(
        area(page, points, from, to, floor, per_byte, [&](const auto& p) { return curve.persistent + p.gradients; }),
        "gradients");
    const double rest = static_cast<double>(curve.persistent) * per_byte;
    page.canvas.box(from, floor - rest, to - from, rest, "persistent");
    for (double at = step; at < static_cast<double>(top); at += step)
        page.canvas.line(from, floor - at * per_byte, to, floor - at * per_byte, "rule");
    page.canvas.line(from, floor, to, floor, "axis");
    if (page.picture.memory_limit > 0 && page.picture.memory_limit <= top) {
        const double y = floor - static_cast<double>(page.picture.memory_limit) * per_byte;
        page.canvas.line(from, y, to, y, "limit");
    }
    page.canvas.dot(page.x(curve.peak_time), floor - static_cast<double>(curve.peak) * per_byte, 2.5, "peak");
    page.canvas.text(margin, page.y + height / 2, row_name(page.picture.timeline, curve.rank), "name");
    page.canvas.text(margin, page.y + height / 2 + 14, curve.ranks, "small");
    page.canvas.text(to + 10, page.y + height / 2 + 4, "peak " + bytes_text(curve.peak), "small");
}

void draw_memory_key(Page& page, int64_t top) {
    Key key(page);
    key.item({"persistent"}, "params, optimizer state, inputs");
    key.item({"gradients"}, "gradients");
    key.item({"copies"}, "param copies");
    key.item({"activations"}, "activations");
    key.item({"workspaces"}, "kernels' workspace");
    std::string note = "dot: fullest moment; before and after the fragments: what runs once a step";
    if (page.picture.memory_limit > 0)
        note +=
            "; limit " + bytes_text(page.picture.memory_limit) + (page.picture.memory_limit > top ? ", far above" : "");
    key.words(note);
    key.end();
}

/// Draws the peak of every class of ranks as a column, if not each class has a curve.
void draw_peaks(Page& page, int64_t top) {
    constexpr double height = 80;
    const auto& all = page.picture.memory;
    const double floor = page.y + height, width = page.end() - page.left;
    std::vector<double> peaks, persistent;
    const auto of_top = [&](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(top); };
    for (const MemoryCurve& curve : all) {
        peaks.push_back(of_top(curve.peak));
        persistent.push_back(of_top(curve.persistent));
    }
    page.canvas.path(steps_path(peaks, page.left, page.left + width, floor, height), "activations");
    page.canvas.path(steps_path(persistent, page.left, page.left + width, floor, height), "persistent");
    page.canvas.line(page.left, floor, page.left + width, floor, "axis");
    page.canvas.text(margin, page.y + height / 2, "peaks of all", "name");
    const auto [least, most] = std::ranges::minmax(all, {}, &MemoryCurve::peak);
    page.canvas.text(page.left, floor + 14,
                     fmt::format("one column per class of ranks, from {} to {}; peaks from {} to {}", all.front().ranks,
                                 all.back().ranks, bytes_text(least.peak), bytes_text(most.peak)),
                     "small");
    page.y = floor + 30;
}

}  // namespace

void draw_memory(Page& page) {
    constexpr size_t most_points = 12'000;
    int64_t top = 1;
    for (const MemoryCurve& curve : page.picture.memory) top = std::max(top, curve.peak);
    // A limit far above the curves would flatten them and is left out.
    if (page.picture.memory_limit > 0 && page.picture.memory_limit < top * 3 / 2)
        top = std::max(top, page.picture.memory_limit);
    top += top / 20;
    const std::vector<const MemoryCurve*> curves = chosen_curves(page.picture);
    const double height = curves.size() <= 2 ? 130 : curves.size() <= 8 ? 64 : 44;
    const double span = page.end() - page.left + 2 * page.picture.lead * page.scale;
    const double pixels = std::max(1.0, span * static_cast<double>(curves.size()) / most_points);
    page.y += 40;
    page.canvas.heading(margin, page.y, "Memory of a rank: bytes alive at each instruction");
    if (curves.size() < page.picture.memory.size())
        page.canvas.text(margin, page.y += 17,
                         fmt::format("{} of {} classes of ranks, the fullest among them; peaks of all are below",
                                     curves.size(), page.picture.memory.size()),
                         "small");
    page.y += 10;
    draw_memory_key(page, top);
    page.y += 8;
    for (const MemoryCurve* curve : curves) {
        draw_curve(page, *curve, height, top, pixels);
        page.y += height + 10;
    }
    const Ticks ticks = byte_ticks(static_cast<double>(top), 5);
    page.canvas.text(
        page.x(-page.picture.lead), page.y + 6,
        fmt::format("height of a row: {}; lines every {} {}", bytes_text(top), ticks.text(ticks.step), ticks.name),
        "small");
    page.y += 12;
    if (curves.size() == page.picture.memory.size()) return;
    page.y += 14;
    draw_peaks(page, top);
}

}  // namespace orrery::drawing
