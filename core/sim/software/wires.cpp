#include "sim/software/wires.h"

#include <algorithm>

namespace orrery {

SoftwareWires::SoftwareWires(const SoftwareRun& run, const Mesh& mesh, ClusterWires& wires)
    : run_(run),
      mesh_(mesh),
      wires_(wires),
      data_ranks_(mesh.size("rep") * mesh.size("dp") * mesh.size("ep") * mesh.size("cp")) {}

/// What part of a message of flat buffers a collective is; 1: it is a message of its own.
double SoftwareWires::flat_part(Opcode opcode, AxisId over, int64_t bytes) const {
    const SoftwareDefaults& by = run_.software;
    bool data = false;
    for (const AxisId part : mesh_.parts(over)) {
        const std::string& axis = mesh_.axis(part).name;
        if (axis != "dp" && axis != "ep" && axis != "cp") return 1;
        data |= axis != "cp";
    }
    if (opcode == Opcode::all_to_all) return 1;  // of experts
    if (!data || !by.flat || run_.zero == 0 || run_.zero == 3) return 1;
    if (opcode == Opcode::all_reduce && bytes < (1 << 20)) return 1;  // norms and losses
    const int64_t asked = std::max(by.message_elements, by.message_elements_a_rank * data_ranks_);
    const double elements = asked > 0 ? static_cast<double>(asked) : 1e12;  // 0: one message
    const int bytes_each = opcode == Opcode::all_gather ? (by.eight_bit_params ? 1 : 2) : run_.reduce_bf16 ? 2 : 4;
    return std::min(1.0, static_cast<double>(bytes) / (elements * bytes_each));
}

double SoftwareWires::seconds(const Demand& demand) const {
    double seconds = demand.least_s;
    for (const Demand::Load& load : demand.loads)
        seconds = std::max(seconds, load.amount / wires_.capacity(load.resource));
    return demand.fixed_s + seconds;
}

Demand SoftwareWires::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                                 const std::vector<int64_t>& alike) {
    const double part = flat_part(opcode, axis, bytes);
    if (part == 1) return wires_.collective(opcode, axis, bytes, group, alike);
    const auto sent = static_cast<int64_t>(static_cast<double>(bytes) / part);
    Demand demand = wires_.collective(opcode, axis, sent, group, alike);
    demand.fixed_s *= part;
    demand.least_s *= part;
    for (Demand::Load& load : demand.loads) load.amount *= part;
    return demand;
}

Demand SoftwareWires::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    const std::optional<AxisId> tp = mesh_.find("tp");
    if (!run_.scatters || !tp || mesh_.axis(axis).name != "pp") return wires_.message(axis, bytes, from, to, alike);
    // Ranks of tp send a part each, and then the receivers gather.
    const std::vector<int64_t> gatherers = mesh_.group(to, *tp);
    Demand demand = wires_.message(axis, bytes / mesh_.size(*tp), from, to, alike);
    demand.fixed_s += seconds(wires_.collective(Opcode::all_gather, *tp, bytes, gatherers, gatherers));
    return demand;
}

}  // namespace orrery
