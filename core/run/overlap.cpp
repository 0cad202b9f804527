#include "run/overlap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/processors.h"
#include "plan/access.h"

namespace orrery {
namespace {

/// Names of the transports over which a rank's plans send point-to-point messages.
std::set<std::string> with_messages(const Settings& settings, int64_t rank, const std::vector<const Plan*>& plans) {
    std::set<std::string> names;
    for (const Plan* plan : plans)
        for (const Instruction& i : plan->class_of(rank).stream)
            if (i.opcode == Opcode::send || i.opcode == Opcode::receive)
                names.insert(settings.transport_of(plan->mesh.axis(i.axis).name));
    return names;
}

}  // namespace

bool has_kernels_beside(const Plan& plan, int64_t rank, const std::string& axis) {
    const std::vector<Instruction>& stream = plan.class_of(rank).stream;
    std::vector<int> kernels_before(stream.size() + 1, 0);
    for (size_t i = 0; i < stream.size(); ++i)
        kernels_before[i + 1] = kernels_before[i] + (stream[i].opcode == Opcode::kernel);
    std::vector<char> waited(stream.size(), 0);
    for (size_t i = 0; i < stream.size(); ++i)
        for (const int wait : stream[i].waits) {
            const auto w = static_cast<size_t>(wait);
            if (waited[w] || stream[w].axis == none || plan.mesh.axis(stream[w].axis).name != axis) continue;
            waited[w] = 1;
            if (kernels_before[i] > kernels_before[w + 1]) return true;
        }
    return false;
}

bool has_spare_processors(const Settings& settings, const Job& job, int64_t processors) {
    if (processors > 0) return processors / std::max<int64_t>(1, job.local_ranks) > std::max<int64_t>(1, job.threads);
    const auto allowed = usable_processors();
    int64_t own = allowed / std::max<int64_t>(1, job.local_ranks);
    if (const int64_t given = std::max(job.processors, job.threads); given > 0) own = std::min(given, allowed);
    return own > threads_of(settings, job);
}

Overlapping overlapping(const Settings& settings, const Job& job, const Network& contracts,
                        const std::vector<const Plan*>& plans, int64_t processors) {
    Overlapping out;
    const bool on = settings.overlap == Overlap::on;
    if (settings.overlap == Overlap::off || (!on && !has_spare_processors(settings, job, processors))) return out;
    const std::set<std::string> messages = with_messages(settings, job.rank, plans);
    std::set<std::string> axes = joined_axes(plans);
    for (const auto& [axis, contract] : contracts) axes.insert(axis);
    for (const std::string& axis : axes) {
        const TransportContract& contract = contracts.of(axis);
        const std::string& transport = settings.transport_of(axis.substr(0, axis.find('+')));
        std::string why;
        if (contract.queued)
            why = fmt::format("transport {} queues its calls on the device, which needs no thread", transport);
        else if (!serves(contract, settings.memory()))
            why = fmt::format("transport {} stages through host memory; use one for the device's memory", transport);
        else if (messages.count(transport))
            why = fmt::format("transport {} also sends messages; use another transport for this axis", transport);
        if (on && !why.empty())
            out.notes.push_back(fmt::format(
                "run.overlap = \"on\": collectives of {} are not overlapped with computation by a thread: {}", axis,
                why));
        const bool pays = std::any_of(plans.begin(), plans.end(),
                                      [&](const Plan* plan) { return has_kernels_beside(*plan, job.rank, axis); });
        if (why.empty() && (on || pays)) out.axes.insert(axis);
    }
    if (!out.axes.empty())
        out.notes.push_back(fmt::format("collectives of {} run on a separate thread, overlapped with kernels",
                                        fmt::join(out.axes, ", ")));
    return out;
}

}  // namespace orrery
