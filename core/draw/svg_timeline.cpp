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

constexpr double lane_height = 9, lane_pitch = 10;

/// Whether a lane has too many intervals to draw a box for each; it then shows shares of the time.
bool dense(const RankActivity::Lane& lane) { return lane.busy.size() + lane.exposed.size() > 250; }

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
    double number_size = 10;
    Fragments fragments = Fragments::single;
    size_t fragment_bins = 1, lane_bins = 1;

    /// Returns how many rows apart names have to be, so that they do not overlap.
    size_t named() const {
        size_t apart = 1;
        while (static_cast<double>(apart) * (height + gap) < 14) ++apart;
        return apart;
    }
};

/// Chooses how the rows are drawn, so that what is drawn can be read and the file stays below 2 MB.
Rows rows_of(const Page& page, std::vector<size_t> ranks, bool lanes, double number_size) {
    constexpr size_t most_single = 2500, most_steps = 45'000;
    constexpr double shortest_box = 3;
    Rows rows;
    const size_t count = std::max<size_t>(1, ranks.size());
    rows.height = count <= 8 ? 26 : count <= most_tall_rows ? 20 : count <= 32 ? 13 : 8;
    rows.gap = lanes ? 8 : count <= most_tall_rows ? 4 : 1;
    rows.lanes = lanes;
    rows.number_size = number_size;
    size_t fragments = 0;
    double shortest = 1e300;
    for (const size_t rank : ranks)
        for (const Slot& slot : page.picture.timeline.ranks[rank]) {
            ++fragments;
            if (slot.end > slot.start) shortest = std::min(shortest, static_cast<double>(slot.end - slot.start));
        }
    if (fragments > most_single)
        rows.fragments = shortest * page.scale < shortest_box ? Rows::Fragments::shares : Rows::Fragments::joined;
    const auto pixels = static_cast<size_t>(std::max(1.0, page.end() - page.left));
    rows.fragment_bins = std::min(pixels, most_steps / (3 * count));
    if (lanes) rows.lane_bins = std::min(pixels, most_steps / (2 * count * page.picture.activity.front().lanes.size()));
    rows.ranks = std::move(ranks);
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
    if (width >= text_width(text, rows.number_size) + 1 && rows.height >= 20)
        page.canvas.text(x + width / 2, page.y + rows.height / 2 + rows.number_size * 0.36, text, "n n" + look);
}

/// Draws all fragments of a rank that look the same as one path.
void draw_joined(Page& page, size_t rank, const Rows& rows) {
    const bool boxes = rows.fragments == Rows::Fragments::joined;
    const int middle =
        chunks_of(page.picture.timeline) / 2;  // chunk with the colour of all, if they are not told apart
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
    const double floor = page.y + lane_height;
    page.canvas.box(page.left, page.y, page.end() - page.left, lane_height, "lane");
    for (const auto& [times, look] : {std::pair{&lane.busy, "busy"}, {&lane.exposed, "exposed"}}) {
        if (times->empty()) continue;
        const auto makespan = static_cast<double>(page.picture.timeline.makespan);
        page.canvas.path(dense(lane) ? steps_path(shares(*times, 0, makespan, rows.lane_bins), page.left, page.end(),
                                                  floor, lane_height)
                                     : boxes_path(*times, page.left, page.scale, page.y, lane_height),
                         look);
    }
    page.canvas.text(page.left - 10, floor - 1.5, lane.axis, "tinyend");
    const double exposed = share_of(page, total(lane.exposed));
    page.canvas.text(
        page.end() + 10, floor - 1.5,
        fmt::format("exposed {}, hidden {}", percent(exposed), percent(share_of(page, total(lane.busy)) - exposed)),
        "tiny");
    page.y += lane_pitch;
}

void draw_row(Page& page, size_t rank, const Rows& rows, bool named) {
    const Timeline& t = page.picture.timeline;
    const double middle = page.y + rows.height / 2 + 4;
    if (named) {
        page.canvas.text(margin, middle, row_name(t, rank), "name");
        const std::string stages = stages_text(t, rank);
        if (!stages.empty()) page.canvas.text(page.left - 10 - page.scale * page.picture.lead, middle, stages, "end");
        page.canvas.text(page.end() + 10, middle, note_of(page, rank), "small");
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
    page.canvas.text(page.left, page.y + 32, "time, in " + (picture.unit_s > 0 ? ticks.name : picture.unit), "small");
    page.y += 32;
}

/// Returns what the legend cannot say about the way that rows are drawn; "": nothing.
std::string notes_of(const Page& page, const Rows& rows) {
    std::string note;
    if (rows.fragments == Rows::Fragments::shares)
        note = fmt::format("height of a colour: its share of the time{}",
                           chunks_of(page.picture.timeline) > 1 ? ", all chunks together" : "");
    const bool lanes = rows.lanes && std::ranges::any_of(rows.ranks, [&](size_t rank) {
                           return std::ranges::any_of(page.picture.activity[rank].lanes, dense);
                       });
    if (lanes) note += std::string(note.empty() ? "" : "; ") + "height in a lane: its share of the time";
    return note;
}

void draw_section(Page& page, const std::string& heading, const std::vector<std::string>& notes, const Rows& rows) {
    page.canvas.heading(margin, page.y, heading);
    for (const std::string& note : notes)
        for (const std::string& line : lines_of(note, 11, page.width - 2 * margin))
            if (!line.empty()) page.canvas.text(margin, page.y += 17, line, "small");
    const bool stages = chunks_of(page.picture.timeline) > 1;
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

}  // namespace

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
    if (!lanes || !thin) return;
    page.y += 40;
    const Rows chosen = rows_of(page, evenly(count, few), true, number_size);
    draw_section(
        page, "Communication",
        {chosen_text(few, count, "pipeline rank"), "exposed on all: " + exposed_text(page), notes_of(page, chosen)},
        chosen);
}

}  // namespace orrery::drawing
