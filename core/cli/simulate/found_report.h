#pragma once
#include <string>
#include <vector>

#include "sim/search/search.h"

namespace orrery {

/// What a search was of, and what came out.
struct FoundReport {
    std::string program, place;      ///< "gpt", "H100 SXM"
    std::vector<std::string> facts;  ///< of the place
    std::vector<std::string> notes;  ///< costs of other machines, and tables that are left out
    int64_t parameters = 0;          ///< of the program
    double seconds = 0;              ///< that the search took
    int64_t tp_chunks = 0;  ///< times are of collectives of tp in so many, which `run` cannot do; 0: they are whole
    bool here = false;      ///< on one host: a rank's bytes are the mean over all of them
    bool knows_sequence = false;  ///< the script declares whether it splits sequences
    SearchSpace space;
    Found found;
};

/// The best, what was left out and what does not run, and the TOML that runs the first, for people.
std::string text_of(const FoundReport& report);
/// For machines: every choice that runs, first the one that is told first, then the fastest that fit before others,
/// each with the settings that run it.
std::string json_of(const FoundReport& report);
/// Time against memory of all that run.
std::string drawing_of(const FoundReport& report);
/// Where nothing fits: how far off the closest is, and what is wrong with the others. Throws Error.
[[noreturn]] void refuse(const FoundReport& report);

}  // namespace orrery
