#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "draw/page.h"

namespace orrery::drawing {
namespace {

constexpr double first_column = 300, column_width = 234, box_width = 72, box_height = 34, line_height = 14;
/// Formats the coordinates of block number `index` on the axes that split a dim: "2" or "1,3".
std::string coordinates(int64_t index, const std::vector<int64_t>& sizes) {
    std::string text;
    for (size_t i = sizes.size(); i-- > 0; index /= sizes[i])
        text = std::to_string(index % sizes[i]) + (text.empty() ? "" : ",") + text;
    return text;
}

/// Draws a tensor as a rectangle, cut where axes split it: its first dim is vertical, all others are horizontal. The
/// block of rank 0 is dark. At most 16 parts down and 32 to the right are drawn; the share is in the text.
void draw_blocks(Page& page, double x, double y, const LayoutView& view, int rank) {
    std::vector<int64_t> down, right;
    for (const LayoutView::Split& split : view.splits)
        (split.dim == 0 && rank > 1 ? down : right).push_back(split.size);
    const double height = rank > 1 ? box_height : 14;
    auto count = [](const std::vector<int64_t>& sizes) {
        int64_t n = 1;
        for (int64_t size : sizes) n *= size;
        return n;
    };
    const int64_t rows = count(down), columns = count(right);
    const int64_t shown_rows = std::min<int64_t>(rows, 16), shown_columns = std::min<int64_t>(columns, 32);
    const double h = height / static_cast<double>(shown_rows), w = box_width / static_cast<double>(shown_columns);
    page.canvas.box(x, y, box_width, height, "part");
    page.canvas.box(x, y, w, h, "mine");
    std::string cuts;
    for (int64_t i = 1; i < shown_rows; ++i)
        cuts += fmt::format("M{}h{}", point(x, y + h * static_cast<double>(i)), number(box_width));
    for (int64_t j = 1; j < shown_columns; ++j)
        cuts += fmt::format("M{}v{}", point(x + w * static_cast<double>(j), y), number(height));
    if (!cuts.empty()) page.canvas.path(cuts, "cut");
    const bool partial = view.text.find("partial") != std::string::npos;
    if (partial) page.canvas.box(x, y, w, h, "sum");
    if (rows != shown_rows || columns != shown_columns || rows * columns == 1 || h < 9) return;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
            const std::string a = down.empty() ? "" : coordinates(i, down);
            const std::string b = right.empty() ? "" : coordinates(j, right);
            const std::string label = a + (a.empty() || b.empty() ? "" : ",") + b;
            if (text_width(label, 8) <= w)
                page.canvas.text(x + w * (static_cast<double>(j) + 0.5), y + h * (static_cast<double>(i) + 0.5) + 3,
                                 label, i + j == 0 ? "light" : "inside");
        }
}

double draw_view(Page& page, double x, const LayoutView& view, const ParamRow& row) {
    if (view.text.empty()) {
        if (view.bytes == 0) page.canvas.text(x, page.y + 11, "none", "small");
        return line_height;
    }
    draw_blocks(page, x, page.y, view, row.rank);
    double y = page.y + 10;
    for (const std::string& line : lines_of(view.text, 11, column_width - box_width - 16)) {
        page.canvas.text(x + box_width + 8, y, line, "small");
        y += line_height;
    }
    const std::string share = view.parts == 1 ? "" : fmt::format("1/{}: ", view.parts);
    page.canvas.text(x + box_width + 8, y, share + bytes_text(view.bytes), "small");
    return std::max(y + 4 - page.y, row.rank > 1 ? box_height : line_height);
}

double draw_name(Page& page, const ParamRow& row) {
    double y = page.y + 10;
    const std::string times = row.count > 1 ? fmt::format(" ({} of them)", row.count) : "";
    constexpr size_t longest = 40;
    const std::string name = row.name.size() <= longest ? row.name
                                                        : row.name.substr(0, longest / 2 - 2) + "..." +
                                                              row.name.substr(row.name.size() - longest / 2);
    page.canvas.text(margin, y, name, "name");
    page.canvas.text(margin, y += line_height, row.type + times, "small");
    if (!row.where.empty()) page.canvas.text(margin, y += line_height, "on " + row.where, "small");
    return y + 4 - page.y;
}

}  // namespace

void draw_params(Page& page) {
    page.y += 40;
    page.canvas.heading(margin, page.y,
                        "Layout of each parameter on " + (page.picture.mesh.empty() ? "one rank" : page.picture.mesh));
    page.canvas.text(
        margin, page.y += 18,
        "first dim down, the others right, cut by the axes that split them (at most 16 and 32 parts are drawn); "
        "numbers "
        "are coordinates on these axes; dark: what rank 0 holds; striped: a part of a sum; bytes: on each rank",
        "small");
    page.y += 24;
    const char* columns[] = {"at rest", "as read", "gradient", "optimizer state"};
    for (int c = 0; c < 4; ++c) page.canvas.text(margin + first_column + c * column_width, page.y, columns[c], "name");
    page.y += 8;
    for (const ParamRow& row : page.picture.params) {
        page.canvas.line(margin, page.y, margin + first_column + 4 * column_width, page.y, "rule");
        page.y += 8;
        double height = draw_name(page, row);
        const LayoutView* views[] = {&row.rest, &row.read, &row.grad, &row.state};
        for (int c = 0; c < 4; ++c)
            height = std::max(height, draw_view(page, margin + first_column + c * column_width, *views[c], row));
        page.y += height + 6;
    }
}

}  // namespace orrery::drawing
