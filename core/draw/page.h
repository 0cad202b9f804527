#pragma once
#include "draw/canvas.h"
#include "draw/parts.h"

namespace orrery::drawing {

/// An SVG drawing in progress. Its sections are below each other and share a time scale.
struct Page {
    const Picture& picture;
    Canvas canvas;
    double left = 0;    ///< x of time 0, in pixels
    double scale = 1;   ///< pixels per unit of time
    double digits = 1;  ///< number of digits of the largest micro-batch number
    double y = 0;       ///< y of the top of the next section, in pixels
    double width = 0;

    double x(double time) const { return left + time * scale; }
    double end() const { return x(static_cast<double>(picture.timeline.makespan)); }
};

constexpr double margin = 28;

void draw_memory(Page& page);
void draw_params(Page& page);

}  // namespace orrery::drawing
