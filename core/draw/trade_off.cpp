#include "draw/trade_off.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/text.h"
#include "draw/canvas.h"
#include "draw/ticks.h"

namespace orrery {
namespace drawing {
namespace {

constexpr double edge = 28, left = 96, wide = 780, high = 400, badge = 9;

/// Colours: Okabe and Ito's blue. Marks of ways that do not fit are hollow too, so that colour is not needed.
constexpr std::string_view style =
    "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:12px;fill:#222}\n"
    ".paper{fill:#fff}\n.title{font-size:20px;font-weight:bold}\n.heading{font-size:14px;font-weight:bold}\n"
    ".fact{fill:#555}\n.small{font-size:11px;fill:#555}\n.end{text-anchor:end;font-size:11px;fill:#555}\n"
    ".middle{text-anchor:middle;font-size:11px;fill:#555}\n.number{text-anchor:end;font-size:12px}\n"
    ".rule{stroke:#e3e6ea}\n.axis{stroke:#888}\n.limit{stroke:#b00020;stroke-width:1.5;stroke-dasharray:5 3}\n"
    ".over{fill:#fdf1f2}\n.red{font-size:11px;fill:#b00020}\n"
    ".way{fill:#b9c0cb}\n.front{fill:#0072b2}\n.frontier{stroke:#0072b2;stroke-width:1.5;fill:none}\n"
    ".unfit{fill:#fff;stroke:#b00020;stroke-width:1.2}\n.lead{stroke:#555;stroke-width:0.8}\n"
    ".badge{fill:#fff;stroke:#222;stroke-width:1.2}\n"
    ".place{text-anchor:middle;font-size:10px;font-weight:bold;fill:#111}\n";

struct Spot {
    double x = 0, y = 0;
};

double distance(Spot a, Spot b) { return std::sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)); }

class TradeOffDrawing {
public:
    explicit TradeOffDrawing(const TradeOff& all) : all_(all), front_(pareto_front(all)) {
        for (const TradeOff::Way& way : all.ways)
            if (fits(way)) best_ = best_ == 0 ? way.step_s : std::min(best_, way.step_s);
        if (best_ == 0)
            for (const TradeOff::Way& way : all.ways) best_ = best_ == 0 ? way.step_s : std::min(best_, way.step_s);
        first_ = best_;  // begins at the fastest way that fits; faster ways are added below
        for (const TradeOff::Way& way : all.ways) {
            if (!shown(way)) continue;
            first_ = std::min(first_, way.step_s);
            slowest_ = std::max(slowest_, way.step_s);
            largest_ = std::max(largest_, way.memory_bytes);
        }
        first_ -= 0.02 * std::max(slowest_ - first_, first_);
        last_ = std::max(slowest_, best_ * 1.1) + (std::max(slowest_, best_ * 1.1) - first_) * 0.03;
        // A limit far above all ways would flatten them; it is only written.
        near_ = all.memory_limit > 0 && (largest_ <= 0 || all.memory_limit < 3 * largest_);
        top_ = 1.06 * (near_ ? std::max(largest_, all.memory_limit) : largest_);
        if (top_ <= 0) top_ = 1;
    }

    std::string svg() {
        canvas_.text(edge, y_ += edge + 18, all_.title, "title");
        for (const std::string& fact : all_.facts) canvas_.text(edge, y_ += 20, fact, "fact");
        key(y_ += 30);
        from_ = y_ + 34;
        axes();
        frontier();
        marks();
        badges();
        y_ = from_ + high + 52;
        list();
        double width =
            std::max(left + wide + 8 + text_width(all_.limit_name, 11) + edge, text_width(all_.title, 20) + 2 * edge);
        for (const std::string& fact : all_.facts) width = std::max(width, text_width(fact, 12) + 2 * edge);
        for (const TradeOff::Way& way : all_.ways)
            if (way.place > 0) width = std::max(width, edge + 186 + text_width(way.words, 12) + edge);
        return canvas_.finish(width, y_ + edge, all_.title, style, "");
    }

private:
    bool fits(const TradeOff::Way& way) const { return all_.fits(way); }
    bool shown(const TradeOff::Way& way) const {
        const double limit = all_.limit_of(way);
        return way.step_s <= 2 * best_ && (limit == 0 || way.memory_bytes <= 2 * limit);
    }
    double x(double step_s) const { return left + wide * (step_s - first_) / (last_ - first_); }
    double y(double bytes) const { return from_ + high * (1 - bytes / top_); }
    Spot spot(const TradeOff::Way& way) const { return {x(way.step_s), y(way.memory_bytes)}; }

    void key(double at) {
        double from = edge + badge - 2;
        const auto words = [&](std::string_view text) {
            canvas_.text(from + 10, at + 4, text, "small");
            from += 10 + text_width(text, 11) + 18;
        };
        canvas_.dot(from, at, 4.5, "front");
        words("nothing that fits is both as fast and as small (Pareto front)");
        canvas_.dot(from, at, 3.5, "way");
        words("others that fit");
        canvas_.dot(from, at, 3.5, "unfit");
        words("do not fit");
        canvas_.dot(from, at, badge - 2, "badge");
        words("the fastest, numbered as below");
    }

    void axes() {
        if (near_) canvas_.box(left, from_, wide, y(all_.memory_limit) - from_, "over");
        const Ticks bytes = byte_ticks(top_, 8);
        for (int i = 0; i * bytes.step <= top_; ++i) {
            const double at = i * bytes.step;
            canvas_.line(left, y(at), left + wide, y(at), i == 0 ? "axis" : "rule");
            canvas_.text(left - 8, y(at) + 4, bytes.text(at) + " " + bytes.name, "end");
        }
        const Ticks times = time_ticks(last_ - first_, last_, 9);
        for (double i = std::ceil(first_ / times.step); i * times.step <= last_; ++i) {
            const double at = i * times.step;
            canvas_.line(x(at), from_ + high, x(at), from_ + high + 4, "axis");
            canvas_.text(x(at), from_ + high + 17, times.text(at), "middle");
        }
        std::string name = all_.memory_name;
        const std::string bytes_limit = bytes_text(static_cast<int64_t>(all_.memory_limit));
        if (all_.memory_limit > 0 && !near_) name += fmt::format("; {} {}, far above", all_.limit_name, bytes_limit);
        canvas_.text(left, from_ - 8, name, "small");
        canvas_.text(left + wide, from_ + high + 34, "time of a step, in " + times.name, "end");
        if (!near_) return;
        const double limit = y(all_.memory_limit);
        canvas_.line(left, limit, left + wide, limit, "limit");
        canvas_.text(left + wide + 8, limit - 2, all_.limit_name, "red");
        canvas_.text(left + wide + 8, limit + 12, bytes_limit, "red");
    }

    void frontier() {
        std::vector<Spot> spots;
        for (size_t i = 0; i < all_.ways.size(); ++i)
            if (front_[i] && shown(all_.ways[i])) spots.push_back(spot(all_.ways[i]));
        std::sort(spots.begin(), spots.end(), [](Spot a, Spot b) { return a.x < b.x; });
        std::string path;
        for (size_t i = 0; i < spots.size(); ++i) {
            if (i > 0) path += "L" + point(spots[i].x, spots[i - 1].y);
            path += (path.empty() ? "M" : "L") + point(spots[i].x, spots[i].y);
        }
        if (spots.size() > 1) canvas_.path(path, "frontier");
    }

    void marks() {
        for (size_t i = 0; i < all_.ways.size(); ++i)
            if (shown(all_.ways[i]) && !front_[i])
                canvas_.dot(spot(all_.ways[i]).x, spot(all_.ways[i]).y, 3.5, fits(all_.ways[i]) ? "way" : "unfit");
        for (size_t i = 0; i < all_.ways.size(); ++i)
            if (shown(all_.ways[i]) && front_[i]) canvas_.dot(spot(all_.ways[i]).x, spot(all_.ways[i]).y, 4.5, "front");
    }

    /// Places the number of each listed way as near to its mark as other numbers and marks allow.
    void badges() {
        std::vector<const TradeOff::Way*> told;
        for (const TradeOff::Way& way : all_.ways)
            if (way.place > 0 && shown(way)) told.push_back(&way);
        std::sort(told.begin(), told.end(), [](const auto* a, const auto* b) { return a->place < b->place; });
        std::vector<Spot> taken;
        for (const TradeOff::Way* way : told) {
            const Spot mark = spot(*way);
            const Spot place = free_place(mark, taken);
            canvas_.line(mark.x, mark.y, place.x, place.y, "lead");
            taken.push_back(place);
        }
        for (size_t i = 0; i < told.size(); ++i) {
            canvas_.dot(taken[i].x, taken[i].y, badge, "badge");
            canvas_.text(taken[i].x, taken[i].y + 3.6, std::to_string(told[i]->place), "place");
        }
    }

    Spot free_place(Spot mark, const std::vector<Spot>& taken) const {
        Spot best = mark;
        double least = 1e18;
        for (double away = badge + 8; away <= 150; away += 7)
            for (int turn = 0; turn < 16; ++turn) {
                const double angle = std::numbers::pi * (0.25 + turn / 8.0);
                const Spot at{mark.x + away * std::cos(angle), mark.y - away * std::sin(angle)};
                if (at.x < left + badge || at.x > left + wide - badge || at.y < from_ + badge ||
                    at.y > from_ + high - badge)
                    continue;
                double cost = away;
                for (const Spot other : taken)
                    if (distance(at, other) < 2 * badge + 3) cost += 1000;
                for (const TradeOff::Way& way : all_.ways)
                    if (shown(way) && distance(at, spot(way)) < badge + 5) cost += 40;
                if (cost < least) least = cost, best = at;
            }
        return best;
    }

    void list() {
        std::vector<const TradeOff::Way*> told;
        int64_t hidden = 0;
        for (const TradeOff::Way& way : all_.ways) {
            if (way.place > 0) told.push_back(&way);
            if (!shown(way)) ++hidden;
        }
        std::sort(told.begin(), told.end(), [](const auto* a, const auto* b) { return a->place < b->place; });
        if (hidden > 0) {
            canvas_.text(left, y_ - 18,
                         plural(hidden, "more choice") + (hidden == 1 ? " is" : " are") +
                             " not shown: over twice the time or memory",
                         "small");
            y_ += 8;
        }
        if (!told.empty()) canvas_.heading(edge, y_ += 8, "The fastest that fit");
        for (const TradeOff::Way* way : told) {
            y_ += 22;
            canvas_.dot(edge + badge, y_ - 4, badge, "badge");
            canvas_.text(edge + badge, y_ - 0.4, std::to_string(way->place), "place");
            canvas_.text(edge + 86, y_, seconds_text(way->step_s), "number");
            canvas_.text(edge + 166, y_, bytes_text(static_cast<int64_t>(way->memory_bytes)), "number");
            canvas_.text(edge + 186, y_, way->words, "");
        }
    }

    const TradeOff& all_;
    const std::vector<bool> front_;
    Canvas canvas_;
    double best_ = 0, slowest_ = 0, largest_ = 0;
    double first_ = 0, last_ = 1, top_ = 1;  ///< ranges of the axes in seconds and bytes
    bool near_ = false;                      ///< whether the common limit is drawn
    double from_ = 0, y_ = 0;
};

}  // namespace
}  // namespace drawing

std::vector<bool> pareto_front(const TradeOff& all) {
    std::vector<size_t> order(all.ways.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const TradeOff::Way &one = all.ways[a], &other = all.ways[b];
        return one.step_s != other.step_s ? one.step_s < other.step_s : one.memory_bytes < other.memory_bytes;
    });
    std::vector<bool> front(all.ways.size(), false);
    double least = std::numeric_limits<double>::infinity();
    for (const size_t i : order) {
        if (!all.fits(all.ways[i]) || !(all.ways[i].memory_bytes < least)) continue;
        front[i] = true;
        least = all.ways[i].memory_bytes;
    }
    return front;
}

std::string draw_svg(const TradeOff& trade_off) { return drawing::TradeOffDrawing(trade_off).svg(); }

}  // namespace orrery
