#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/device.h"

namespace orrery {

/// A duration measured over several repetitions.
struct Measured {
    double seconds = 0;                  ///< median duration; mean if only a sum was recorded
    std::optional<double> least_s = {};  ///< duration of the fastest repetition
    std::optional<double> spread = {};   ///< interquartile range of the duration divided by its median
    int64_t samples = 0;
    bool in_turns = false;  ///< more threads than processors ran, so the duration includes time of other threads
};

/// The time of one kernel launch, measured on its own.
struct KernelCost {
    KernelSpec spec;
    int threads = 1;  ///< number of CPU threads of the rank
    Measured time;
    int beside = 0;  ///< number of other ranks of the host that were computing at the same time
};

/// The time of one collective or message.
struct WireCost {
    std::string transport;
    std::string op;  ///< a name of Opcode, or "message" for a send and its receive
    int64_t ranks = 2;
    int64_t bytes = 0;                       ///< bytes of the larger of input and output, the S of cost formulas
    Measured time;                           ///< duration at the member with the shortest waits for others
    std::optional<double> processor_s = {};  ///< CPU time of one member, summed over its threads
    std::string axis = {};                   ///< mesh axis of the collective; empty unless a run measured it
    std::optional<double> mean_s = {};       ///< mean duration over all members, including waits for each other
};

/// Measured durations of kernels and communication, from which `orrery simulate` predicts.
struct CostTable {
    std::string made_by;  ///< the command that measured: "calibrate" or "run"
    std::string device;   ///< name of the device plugin: "cpu"
    std::string machine;  ///< the processor or GPU, as Device::machine: "name=value" lines
    /// Further facts about the measurement by name: hosts, ranks, mesh.
    std::vector<std::pair<std::string, std::string>> facts = {};
    std::vector<std::pair<std::string, double>> totals = {};  ///< seconds per step: "step", "compute"
    std::vector<KernelCost> kernels = {};
    std::vector<WireCost> wires = {};
    std::vector<std::string> notes = {};  ///< remarks on what was not measured, and why
};

/// A cost table as JSON, one kernel or communication per line. Equal tables give equal text.
std::string cost_table_text(const CostTable& table);
/// Parses a cost table from JSON (cost_table_text). Throws Error naming `file` and the invalid row.
CostTable parse_cost_table(std::string_view text, const std::string& file);

/// The unique text of a kernel's spec: "matmul {trans_b=true} f32[8,512] f32[64,512] -> f32[8,64]".
std::string spec_text(const KernelSpec& spec);
/// A machine text (Device::machine) as lines trimmed and sorted, without empty ones, for comparison.
std::string machine_key(const std::string& machine);

/// The machine text of a device (Device::machine); its name if that is empty.
std::string machine_of(Device& device);

}  // namespace orrery
