// Draws a picture in characters. Colour is never needed to read it: letters are F, B and W, lower case is an odd chunk.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "draw/parts.h"
#include "draw/shares.h"
#include "draw/ticks.h"

namespace orrery {
namespace drawing {
namespace {

/// One character. `look`: its background colour, as 2 * Fragment::Kind, plus 1 for an odd chunk; -1: none.
struct Cell {
    char letter = ' ';
    int look = -1;
};
using Row = std::vector<Cell>;
constexpr size_t most_rows = 32;

/// Returns part of a row as text. `colour`: adds xterm background colours: blue, orange and green, pale and strong.
std::string painted(const Row& row, size_t from, size_t to, bool colour) {
    constexpr int backgrounds[] = {117, 74, 222, 215, 115, 72};
    std::string out;
    int look = -1;
    for (size_t i = from; i < std::min(to, row.size()); ++i) {
        if (colour && row[i].look != look) {
            look = row[i].look;
            out += look < 0 ? "\033[0m" : fmt::format("\033[30;48;5;{}m", backgrounds[look]);
        }
        out += row[i].letter;
    }
    if (look >= 0) out += "\033[0m";
    return out;
}

struct Scale {
    double columns = 1;
    size_t band = 0;      ///< columns per band, a group of lines with one line per rank
    bool numbers = true;  ///< true: fragments show the number of their micro-batch
    bool each = true;     ///< true: each fragment has a column; false: a column shows the longest part of its time
    size_t at(int64_t time) const { return std::lround(static_cast<double>(time) * columns); }
};

/// Chooses the widest scale that fits: with micro-batch numbers if four bands hold it, else with a letter for each unit
/// if six bands do, else so that it fits into one band.
Scale scale_of(const Timeline& t, size_t room) {
    int64_t shortest = t.makespan, largest = 0;
    for (const auto& slots : t.ranks)
        for (const Slot& slot : slots) {
            if (slot.end > slot.start) shortest = std::min(shortest, slot.end - slot.start);
            largest = std::max(largest, slot.fragment.micro);
        }
    const size_t needed = std::to_string(largest).size() + 1;
    const auto one = static_cast<double>(std::max<int64_t>(1, shortest));
    const double units = static_cast<double>(std::max<int64_t>(1, t.makespan)) / one, width = static_cast<double>(room);
    const size_t numbers_band = std::max<size_t>(1, room / needed) * needed;
    if (static_cast<double>(needed) * units <= 4 * width)
        return {static_cast<double>(needed) / one, numbers_band, true};
    if (units <= 6 * width) return {1 / one, room, false};
    return {width / units / one, room, false, false};
}

std::string letter_text(const Fragment& f) {
    std::string text = letter_of(f.kind);
    if (f.chunk % 2 != 0) text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text;
}

int look_of(const Fragment& f) { return 2 * static_cast<int>(f.kind) + (f.chunk % 2 != 0); }

/// Returns a row of columns that show the look with the largest share of their time; ".": idle time has it; "x": at
/// least two looks have a tenth each.
Row dense_row(const std::vector<Slot>& slots, int64_t makespan, size_t columns) {
    std::map<int, std::pair<std::string, Intervals>> looks;
    for (const Slot& slot : slots) {
        auto& [letter, times] = looks[look_of(slot.fragment)];
        letter = letter_text(slot.fragment);
        times.emplace_back(slot.start, slot.end);
    }
    Row row(columns, Cell{'.', -1});
    std::vector<double> idle(columns, 1), most(columns, 0);
    for (const auto& [look, of] : looks) {
        const std::vector<double> share = shares(of.second, 0, static_cast<double>(makespan), columns);
        for (size_t i = 0; i < columns; ++i) {
            idle[i] -= share[i];
            const bool several = std::min(share[i], most[i]) >= 0.1;
            if (share[i] > most[i]) row[i] = {of.first[0], look};
            if (several) row[i].letter = 'x';
            most[i] = std::max(most[i], share[i]);
        }
    }
    for (size_t i = 0; i < columns; ++i)
        if (idle[i] >= most[i]) row[i] = {'.', -1};
    return row;
}

Row row_of(const std::vector<Slot>& slots, const Scale& scale, size_t columns) {
    Row row(columns, Cell{'.', -1});
    for (const Slot& slot : slots) {
        const size_t from = scale.at(slot.start), to = std::min(columns, scale.at(slot.end));
        const int look = look_of(slot.fragment);
        std::string text = letter_text(slot.fragment);
        if (scale.numbers) text += std::to_string(slot.fragment.micro);
        for (size_t i = from; i < to; ++i) row[i] = {i - from < text.size() ? text[i - from] : '-', look};
    }
    return row;
}

std::string axis_text(const Scale& scale, size_t from, size_t to) {
    const double span = static_cast<double>(to - from) / scale.columns;
    const Ticks ticks = plain_ticks(span, static_cast<int>(std::max<size_t>(2, (to - from) / 8)), 1);
    const double step = ticks.step;
    std::string line;
    for (double at = std::ceil(static_cast<double>(from) / scale.columns / step) * step;; at += step) {
        const size_t column = std::lround(at * scale.columns);
        if (column >= to) return line;
        const std::string label = ticks.text(at);
        if (column - from < line.size() + (line.empty() ? 0 : 1) || column - from + label.size() > scale.band) continue;
        line.resize(column - from, ' ');
        line += label;
    }
}

size_t label_width(const Timeline& t) {
    size_t width = 0;
    for (size_t r = 0; r < t.ranks.size(); ++r) width = std::max(width, row_name(t, r).size());
    return width + 2;
}

std::string timeline_text(const Picture& picture, const TextStyle& style) {
    const Timeline& t = picture.timeline;
    const size_t label = label_width(t);
    const Scale scale = scale_of(t, style.width - label);
    const size_t columns = scale.at(t.makespan);
    const std::vector<size_t> ranks = evenly(t.ranks.size(), most_rows);
    std::vector<Row> rows;
    for (const size_t r : ranks)
        rows.push_back(scale.each ? row_of(t.ranks[r], scale, columns) : dense_row(t.ranks[r], t.makespan, columns));
    std::string out = chosen_text(ranks.size(), t.ranks.size(), "pipeline rank");
    if (!out.empty()) out += "\n";
    for (size_t from = 0; from < columns; from += scale.band) {
        const size_t to = std::min(columns, from + scale.band);
        for (size_t r = 0; r < rows.size(); ++r)
            out += fmt::format("{:<{}}{}\n", row_name(t, ranks[r]), label, painted(rows[r], from, to, style.colour));
        out += fmt::format("{:<{}}{}\n\n", "", label, axis_text(scale, from, to));
    }
    const bool split = splits_weights(picture.schedule);
    out += fmt::format("F forward, B backward{}, {}. idle{}\n", split ? " of inputs, W of weights" : "",
                       scale.numbers ? "number: micro-batch, "
                       : scale.each  ? "too narrow for numbers, "
                                     : "a column shows what takes the largest part of its time, x: several in turn, ",
                       chunks_of(t) > 1 ? ", lower case: odd chunks" : "");
    return out + "time in " + picture.unit + "\n";
}

std::vector<MemoryCurve::Point> columns_of(const MemoryCurve& curve, double from, double to, size_t columns) {
    std::vector<MemoryCurve::Point> full(columns);
    std::vector<char> seen(columns, 0);
    for (const MemoryCurve::Point& p : curve.points) {
        const double place = (p.time - from) / (to - from) * static_cast<double>(columns);
        const size_t at = std::min(columns - 1, static_cast<size_t>(std::max(0.0, place)));
        if (seen[at] && p.all() <= full[at].all()) continue;
        full[at] = p;
        seen[at] = 1;
    }
    for (size_t i = 1; i < columns; ++i)
        if (!seen[i]) full[i] = full[i - 1];
    return full;
}

std::string memory_text(const Picture& picture, const TextStyle& style) {
    int64_t top = 1;
    for (const MemoryCurve& curve : picture.memory) top = std::max(top, curve.peak);
    const std::vector<const MemoryCurve*> curves = chosen_curves(picture);
    size_t label = std::max<size_t>(label_width(picture.timeline), 10);
    for (const MemoryCurve* curve : curves) label = std::max(label, curve->ranks.size() + 2);
    const auto columns = static_cast<size_t>(std::max<int64_t>(8, style.width - static_cast<int64_t>(label) - 16));
    const int lines = curves.size() <= 2 ? 6 : curves.size() <= 4 ? 4 : 2;
    const double to = static_cast<double>(picture.timeline.makespan) + picture.lead;
    std::string out = "Memory of a rank: bytes alive over one step\n";
    if (curves.size() < picture.memory.size())
        out += fmt::format("{} of {} classes of ranks, the fullest among them\n", curves.size(), picture.memory.size());
    for (const MemoryCurve* chosen : curves) {
        const MemoryCurve& curve = *chosen;
        const auto points = columns_of(curve, -picture.lead, to, columns);
        for (int line = lines; line-- > 0;) {
            // The memory curve fills a character if it reaches the middle of the character's cell.
            const double level = (line + 0.5) / lines * static_cast<double>(top);
            std::string cells;
            for (const MemoryCurve::Point& p : points) {
                const auto rest = static_cast<double>(curve.persistent);
                const double gradients = rest + static_cast<double>(p.gradients);
                const double copies = gradients + static_cast<double>(p.param_copies);
                const double activations = copies + static_cast<double>(p.activations);
                const double all = rest + static_cast<double>(p.all());
                cells += level < rest          ? ':'
                         : level < gradients   ? 'g'
                         : level < copies      ? 'c'
                         : level < activations ? '#'
                         : level < all         ? '+'
                                               : ' ';
            }
            const std::string name = line == lines - 1   ? row_name(picture.timeline, curve.rank)
                                     : line == lines - 2 ? curve.ranks
                                                         : "";
            const std::string peak = line == lines - 1 ? "peak " + bytes_text(curve.peak) : "";
            out += fmt::format("{:<{}}{}  {}\n", name, label, cells, peak);
        }
        out += "\n";
    }
    out +=
        ": params, optimizer state, inputs   g gradients   c param copies   # activations   + kernels' workspace   "
        "height " +
        bytes_text(top) + "\n";
    if (picture.memory_limit > 0) out += "limit " + bytes_text(picture.memory_limit) + "\n";
    return out;
}

std::string wrapped(const std::vector<std::string>& pieces, size_t width, const std::string& indent) {
    std::string out, line = indent;
    for (const std::string& piece : pieces) {
        if (line.size() > indent.size() && line.size() + 3 + piece.size() > width) {
            out += line + "\n";
            line = indent;
        }
        line += (line.size() > indent.size() ? "   " : "") + piece;
    }
    return out + line + "\n";
}

std::string view_text(const LayoutView& view) {
    return fmt::format("{} {}{}", view.text, view.parts > 1 ? fmt::format("1/{} ", view.parts) : "",
                       bytes_text(view.bytes));
}

/// Returns texts of a param's layouts, equal ones joined: "at rest = as read: whole 1.5 KiB", "state: whole 3 KiB".
std::vector<std::string> view_texts(const ParamRow& row) {
    std::vector<std::pair<std::string, std::string>> views;  // names of layouts that are equal, and their common text
    for (const auto& [name, view] : {std::pair<std::string, const LayoutView*>{"at rest", &row.rest},
                                     {"as read", &row.read},
                                     {"gradient", &row.grad},
                                     {"state", &row.state}}) {
        if (view->text.empty()) continue;
        const std::string what = view_text(*view);
        if (!views.empty() && views.back().second == what)
            views.back().first += " = " + name;
        else
            views.emplace_back(name, what);
    }
    std::vector<std::string> texts;
    for (const auto& [names, what] : views) texts.push_back(names + ": " + what);
    return texts;
}

std::string params_text(const Picture& picture, const TextStyle& style) {
    std::string out =
        fmt::format("Layout of each parameter on {}: dim/axis that splits it, share and bytes of a rank\n",
                    picture.mesh.empty() ? "one rank" : picture.mesh);
    const size_t width = style.width;
    for (const ParamRow& row : picture.params) {
        std::vector<std::string> head{row.name, row.type};
        if (row.count > 1) head.push_back(fmt::format("{} of them", row.count));
        if (!row.where.empty()) head.push_back("on " + row.where);
        out += wrapped(head, width, "");
        out += wrapped(view_texts(row), width, "  ");
    }
    return out;
}

}  // namespace
}  // namespace drawing

std::string draw_text(const Picture& picture, const TextStyle& asked) {
    using namespace drawing;
    const TextStyle style{std::max(40, asked.width), asked.colour};
    std::string out = picture.title + "\n";
    for (const std::string& fact : picture.facts) out += "  " + fact + "\n";
    out += "\n" + timeline_text(picture, style);
    if (!picture.memory.empty()) out += "\n" + memory_text(picture, style);
    if (!picture.params.empty()) out += "\n" + params_text(picture, style);
    return out;
}

}  // namespace orrery
