#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/device.h"

namespace orrery {

/// A time measured over several repetitions.
struct Measured {
    double seconds = 0;                  ///< median; mean if only a sum was recorded
    std::optional<double> least_s = {};  ///< the fastest repetition
    std::optional<double> spread = {};   ///< interquartile range / median
    int64_t samples = 0;
    bool in_turns = false;  ///< more threads than processors: the time includes that of other threads
};

/// The time of one kernel launch, measured on its own.
struct KernelCost {
    KernelSpec spec;
    int threads = 1;  ///< threads of the rank
    Measured time;
    int beside = 0;  ///< other ranks of the host that worked at the same time
};

/// The time of one collective or message.
struct WireCost {
    std::string transport;
    std::string op;  ///< a name of Opcode, or "message" for a send and its receive
    int64_t ranks = 2;
    int64_t bytes = 0;                       ///< S of orrery/communicator.h, the larger tensor
    Measured time;                           ///< of the member with the shortest waits for others
    std::optional<double> processor_s = {};  ///< processor time of one member, over all its threads
    std::string axis = {};                   ///< axis of the mesh; empty unless a run measured it
    std::optional<double> mean_s = {};       ///< mean over all members, including waits for others
};

/// Costs measured by `orrery calibrate` or by a run, from which `orrery simulate` predicts.
struct CostTable {
    std::string made_by;  ///< "calibrate", "run"
    std::string device;   ///< name of the device plugin: "cpu"
    std::string machine;  ///< Device::machine: "name=value" lines
    /// Further facts: hosts, ranks, mesh, seconds per step.
    std::vector<std::pair<std::string, std::string>> facts = {};
    std::vector<std::pair<std::string, double>> totals = {};  ///< seconds per step, by activity: "step", "compute"
    std::vector<KernelCost> kernels = {};
    std::vector<WireCost> wires = {};
    std::vector<std::string> notes = {};  ///< what was not measured, and why
};

/// The table as JSON, one row per line. Equal tables give equal text.
std::string cost_table_text(const CostTable& table);
/// Parses that text. Throws Error naming `file` and the invalid row.
CostTable parse_cost_table(std::string_view text, const std::string& file);

/// A unique text for a spec: "matmul {trans_b=true} f32[8,512] f32[64,512] -> f32[8,64]".
std::string spec_text(const KernelSpec& spec);
/// Normalizes Device::machine: lines trimmed and sorted, empty ones removed.
std::string machine_key(const std::string& machine);

/// Device::machine, or the device's name if that is empty.
std::string machine_of(Device& device);

}  // namespace orrery
