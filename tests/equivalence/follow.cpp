#include "follow.h"

#include <fmt/format.h>

namespace orrery::equivalence {

std::vector<Line> follow(const test::Ran& ran, const test::Ran& reference, const Bounds& bounds) {
    Elements losses(bounds.loss, "relative"), norms(bounds.loss, "relative"), params(bounds.params);
    for (size_t step = 0; step < reference.steps.size(); ++step) {
        const auto name = fmt::format("step {}", step + 1);
        const double loss = loss_of(reference.steps[step]);
        losses.add(name, {static_cast<float>(loss_of(ran.steps.at(step)))}, {static_cast<float>(loss)}, loss);
        const auto& expected = at(reference.steps[step], "result grad_norm");
        norms.add(name, at(ran.steps[step], "result grad_norm"), expected, static_cast<double>(expected[0]));
    }
    const std::string prefix = "result grad ";
    double all = 0;
    for (const auto& [name, values] : reference.steps[0])
        if (name.starts_with(prefix)) all += norm(values) * norm(values);
    Gradients gradients(std::sqrt(all));
    for (const auto& [name, values] : reference.steps[0]) {
        if (!name.starts_with(prefix)) continue;
        const std::string param = name.substr(prefix.size());
        gradients.add(param, at(ran.steps[0], name), values);
        if (!bounds.left_out(param)) params.add(param, at(ran.values, param), at(reference.values, param));
    }
    Line gradient = gradients.line("gradients, step 1");
    gradient.part /= bounds.gradients;
    return {losses.line("loss, every step"), gradient, norms.line("gradient norm, every step"),
            params.line("params at the end")};
}

}  // namespace orrery::equivalence
