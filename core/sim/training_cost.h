#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace orrery {

/// Inputs of training_cost, apart from the time of a step.
struct TrainingTerms {
    double tokens = 0;           ///< of the whole training; 0: not asked for
    double tokens_per_step = 0;  ///< 0: the program's inputs are not tokens
    /// Goodput: share of time spent on steps that no failure loses, without checkpoints; nullopt: unknown.
    std::optional<double> goodput = {};
    double price_per_s = 0;  ///< of all accelerators; 0: unknown
};

struct TrainingCost {
    double steps = 0;
    double days = 0;   ///< with the goodput, where it is known
    double price = 0;  ///< 0: unknown
};

/// Throws Error if the program's inputs are not tokens.
TrainingCost training_cost(const TrainingTerms& terms, double step_s);
/// "15.0 T tokens: 3,576,279 steps, 212.3 days with goodput 97.2 %, price 12.3 M in the unit of
/// price_per_hour".
std::string text(const TrainingTerms& terms, double step_s);

}  // namespace orrery
