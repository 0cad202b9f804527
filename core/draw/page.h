#pragma once
#include "draw/canvas.h"
#include "draw/parts.h"

namespace orrery::drawing {

/// An SVG in the making: sections are drawn one below the other, and share the scale of time.
struct Page {
    const Picture& picture;
    Canvas canvas;
    double left = 0;    ///< x of time 0
    double scale = 1;   ///< pixels per unit of time
    double digits = 1;  ///< in the largest number of a micro-batch
    double y = 0;       ///< where the next section begins
    double width = 0;

    double x(double time) const { return left + time * scale; }
    double end() const { return x(static_cast<double>(picture.timeline.makespan)); }
};

constexpr double margin = 28;

void draw_memory(Page& page);
void draw_params(Page& page);

}  // namespace orrery::drawing
