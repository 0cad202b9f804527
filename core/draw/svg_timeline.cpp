// Draws the timeline of the SVG: a row for each pipeline rank, and lanes of its communication if it is simulated.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "draw/page.h"
#include "draw/shares.h"
#include "draw/ticks.h"

namespace orrery::drawing {
namespace {

constexpr double tall = 20;  ///< height of a row from which on its fragments have numbers

/// How the rows of a section are drawn.
struct Rows {
    enum class Fragments {
        single,  ///< a box each, with tooltip and number
        joined,  ///< boxes of one path
        shares   ///< too short for boxes: the height of a colour is its share of the time
    };
    std::vector<size_t> ranks;
    double height = 26, gap = 4;
    bool lanes = false;
    bool notes = true;  ///< notes after the rows, which are about the whole step
    double lane_height = 9;
    size_t lane_boxes = 250;  ///< a lane with more intervals shows shares of the time instead of boxes
    double number_size = 10;
    Fragments fragments = Fragments::single;
    size_t fragment_bins = 1, lane_bins = 1;

    bool dense(const RankActivity::Lane& lane) const { return lane.busy.size() + lane.exposed.size() > lane_boxes; }

    /// Returns how many rows apart names have to be, so that they do not overlap.
    size_t named() const {
        size_t apart = 1;
        while (static_cast<double>(apart) * (height + gap) < 14) ++apart;
        return apart;
    }
};

/// Chooses how the rows are drawn, so that what is drawn can be read and the file stays below 2 MB.
Rows rows_of(const Page& page, const std::vector<size_t>& ranks, bool lanes, double number_size) {
    constexpr size_t most_single = 2500, most_joined = 20'000, most_steps = 45'000;
    Rows rows;
    const size_t count = std::max<size_t>(1, ranks.size());
    rows.height = count <= 8 ? 26 : count <= most_tall_rows ? tall : count <= 32 ? 13 : 8;
    rows.gap = lanes ? 8 : count <= most_tall_rows ? 4 : 1;
    rows.lanes = lanes;
    rows.lane_height = count <= 4 ? 18 : count <= 8 ? 13 : 9;
    rows.number_size = number_size;
    size_t fragments = 0;
    double shortest = 1e300;
    for (const size_t rank : ranks)
        for (const Slot& slot : page.picture.timeline.ranks[rank]) {
            ++fragments;
            if (slot.end > slot.start) shortest = std::min(shortest, static_cast<double>(slot.end - slot.start));
        }
    shortest *= page.scale;  // in pixels from here on
    if (fragments > most_single)
        rows.fragments = shortest < 1 || fragments > most_joined ? Rows::Fragments::shares : Rows::Fragments::joined;
    const double width = std::max(1.0, page.end() - page.left);
    const auto pixels = static_cast<size_t>(width);
    // Several fragments a bin, so that the share of a kind does not vary from bin to bin.
    rows.fragment_bins =
        std::min(static_cast<size_t>(1 + width / std::max(1.0, 8 * shortest)), most_steps / (3 * count));
    if (lanes)
        rows.lane_bins = std::min(pixels, most_steps / (2 * count * page.picture.activity[ranks.front()].lanes.size()));
    rows.ranks = ranks;
    return rows;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

double share_of(const Page& page, double time) {
    return time / static_cast<double>(std::max<int64_t>(1, page.picture.timeline.makespan));
}

std::string note_of(const Page& page, size_t rank) {
    const Timeline& t = page.picture.timeline;
    if (page.picture.activity.empty())
        return fmt::format("idle {}, holds {}", percent(share_of(page, static_cast<double>(t.idle(rank)))),
                           t.peak[rank]);
    const RankActivity& activity = page.picture.activity[rank];
    return fmt::format("computing {}, waiting {}, holds {}", percent(activity.computing), percent(activity.waiting),
                       t.peak[rank]);
}

std::string stages_text(const Timeline& timeline, size_t rank) {
    std::string list;
    const std::vector<int> stages = stages_of(timeline.ranks[rank]);
    if (stages.size() > 1)
        for (const int stage : stages) list += (list.empty() ? "" : ", ") + std::to_string(stage);
    return list;
}

/// Whether a fragment has space for the number of its micro-batch.
bool holds_number(const Page& page, const Slot& slot, const Rows& rows) {
    const double width = page.scale * static_cast<double>(slot.end - slot.start);
    return rows.height >= tall && width >= text_width(std::to_string(slot.fragment.micro), rows.number_size) + 1;
}

void draw_slot(Page& page, const Slot& slot, size_t rank, const Rows& rows) {
    if (slot.end == slot.start) return;
    const std::string text = std::to_string(slot.fragment.micro);
    const std::string look = letter_of(slot.fragment.kind) + std::to_string(slot.fragment.chunk);
    const double x = page.x(static_cast<double>(slot.start));
    const double width = page.scale * static_cast<double>(slot.end - slot.start);
    const double gap = std::min(1.0, width * 0.12);
    page.canvas.box(x + gap / 2, page.y, width - gap, rows.height, look,
                    fmt::format("{}{} of stage {} on pipeline rank {}: {} to {}", letter_of(slot.fragment.kind), text,
                                slot.stage, rank, time_text(page.picture, static_cast<double>(slot.start)),
                                time_text(page.picture, static_cast<double>(slot.end))),
                    width > 9 ? 2 : 0);
    if (holds_number(page, slot, rows))
        page.canvas.text(x + width / 2, page.y + rows.height / 2 + rows.number_size * 0.36, text, "n n" + look);
}

/// Draws all fragments of a rank that look the same as one path.
void draw_joined(Page& page, size_t rank, const Rows& rows) {
    const bool boxes = rows.fragments == Rows::Fragments::joined;
    const int middle =
        chunks_of(page.picture.timeline) / 2;  // chunk with the colour of all, if they have no colours of their own
    std::map<std::pair<Fragment::Kind, int>, Intervals> times;
    for (const Slot& slot : page.picture.timeline.ranks[rank])
        times[{slot.fragment.kind, boxes ? slot.fragment.chunk : middle}].emplace_back(slot.start, slot.end);
    std::vector<std::pair<std::string, std::string>> paths;
    std::vector<double> below(rows.fragment_bins, 0);
    for (const auto& [look, intervals] : times) {
        const std::string name = letter_of(look.first) + std::to_string(look.second);
        if (boxes) {
            paths.emplace_back(boxes_path(intervals, page.left, page.scale, page.y, rows.height, 0.4), name);
            continue;
        }
        const auto mine = shares(intervals, 0, static_cast<double>(page.picture.timeline.makespan), rows.fragment_bins);
        for (size_t bin = 0; bin < below.size(); ++bin) below[bin] = std::min(1.0, below[bin] + mine[bin]);
        paths.emplace_back(steps_path(below, page.left, page.end(), page.y + rows.height, rows.height), name);
    }
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) page.canvas.path(path->first, path->second);
}

void draw_lane(Page& page, const RankActivity::Lane& lane, const Rows& rows) {
    const double height = rows.lane_height, words = page.y + height / 2 + 3;
    page.canvas.box(page.left, page.y, page.end() - page.left, height, "lane");
    for (const auto& [times, look] : {std::pair{&lane.busy, "busy"}, {&lane.exposed, "exposed"}}) {
        if (times->empty()) continue;
        const auto makespan = static_cast<double>(page.picture.timeline.makespan);
        page.canvas.path(rows.dense(lane) ? steps_path(shares(*times, 0, makespan, rows.lane_bins), page.left,
                                                       page.end(), page.y + height, height)
                                          : boxes_path(*times, page.left, page.scale, page.y, height),
                         look);
    }
    page.canvas.text(page.left - 10, words, lane.axis, "tinyend");
    const double exposed = share_of(page, total(lane.exposed));
    page.canvas.text(
        page.end() + 10, words,
        fmt::format("exposed {}, hidden {}", percent(exposed), percent(share_of(page, total(lane.busy)) - exposed)),
        "tiny");
    page.y += height + 1;
}

void draw_row(Page& page, size_t rank, const Rows& rows, bool named) {
    const Timeline& t = page.picture.timeline;
    const double middle = page.y + rows.height / 2 + 4;
    if (named) {
        page.canvas.text(margin, middle, row_name(t, rank), "name");
        const std::string stages = stages_text(t, rank);
        if (!stages.empty()) page.canvas.text(page.left - 10 - page.scale * page.picture.lead, middle, stages, "end");
        if (rows.notes) page.canvas.text(page.end() + 10, middle, note_of(page, rank), "small");
    }
    page.canvas.box(page.left, page.y, page.end() - page.left, rows.height, "idle");
    if (rows.fragments == Rows::Fragments::single)
        for (const Slot& slot : t.ranks[rank]) draw_slot(page, slot, rank, rows);
    else
        draw_joined(page, rank, rows);
    if (!page.picture.activity.empty())
        page.canvas.path(boxes_path(page.picture.activity[rank].once, page.left, page.scale, page.y, rows.height),
                         "once");
    page.y += rows.height;
    if (rows.lanes) {
        page.y += 1;
        page.canvas.text(margin, page.y + 9, fmt::format("rank {}", page.picture.activity[rank].rank), "small");
        for (const RankActivity::Lane& lane : page.picture.activity[rank].lanes) draw_lane(page, lane, rows);
    }
    page.y += rows.gap;
}

void draw_time_axis(Page& page) {
    const Picture& picture = page.picture;
    const auto makespan = static_cast<double>(picture.timeline.makespan);
    const double label = text_width(time_text(picture, makespan), 11) + 14;
    const int most = std::max(2, static_cast<int>(makespan * page.scale / std::max(60.0, label)));
    Ticks ticks = plain_ticks(makespan, most, 1);
    if (picture.unit_s > 0) ticks = time_ticks(makespan * picture.unit_s, makespan * picture.unit_s, most);
    const double unit = picture.unit_s > 0 ? picture.unit_s : 1;
    page.canvas.line(page.left, page.y, page.end(), page.y, "axis");
    for (int64_t i = 0; static_cast<double>(i) * ticks.step <= makespan * unit * (1 + 1e-9); ++i) {
        const double at = static_cast<double>(i) * ticks.step;
        page.canvas.line(page.x(at / unit), page.y, page.x(at / unit), page.y + 4, "axis");
        page.canvas.text(page.x(at / unit), page.y + 16, ticks.text(at), "middle");
    }
    page.canvas.text(page.left, page.y + 32, "time, in " + (picture.unit_s > 0 ? ticks.name : "") + picture.unit,
                     "small");
    page.y += 32;
}

/// Returns what the legend cannot say about the way that rows are drawn; "": nothing.
std::string notes_of(const Page& page, const Rows& rows) {
    std::string note;
    if (rows.fragments == Rows::Fragments::shares)
        note = fmt::format("height of a colour: its share of the time{}",
                           chunks_of(page.picture.timeline) > 1 ? ", all chunks together" : "");
    const bool lanes = rows.lanes && std::ranges::any_of(rows.ranks, [&](size_t rank) {
                           return std::ranges::any_of(page.picture.activity[rank].lanes,
                                                      [&](const auto& lane) { return rows.dense(lane); });
                       });
    if (lanes) note += std::string(note.empty() ? "" : "; ") + "height in a lane: its share of the time";
    return note;
}

void draw_section(Page& page, const std::string& heading, const std::vector<std::string>& notes, const Rows& rows) {
    page.canvas.heading(margin, page.y, heading);
    for (const std::string& note : notes)
        for (const std::string& line : lines_of(note, 11, page.width - 2 * margin))
            if (!line.empty()) page.canvas.text(margin, page.y += 17, line, "small");
    const bool stages = std::ranges::any_of(
        rows.ranks, [&](size_t rank) { return stages_of(page.picture.timeline.ranks[rank]).size() > 1; });
    if (stages) page.canvas.text(page.left - 10 - page.scale * page.picture.lead, page.y += 17, "stages", "end");
    page.y += 12;
    const size_t apart = rows.named(), end = rows.ranks.size();
    for (size_t i = 0; i < end; ++i)  // the last row is always named
        draw_row(page, rows.ranks[i], rows, i + 1 == end || (i % apart == 0 && i + apart < end));
    page.y += 4;
    draw_time_axis(page);
}

/// Returns the range of exposed time over all pipeline ranks, by axis: "tp 3.1 % to 3.6 %, dp 0.2 %".
std::string exposed_text(const Page& page) {
    std::vector<std::string> texts;
    const auto& all = page.picture.activity;
    for (size_t lane = 0; lane < all.front().lanes.size(); ++lane) {
        double least = 1, most = 0;
        for (const RankActivity& activity : all) {
            const double share = share_of(page, total(activity.lanes[lane].exposed));
            least = std::min(least, share);
            most = std::max(most, share);
        }
        const std::string from = percent(least), to = percent(most);
        texts.push_back(all.front().lanes[lane].axis + " " + (from == to ? to : from + " to " + to));
    }
    return join(texts, ", ");
}

/// Returns the parts of the times within [from, to), as times after `from`.
Intervals cut(const Intervals& times, double from, double to) {
    Intervals parts;
    for (const auto& [begin, end] : times)
        if (begin < to && end > from) parts.emplace_back(std::max(begin, from) - from, std::min(end, to) - from);
    return parts;
}

/// Returns the picture of two neighbouring fragments in the middle of a pipeline rank's step; if there is one, of a
/// forward before a backward. The rows of other ranks are empty.
Picture enlarged(const Picture& picture, size_t rank) {
    const std::vector<Slot>& slots = picture.timeline.ranks[rank];
    size_t first = slots.size() / 2;
    for (size_t i = first; i + 1 < slots.size(); ++i)
        if (slots[i].fragment.kind == Fragment::Kind::forward &&
            slots[i + 1].fragment.kind == Fragment::Kind::backward) {
            first = i;
            break;
        }
    Picture part;
    part.schedule = picture.schedule;
    part.unit_s = picture.unit_s;
    if (first + 1 >= slots.size()) return part;
    const int64_t from = slots[first].start, to = std::max(slots[first].end, slots[first + 1].end);
    part.unit = fmt::format(" after {}", time_text(picture, static_cast<double>(from)));
    part.timeline.makespan = to - from;
    part.timeline.ranks.resize(rank + 1);
    part.activity.resize(rank + 1);
    auto& row = part.timeline.ranks[rank];
    for (const Slot& slot : slots)
        if (slot.start < to && slot.end > from)
            row.push_back(
                {slot.fragment, slot.stage, std::max(slot.start, from) - from, std::min(slot.end, to) - from});
    RankActivity& activity = part.activity[rank] = picture.activity[rank];
    const auto begin = static_cast<double>(from), end = static_cast<double>(to);
    activity.once = cut(activity.once, begin, end);
    for (RankActivity::Lane& lane : activity.lanes) {
        lane.busy = cut(lane.busy, begin, end);
        lane.exposed = cut(lane.exposed, begin, end);
    }
    return part;
}

/// Draws two fragments of the pipeline rank that waits longest for communication over the whole width, so that each
/// message can be seen.
void draw_enlarged(Page& page, double number_size) {
    constexpr double shortest = 0.25;
    constexpr size_t most_boxes = 1500;
    size_t rank = 0;
    double most = 0;
    for (size_t r = 0; r < page.picture.activity.size(); ++r) {
        double exposed = 0;
        for (const RankActivity::Lane& lane : page.picture.activity[r].lanes) exposed += total(lane.exposed);
        if (exposed <= most) continue;
        most = exposed;
        rank = r;
    }
    const Picture part = enlarged(page.picture, rank);
    const auto span = static_cast<double>(part.timeline.makespan);
    if (span <= 0 || span > shortest * static_cast<double>(page.picture.timeline.makespan)) return;
    page.y += 40;
    const double scale = (page.end() - page.left) / span;
    Page inner{part, std::move(page.canvas), page.left, scale, page.digits, {rank}, page.y, page.width};
    Rows rows = rows_of(inner, {rank}, true, number_size);
    rows.notes = false;
    rows.lane_boxes = most_boxes;
    draw_section(
        inner, "Enlarged",
        {fmt::format("two fragments in the middle of the step, on pipeline rank {}, which has the longest exposed "
                     "communication; percentages are of the time shown here",
                     rank)},
        rows);
    page.canvas = std::move(inner.canvas);
    page.y = inner.y;
}

}  // namespace

bool has_numbers(const Page& page, double number_size) {
    const Rows rows = rows_of(page, page.ranks, false, number_size);
    if (rows.fragments != Rows::Fragments::single) return false;
    return std::ranges::any_of(page.ranks, [&](size_t rank) {
        return std::ranges::any_of(page.picture.timeline.ranks[rank],
                                   [&](const Slot& slot) { return holds_number(page, slot, rows); });
    });
}

double names_width(const Page& page) {
    const Timeline& t = page.picture.timeline;
    double width = 0;
    for (const size_t rank : page.ranks) {
        const std::string stages = stages_text(t, rank);
        width = std::max(width, text_width(row_name(t, rank), 12) + (stages.empty() ? 0 : 12 + text_width(stages, 11)));
    }
    for (const RankActivity& activity : page.picture.activity)
        for (const RankActivity::Lane& lane : activity.lanes)
            width =
                std::max(width, text_width(fmt::format("rank {}", activity.rank), 11) + 12 + text_width(lane.axis, 9));
    for (const MemoryCurve& curve : page.picture.memory) width = std::max(width, text_width(curve.ranks, 11));
    return width;
}

double notes_width(const Page& page) {
    double width = text_width("peak 1023.9 GiB", 11);
    for (const size_t rank : page.ranks) width = std::max(width, text_width(note_of(page, rank), 11));
    return width;
}

void draw_timeline(Page& page, double number_size) {
    constexpr size_t few = 4;
    const size_t count = page.picture.timeline.ranks.size();
    const auto& activity = page.picture.activity;
    const bool lanes = !activity.empty() && !activity.front().lanes.empty();
    const bool thin = count > most_tall_rows;
    const Rows rows = rows_of(page, page.ranks, lanes && !thin, number_size);
    draw_section(page, "Timeline", {chosen_text(rows.ranks.size(), count, "pipeline rank"), notes_of(page, rows)},
                 rows);
    if (!lanes) return;
    Rows chosen = rows;
    if (thin) {
        page.y += 40;
        chosen = rows_of(page, evenly(count, few), true, number_size);
        draw_section(
            page, "Communication",
            {chosen_text(few, count, "pipeline rank"), "exposed on all: " + exposed_text(page), notes_of(page, chosen)},
            chosen);
    }
    const bool dense = std::ranges::any_of(activity, [&](const RankActivity& of) {
        return std::ranges::any_of(of.lanes, [&](const auto& lane) { return chosen.dense(lane); });
    });
    if (dense) draw_enlarged(page, number_size);
}

}  // namespace orrery::drawing
