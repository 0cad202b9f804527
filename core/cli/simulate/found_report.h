#pragma once
#include <string>
#include <vector>

#include "sim/search/search.h"
#include "sim/training_cost.h"

namespace orrery {

/// The input and result of a search for the fastest mesh and options.
struct FoundReport {
    std::string program, place;      ///< names of the program and of the cluster: "gpt", "H100 SXM"
    std::vector<std::string> facts;  ///< facts about the cluster or machine, a line each
    std::vector<std::string> notes;  ///< notes about cost tables that are of other machines or were not used, to print
    int64_t parameters = 0;
    double full_share = 1;  ///< FLOPs of a step that count masked pairs of attention, over those that do not
    double seconds = 0;
    std::string recomputation;    ///< what recomputation frees, to print; "": unknown
    std::string stopped;          ///< what stopped the search before its end: "--seconds 60", "signal 2"; "": nothing
    int64_t tp_chunks = 0;        ///< number of chunks of tp collectives, which `run` does not support; 0: not split
    double imbalance = 0;         ///< load of the busiest rank's experts over the mean load; 0: all slots are full
    TrainingTerms training;       ///< of --tokens
    bool here = false;            ///< true: for this machine, where a rank's bytes are the mean over all ranks
    bool knows_sequence = false;  ///< true: the script declares an option for splitting sequences
    SearchSpace space;
    Found found;
};

/// Returns the report as text: the fastest choices, what was left out or does not run, and the TOML of the fastest.
std::string text_of(const FoundReport& report);
/// Returns JSON of all choices that run: the fastest reported one, those that fit in memory, the rest; each by time.
std::string json_of(const FoundReport& report);
std::string drawing_of(const FoundReport& report);
/// If no choice runs and fits in memory, returns how far the closest is from fitting and why others do not run; else
/// "".
std::string refusal(const FoundReport& report);

}  // namespace orrery
