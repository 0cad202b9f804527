#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "draw/canvas.h"
#include "draw/parts.h"

namespace orrery::drawing {

/// An SVG drawing in progress. Its sections are below each other and share a time scale.
struct Page {
    const Picture& picture;
    Canvas canvas;
    double left = 0;            ///< x of time 0, in pixels
    double scale = 1;           ///< pixels per unit of time
    double digits = 1;          ///< number of digits of the largest micro-batch number
    std::vector<size_t> ranks;  ///< pipeline ranks with a row in the timeline
    double y = 0;               ///< y of the top of the next section, in pixels
    double width = 0;

    double x(double time) const { return left + time * scale; }
    double end() const { return x(static_cast<double>(picture.timeline.makespan)); }
};

constexpr double margin = 28;
constexpr size_t most_tall_rows = 16;  ///< above, rows of the timeline are thin, without numbers and lanes

/// Returns pixels right of `margin` that the names of rows need, and pixels that the notes after rows need.
double names_width(const Page& page);
double notes_width(const Page& page);

/// Draws the legend's boxes with their words from `x` = margin, in as many lines as the page's width needs.
class Key {
public:
    explicit Key(Page& page) : page_(page) {}
    void item(const std::vector<std::string>& looks, std::string_view words);
    void words(std::string_view words) { item({}, words); }
    void end() { page_.y += 18; }

private:
    Page& page_;
    double x_ = margin;
};

/// Whether any fragment of the timeline has space for the number of its micro-batch.
bool has_numbers(const Page& page, double number_size);

void draw_timeline(Page& page, double number_size);
void draw_memory(Page& page);
void draw_params(Page& page);

}  // namespace orrery::drawing
