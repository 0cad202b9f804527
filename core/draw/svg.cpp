// Draws heading and legend of the SVG; svg_timeline, svg_memory and svg_params draw what is below.
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
        ".once{fill:#6b7280}\n.lane{fill:#f1f3f5}\n.busy{fill:#aab2bd}\n.exposed{fill:#c1121f}\n"
        ".tiny{font-size:9px;fill:#555}\n.tinyend{font-size:9px;fill:#555;text-anchor:end}\n"
        ".limit{stroke:#b00020;stroke-dasharray:5 3}\n.persistent{fill:#b9c0cb}\n.activations{fill:#e9d36b}\n"
        ".gradients{fill:#cc79a7}\n.copies{fill:#8fb8de}\n.workspaces{fill:#7a5c3e}\n.peak{fill:#222}\n.part{fill:#"
        "dfe7f1}\n.mine{fill:#"
        "3d6a9e}\n"
        ".cut{stroke:#fff;stroke-width:0.75}\n.sum{fill:url(#sum)}\n"
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

/// Returns pixels per unit of time: the page is filled, and a number fits into the shortest fragment, if the page does
/// not become too wide by that.
double time_scale(const Page& page) {
    constexpr double usual = 1080, widest = 4000;
    const Picture& picture = page.picture;
    const double cell = picture.memory.empty() ? 40 : 240;
    int64_t shortest = 0;
    for (const auto& slots : picture.timeline.ranks)
        for (const Slot& slot : slots)
            if (slot.end > slot.start && (shortest == 0 || slot.end - slot.start < shortest))
                shortest = slot.end - slot.start;
    const double span = std::max(1.0, static_cast<double>(picture.timeline.makespan) + 2 * picture.lead);
    const double one = shortest > 0 ? static_cast<double>(shortest) : 1;
    double readable = (page.digits * 5 + 4) / one;
    if (readable * span > widest || picture.timeline.ranks.size() > most_tall_rows) readable = 0;
    return std::min(std::max(usual / span, readable), std::max(cell / one, 500 / span));
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
    for (const std::string& fact : page.picture.facts)
        for (const std::string& line : lines_of(fact, 12, page.width - 2 * margin))
            page.canvas.text(margin, page.y += 20, line, "fact");
    page.y += 18;
}

void draw_key(Page& page, bool numbers) {
    Key key(page);
    const int chunks = chunks_of(page.picture.timeline);
    auto shades = [&](const std::string& letter) {
        std::vector<std::string> looks;
        for (int chunk = 0; chunk < std::min(chunks, 8); ++chunk) looks.push_back(letter + std::to_string(chunk));
        return looks;
    };
    const bool split = splits_weights(page.picture.schedule);
    const bool simulated = !page.picture.activity.empty();
    key.item(shades("F"), "F forward");
    key.item(shades("B"), split ? "B backward, of inputs" : "B backward");
    if (split) key.item(shades("W"), "W backward, of weights");
    if (simulated) key.item({"once"}, "once a step, such as the optimizer");
    key.item({"idle"}, "idle");
    if (simulated) {
        key.item({"exposed"}, "communication that kernels wait for (exposed)");
        key.item({"busy"}, "communication hidden by kernels or by other communication");
    }
    std::vector<std::string> words;
    if (numbers) words.push_back("number: micro-batch");
    if (chunks > 1) words.push_back("pale to strong: chunks 0, 1, ...");
    if (!words.empty()) key.words(join(words, "; "));
    key.end();
    page.y += 26;
}

}  // namespace

void Key::item(const std::vector<std::string>& looks, std::string_view words) {
    const double boxes = looks.empty() ? 0 : 17 * static_cast<double>(looks.size()) + 4;
    const double width = boxes + text_width(words, 11);
    if (x_ > margin && x_ + width > page_.width - margin) {
        x_ = margin;
        page_.y += 20;
    }
    double at = x_;
    for (const std::string& look : looks) {
        page_.canvas.box(at, page_.y, 16, 14, look);
        at += 17;
    }
    page_.canvas.text(x_ + boxes, page_.y + 11, words, "small");
    x_ += width + 16;
}

}  // namespace drawing

std::string draw_svg(const Picture& picture) {
    using namespace drawing;
    constexpr size_t most_rows = 64;
    Page page{picture, {}, 0, 1, digits_of(picture.timeline), evenly(picture.timeline.ranks.size(), most_rows), 0, 0};
    page.scale = time_scale(page);
    page.left = margin + names_width(page) + 10 + page.scale * picture.lead;
    page.width = std::max({page.end() + page.scale * picture.lead + 10 + notes_width(page),
                           (picture.params.empty() ? 760.0 : 1240.0), margin + text_width(picture.title, 20)}) +
                 margin;
    // Font size of micro-batch numbers, limited by the shortest fragment as in time_scale().
    const double number_size = page.digits > 2 ? 7.5 : page.digits > 1 ? 8 : 10;
    draw_head(page);
    draw_key(page, has_numbers(page, number_size));
    draw_timeline(page, number_size);
    if (!picture.memory.empty()) draw_memory(page);
    if (!picture.params.empty()) draw_params(page);
    return page.canvas.finish(page.width, page.y + margin, picture.title,
                              style_sheet(chunks_of(picture.timeline), number_size), patterns);
}

}  // namespace orrery
