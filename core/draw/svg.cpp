// Draws heading, legend and timeline of the SVG; svg_memory.cpp and svg_params.cpp draw memory and params.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "draw/page.h"

namespace orrery {
namespace drawing {
namespace {

/// Okabe and Ito's blue, orange and green for F, B and W. People with any colour vision can distinguish them, since
/// they differ in lightness, too. Later chunks are darker.
struct Colour {
    int red, green, blue;
};
constexpr std::array<Colour, 3> fragment_colours{{{0, 114, 178}, {230, 145, 0}, {0, 134, 100}}};

/// Mixes the colour of a chunk with white; earlier chunks get more white.
Colour shade(Colour colour, int chunk, int chunks) {
    const double strength = chunks == 1 ? 0.72 : 0.42 + 0.58 * chunk / (chunks - 1);
    auto mix = [&](int part) { return static_cast<int>(std::lround(255 + (part - 255) * strength)); };
    return {mix(colour.red), mix(colour.green), mix(colour.blue)};
}

std::string_view ink_on(Colour c) { return 0.299 * c.red + 0.587 * c.green + 0.114 * c.blue > 125 ? "#111" : "#fff"; }

std::string style_sheet(int chunks, double number_size) {
    std::string css =
        "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:12px;fill:#222}\n"
        ".paper{fill:#fff}\n.title{font-size:20px;font-weight:bold}\n.heading{font-size:14px;font-weight:bold}\n"
        ".fact,.note{fill:#555}\n.small{font-size:11px;fill:#555}\n.name{font-weight:bold}\n"
        ".end{text-anchor:end;font-size:11px;fill:#555}\n.middle{text-anchor:middle;font-size:11px;fill:#555}\n"
        ".idle{fill:url(#idle);stroke:#d8dbe0;stroke-width:0.5}\n.rule{stroke:#e3e6ea}\n.axis{stroke:#888}\n"
        ".limit{stroke:#b00020;stroke-dasharray:5 3}\n.persistent{fill:#b9c0cb}\n.activations{fill:#e9d36b}\n"
        ".gradients{fill:#cc79a7}\n.workspaces{fill:#7a5c3e}\n.peak{fill:#222}\n.part{fill:#dfe7f1;stroke:#fff;stroke-"
        "width:0.75}\n"
        ".mine{fill:#3d6a9e;stroke:#fff;stroke-width:0.75}\n.sum{fill:url(#sum)}\n"
        ".inside{text-anchor:middle;font-size:8px;fill:#456}\n.light{text-anchor:middle;font-size:8px;fill:#fff}\n";
    for (int kind = 0; kind < 3; ++kind)
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const Colour c = shade(fragment_colours[kind], chunk, chunks);
            const std::string letter = letter_of(static_cast<Fragment::Kind>(kind));
            css += fmt::format(".{0}{1}{{fill:rgb({2},{3},{4})}}\n.n{0}{1}{{fill:{5}}}\n", letter, chunk, c.red,
                               c.green, c.blue, ink_on(c));
        }
    return css + fmt::format(".n{{text-anchor:middle;font-size:{}px}}\n", number(number_size));
}

constexpr std::string_view patterns =
    "<pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f7f8fa\"/>"
    "<rect width=\"1.2\" height=\"6\" fill=\"#d5d9df\"/></pattern>\n"
    "<pattern id=\"sum\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"1.6\" height=\"5\" fill=\"#fff\" fill-opacity=\"0.7\"/></pattern>\n";

/// Returns pixels per unit of time: the page is filled, a number fits into the shortest fragment, the width is limited.
double time_scale(const Picture& picture, double digits) {
    constexpr double page = 1080, widest = 8000;
    const double cell = picture.memory.empty() ? 40 : 240;
    int64_t shortest = 0;
    for (const auto& slots : picture.timeline.ranks)
        for (const Slot& slot : slots)
            if (slot.end > slot.start && (shortest == 0 || slot.end - slot.start < shortest))
                shortest = slot.end - slot.start;
    const double span = std::max(1.0, static_cast<double>(picture.timeline.makespan) + 2 * picture.lead);
    const double one = shortest > 0 ? static_cast<double>(shortest) : 1;
    const double readable = (digits * 5 + 4) / one;
    return std::min({std::max(page / span, readable), std::max(cell / one, 500 / span), std::max(widest, page) / span});
}

double digits_of(const Timeline& timeline) {
    int64_t largest = 0;
    for (const auto& slots : timeline.ranks)
        for (const Slot& slot : slots) largest = std::max(largest, slot.fragment.micro);
    return static_cast<double>(std::to_string(largest).size());
}

void draw_head(Page& page) {
    page.y = margin + 18;
    page.canvas.text(margin, page.y, page.picture.title, "title");
    for (const std::string& fact : page.picture.facts) page.canvas.text(margin, page.y += 20, fact, "fact");
    page.y += 18;
}

void draw_key(Page& page) {
    double x = margin;
    const double y = page.y;
    auto item = [&](const std::vector<std::string>& looks, std::string_view words) {
        for (const std::string& look : looks) {
            page.canvas.box(x, y, 16, 14, look);
            x += 17;
        }
        page.canvas.text(x + 4, y + 11, words, "small");
        x += 4 + text_width(words, 11) + 16;
    };
    const int chunks = chunks_of(page.picture.timeline);
    auto shades = [&](const std::string& letter) {
        std::vector<std::string> looks;
        for (int chunk = 0; chunk < std::min(chunks, 8); ++chunk) looks.push_back(letter + std::to_string(chunk));
        return looks;
    };
    const bool split = splits_weights(page.picture.schedule);
    item(shades("F"), "F forward");
    item(shades("B"), split ? "B backward, of inputs" : "B backward");
    if (split) item(shades("W"), "W backward, of weights");
    item({"idle"}, "idle");
    page.canvas.text(x, y + 11,
                     chunks > 1 ? "number: micro-batch; pale to strong: chunks 0, 1, ..." : "number: micro-batch",
                     "small");
    page.y += 44;
}

void draw_slot(Page& page, const Slot& slot, size_t rank, double height, double number_size) {
    if (slot.end == slot.start) return;
    const std::string text = std::to_string(slot.fragment.micro);
    const std::string look = letter_of(slot.fragment.kind) + std::to_string(slot.fragment.chunk);
    const double x = page.x(static_cast<double>(slot.start));
    const double width = page.scale * static_cast<double>(slot.end - slot.start);
    const double gap = std::min(1.0, width * 0.12);
    page.canvas.box(x + gap / 2, page.y, width - gap, height, look,
                    fmt::format("{}{} of stage {} on pipeline rank {}: {} to {}", letter_of(slot.fragment.kind), text,
                                slot.stage, rank, slot.start, slot.end),
                    width > 9 ? 2 : 0);
    if (width >= text_width(text, number_size) + 1)
        page.canvas.text(x + width / 2, page.y + height / 2 + number_size * 0.36, text, "n n" + look);
}

void draw_time_axis(Page& page) {
    const auto makespan = static_cast<double>(page.picture.timeline.makespan);
    const double step = tick_step(makespan, std::max(2, static_cast<int>(makespan * page.scale / 60)));
    page.canvas.line(page.left, page.y, page.end(), page.y, "axis");
    for (double at = 0; at <= makespan; at += step) {
        page.canvas.line(page.x(at), page.y, page.x(at), page.y + 4, "axis");
        page.canvas.text(page.x(at), page.y + 16, short_text(at), "middle");
    }
    page.canvas.text(page.left, page.y + 32, "time, in " + page.picture.unit, "small");
    page.y += 32;
}

void draw_timeline(Page& page, double number_size) {
    const Timeline& t = page.picture.timeline;
    const double height = t.ranks.size() <= 8 ? 26 : 20;
    page.canvas.heading(margin, page.y, "Timeline");
    if (chunks_of(t) > 1) page.canvas.text(page.left - 10 - page.scale * page.picture.lead, page.y, "stages", "end");
    page.y += 12;
    for (size_t r = 0; r < t.ranks.size(); ++r, page.y += height + 4) {
        const std::vector<int> stages = stages_of(t.ranks[r]);
        const double middle = page.y + height / 2 + 4;
        page.canvas.text(margin, middle, row_name(t, r), "name");
        if (stages.size() > 1) {
            std::string list;
            for (int stage : stages) list += (list.empty() ? "" : ", ") + std::to_string(stage);
            page.canvas.text(page.left - 10 - page.scale * page.picture.lead, middle, list, "end");
        }
        page.canvas.box(page.left, page.y, page.end() - page.left, height, "idle");
        for (const Slot& slot : t.ranks[r]) draw_slot(page, slot, r, height, number_size);
        page.canvas.text(
            page.end() + 10, middle,
            fmt::format("idle {:.1f} %, holds {}",
                        100.0 * static_cast<double>(t.idle(r)) / static_cast<double>(std::max<int64_t>(1, t.makespan)),
                        t.peak[r]),
            "small");
    }
    page.y += 4;
    draw_time_axis(page);
}

}  // namespace
}  // namespace drawing

std::string draw_svg(const Picture& picture) {
    using namespace drawing;
    Page page{picture, {}, 0, 1, digits_of(picture.timeline), 0, 0};
    page.scale = time_scale(picture, page.digits);
    size_t most_stages = 1;
    for (const auto& slots : picture.timeline.ranks) most_stages = std::max(most_stages, stages_of(slots).size());
    page.left =
        margin + (most_stages > 1 ? 122 + 14 * static_cast<double>(most_stages) : 78) + page.scale * picture.lead;
    constexpr double right = 150;
    page.width =
        std::max(page.end() + page.scale * picture.lead + right, picture.params.empty() ? 760.0 : 1200.0) + margin;
    for (const std::string& fact : picture.facts) page.width = std::max(page.width, text_width(fact, 12) + 2 * margin);
    // Font size of micro-batch numbers, limited by the shortest fragment as in time_scale().
    const double number_size = page.digits > 2 ? 7.5 : page.digits > 1 ? 8 : 10;
    draw_head(page);
    draw_key(page);
    draw_timeline(page, number_size);
    if (!picture.memory.empty()) draw_memory(page);
    if (!picture.params.empty()) draw_params(page);
    return page.canvas.finish(page.width, page.y + margin, picture.title,
                              style_sheet(chunks_of(picture.timeline), number_size), patterns);
}

}  // namespace orrery
