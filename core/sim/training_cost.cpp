#include "sim/training_cost.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {

TrainingCost training_cost(const TrainingTerms& terms, double step_s) {
    if (!(terms.tokens_per_step > 0))
        throw Error(
            fmt::format("--tokens {:g}: the inputs of the program are not tokens\n  leave --tokens out", terms.tokens),
            Fault::usage);
    TrainingCost cost;
    cost.steps = std::ceil(terms.tokens / terms.tokens_per_step);
    const double seconds = cost.steps * step_s / terms.goodput.value_or(1);
    cost.days = seconds / 86400;
    cost.price = seconds * terms.price_per_s;
    return cost;
}

std::string text(const TrainingTerms& terms, double step_s) {
    const TrainingCost cost = training_cost(terms, step_s);
    std::string out = fmt::format("{} tokens: {} steps, {:.4g} days", short_text(terms.tokens),
                                  count_text(std::llround(cost.steps)), cost.days);
    out += terms.goodput ? fmt::format(" with goodput {:.1f} %", 100 * *terms.goodput) : " without failures";
    if (cost.price > 0) out += fmt::format(", price {} in the unit of price_per_hour", short_text(cost.price));
    return out;
}

}  // namespace orrery
