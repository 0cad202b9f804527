#pragma once
#include <string>
#include <vector>

#include "sim/search/search.h"

namespace orrery {

/// The input and result of a search.
struct FoundReport {
    std::string program, place;      ///< name of the program and of the place: "gpt", "H100 SXM"
    std::vector<std::string> facts;  ///< facts about the place, a line each
    std::vector<std::string> notes;  ///< about costs of other machines, and tables that were not used
    int64_t parameters = 0;          ///< number of the program's parameters
    double seconds = 0;              ///< duration of the search
    int64_t tp_chunks = 0;           ///< number of chunks of tp collectives, which `run` does not support; 0: not split
    bool here = false;               ///< the place is one host, where a rank's bytes are the mean over all ranks
    bool knows_sequence = false;     ///< the script declares an option for splitting sequences
    SearchSpace space;
    Found found;
};

/// The best choices, what was left out or does not run, and the TOML of the first, as text.
std::string text_of(const FoundReport& report);
/// JSON of every choice that runs with its settings: the reported first, then those that fit, each fastest first.
std::string json_of(const FoundReport& report);
/// A drawing of time against memory of all choices that run.
std::string drawing_of(const FoundReport& report);
/// Throws Error: nothing fits. Says how far the closest choice is from fitting, and what is wrong with the others.
[[noreturn]] void refuse(const FoundReport& report);

}  // namespace orrery
