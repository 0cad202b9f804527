#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "draw/page.h"

namespace orrery::drawing {
namespace {

double byte_step(int64_t top) {
    double unit = 1;
    while (static_cast<double>(top) / unit >= 2048) unit *= 1024;
    return unit * tick_step(static_cast<double>(top) / unit, 5);
}

std::vector<MemoryCurve::Point> thinned(const MemoryCurve& curve, double scale) {
    std::vector<MemoryCurve::Point> kept;
    for (const MemoryCurve::Point& p : curve.points) {
        if (!kept.empty() && std::floor(p.time * scale) == std::floor(kept.back().time * scale)) {
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
    std::string steps = "M" + point(from, floor);
    for (size_t i = 0; i < points.size(); ++i) {
        const double x = i == 0 ? from : page.x(points[i].time);
        steps += fmt::format("H{}V{}", number(x), number(floor - static_cast<double>(bytes(points[i])) * per_byte));
    }
    return steps + fmt::format("H{}V{}Z", number(to), number(floor));
}

void draw_curve(Page& page, const MemoryCurve& curve, double height, int64_t top) {
    const double from = page.x(-page.picture.lead);
    const double to = page.end() + page.picture.lead * page.scale;
    const double floor = page.y + height;
    const double per_byte = height / static_cast<double>(std::max<int64_t>(1, top));
    const double step = byte_step(top);
    const auto points = thinned(curve, page.scale);
    page.canvas.path(
        area(page, points, from, to, floor, per_byte, [&](const auto& p) { return curve.persistent + p.all(); }),
        "workspaces");
    page.canvas.path(area(page, points, from, to, floor, per_byte,
                          [&](const auto& p) { return curve.persistent + p.gradients + p.activations; }),
                     "activations");
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

void draw_memory_key(Page& page) {
    double x = margin;
    auto item = [&](std::string_view look, std::string_view words) {
        page.canvas.box(x, page.y, 16, 14, look);
        page.canvas.text(x + 21, page.y + 11, words, "small");
        x += 21 + text_width(words, 11) + 16;
    };
    item("persistent", "params, optimizer state, inputs");
    item("gradients", "gradients");
    item("activations", "activations");
    item("workspaces", "kernels' workspace");
    std::string note = "dot: fullest moment; before and behind the fragments: what runs once a step";
    if (page.picture.memory_limit > 0) note += "; limit " + bytes_text(page.picture.memory_limit);
    page.canvas.text(x, page.y + 11, note, "small");
}

}  // namespace

void draw_memory(Page& page) {
    int64_t top = 1;
    for (const MemoryCurve& curve : page.picture.memory) top = std::max(top, curve.peak);
    // A limit far above the curves would flatten them and is left out.
    if (page.picture.memory_limit > 0 && page.picture.memory_limit < top * 3 / 2)
        top = std::max(top, page.picture.memory_limit);
    top += top / 20;
    const size_t curves = page.picture.memory.size();
    const double height = curves <= 2 ? 130 : curves <= 8 ? 64 : 44;
    page.y += 40;
    page.canvas.heading(margin, page.y, "Memory of a rank: bytes alive at each instruction");
    page.y += 10;
    draw_memory_key(page);
    page.y += 26;
    for (const MemoryCurve& curve : page.picture.memory) {
        draw_curve(page, curve, height, top);
        page.y += height + 10;
    }
    page.canvas.text(
        page.x(-page.picture.lead), page.y + 6,
        "height of a row: " + bytes_text(top) + "; lines every " + bytes_text(static_cast<int64_t>(byte_step(top))),
        "small");
    page.y += 12;
}

}  // namespace orrery::drawing
