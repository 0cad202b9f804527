#pragma once
#include <string>
#include <vector>

namespace orrery {

/// Ways to do one job, each with what it takes of two things: time and memory.
struct TradeOff {
    struct Way {
        double step_s = 0;
        double memory_bytes = 0;
        int place = 0;            ///< 1: the fastest of those that are told; 0: it is none of them
        std::string words;        ///< what it is, for the list and the pointer
        double memory_limit = 0;  ///< bytes that it has; 0: as all
    };
    std::string title;
    std::vector<std::string> facts;  ///< one line each
    std::vector<Way> ways;
    double memory_limit = 0;  ///< bytes, drawn as a line; 0: none, or not the same for all

    double limit_of(const Way& way) const { return way.memory_limit > 0 ? way.memory_limit : memory_limit; }
    bool fits(const Way& way) const { return limit_of(way) == 0 || way.memory_bytes <= limit_of(way); }
};

/// By way: whether no other one that fits is both as fast and as small. None of what does not fit is.
std::vector<bool> pareto_front(const TradeOff& trade_off);

/// One self-contained SVG: a mark for each way, a line through the front, the limit, numbers at those with a place and
/// what they are below. What takes more than twice the fastest's time or the limit is counted, not drawn.
std::string draw_svg(const TradeOff& trade_off);

}  // namespace orrery
