#pragma once
#include <string>
#include <vector>

namespace orrery {

/// Ways to run one job, each with its step time and memory.
struct TradeOff {
    struct Way {
        double step_s = 0;
        double memory_bytes = 0;
        int place = 0;            ///< its number in the list, which is by speed, from 1; 0: not in the list
        std::string words;        ///< description of the way, for the list and its tooltip
        double memory_limit = 0;  ///< memory limit in bytes for this way; 0: the common limit
    };
    std::string title;
    std::vector<std::string> facts;  ///< lines of text about the job
    std::vector<Way> ways;
    double memory_limit =
        0;  ///< common memory limit in bytes, drawn as a line unless far above; 0: none, or ways differ
    std::string memory_name = "memory of the fullest rank";
    std::string limit_name = "an accelerator has";  ///< words before the limit's bytes

    double limit_of(const Way& way) const { return way.memory_limit > 0 ? way.memory_limit : memory_limit; }
    bool fits(const Way& way) const { return limit_of(way) == 0 || way.memory_bytes <= limit_of(way); }
};

/// Returns a flag for each way: true if it fits into memory and no other fitting way is both faster and smaller.
std::vector<bool> pareto_front(const TradeOff& trade_off);

/// Returns one self-contained SVG with a mark for each way, a line through the front, the memory limit, and the listed
/// ways with numbers at their marks. Ways of more than twice the fastest time or twice the limit are only counted.
std::string draw_svg(const TradeOff& trade_off);

}  // namespace orrery
