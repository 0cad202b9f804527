#include "sim/local/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orrery/error.h"
#include "plan/access.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

using Parts = std::map<std::string, ComparedPart>;

ComparedPart& part(Parts& parts, const std::string& what) {
    ComparedPart& made = parts[what];
    made.what = what;
    return made;
}

std::string wire_name(const std::string& axis, const std::string& op) { return axis + ": " + op; }

void add_played(const Plan& plan, const Simulated& run, Parts& kernels, Parts& wires) {
    double ranks = 0;
    for (const ActorTime& actor : run.actors) ranks += static_cast<double>(actor.ranks);
    for (const SimulatedItem& item : run.items) {
        const ActorTime& actor = run.actors[static_cast<size_t>(item.actor)];
        const RankClass& c = plan.classes[static_cast<size_t>(actor.of_class)];
        const Instruction& i = c.stream[static_cast<size_t>(item.first.index)];
        const double weight = static_cast<double>(actor.ranks) / ranks;
        if (i.axis == none) {
            const std::string op =
                i.opcode == Opcode::kernel ? c.kernels[static_cast<size_t>(i.kernel)].op : std::string("copies");
            part(kernels, op).predicted_s += weight * (item.end - item.start);
        } else if (i.opcode != Opcode::send) {
            const std::string op(is_message(i.opcode) ? "message" : name_of(i.opcode));
            part(wires, wire_name(plan.mesh.axis(i.axis).name, op)).predicted_s += weight * (item.end - item.issued);
        }
    }
}

void add_measured(const CostTable& measured, Parts& kernels, Parts& wires) {
    const double steps = fact_of(measured, "steps", 0) * fact_of(measured, "ranks", 1);
    if (steps <= 0) throw Error("the run has no measured steps: it needs at least 2, because the first is not counted");
    double counted = 0;
    for (const KernelCost& row : measured.kernels) {
        const double seconds = row.time.seconds * static_cast<double>(row.time.samples) / steps;
        part(kernels, row.spec.op).measured_s += seconds;
        counted += seconds;
    }
    const double copies = total_of(measured, "compute") - counted;
    if (copies > 0 && (kernels.count("copies") > 0 || copies > 1e-3 * total_of(measured, "step")))
        part(kernels, "copies").measured_s += copies;
    for (const WireCost& row : measured.wires)
        part(wires, wire_name(row.axis, row.op)).measured_s +=
            row.mean_s.value_or(row.time.seconds) * static_cast<double>(row.time.samples) / steps;
}

std::string line(const std::string& what, double predicted_s, double measured_s) {
    const std::string by = measured_s > 0 ? fmt::format("{:+.1f} %", 100 * (predicted_s / measured_s - 1)) : "-";
    return fmt::format("  {:<34} {:>10.3f} {:>10.3f} {:>9}\n", what, 1e3 * predicted_s, 1e3 * measured_s, by);
}

}  // namespace

double off(const ComparedPart& part) { return part.measured_s > 0 ? part.predicted_s / part.measured_s - 1 : 0; }

Comparison compare(const Plan& plan, const Simulated& run, double rest_s, const CostTable& measured) {
    Parts kernels, wires;
    add_played(plan, run, kernels, wires);
    add_measured(measured, kernels, wires);
    Comparison made;
    for (auto& [what, one] : kernels) made.parts.push_back(std::move(one));
    std::stable_sort(made.parts.begin(), made.parts.end(), [](const ComparedPart& a, const ComparedPart& b) {
        return std::max(a.predicted_s, a.measured_s) > std::max(b.predicted_s, b.measured_s);
    });
    for (auto& [what, one] : wires) {
        one.communication = true;
        made.parts.push_back(std::move(one));
    }
    made.step = {"step", false, run.step_s + rest_s, total_of(measured, "step")};
    ComparedPart rest{"the rest", false, made.step.predicted_s, made.step.measured_s};
    for (const ComparedPart& one : made.parts) {
        rest.predicted_s -= one.predicted_s;
        rest.measured_s -= one.measured_s;
    }
    rest.predicted_s = std::max(0.0, rest.predicted_s);
    rest.measured_s = std::max(0.0, rest.measured_s);
    made.parts.push_back(rest);
    return made;
}

std::string text_of(const Comparison& comparison, size_t most) {
    std::string text =
        fmt::format("{:<36} {:>10} {:>10} {:>9}\n", "predicted against measured", "ms a step", "measured", "off");
    ComparedPart others;
    size_t named = 0;
    bool told = false;
    const auto tell_others = [&] {
        if (others.predicted_s + others.measured_s > 0 && !told)
            text += line("other kernels", others.predicted_s, others.measured_s);
        told = true;
    };
    for (size_t i = 0; i < comparison.parts.size(); ++i) {
        const ComparedPart& one = comparison.parts[i];
        const bool rest = i + 1 == comparison.parts.size();
        if (one.communication || rest) {
            tell_others();
            text += line(one.what, one.predicted_s, one.measured_s);
        } else if (named++ < most) {
            text += line(one.what, one.predicted_s, one.measured_s);
        } else {
            others.predicted_s += one.predicted_s;
            others.measured_s += one.measured_s;
        }
    }
    return text + line(comparison.step.what, comparison.step.predicted_s, comparison.step.measured_s);
}

}  // namespace orrery
