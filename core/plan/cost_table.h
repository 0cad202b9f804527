#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/device.h"

namespace orrery {

/// How long something took that was repeated.
struct Measured {
    double seconds = 0;                  ///< the median, or the mean where `samples` were only added up
    std::optional<double> least_s = {};  ///< the fastest
    std::optional<double> spread = {};   ///< (third - first quartile) / median
    int64_t samples = 0;
    bool in_turns = false;  ///< of a run with more threads than processors: others had them meanwhile
};

/// One launch of a kernel on a device, alone.
struct KernelCost {
    KernelSpec spec;
    int threads = 1;  ///< of the rank
    Measured time;
    int beside = 0;  ///< other ranks of its host that worked meanwhile
};

/// One collective or message.
struct WireCost {
    std::string transport;
    std::string op;  ///< as Opcode's names; "message": a send and its receive
    int64_t ranks = 2;
    int64_t bytes = 0;                       ///< S of orrery/communicator.h, of the larger tensor
    Measured time;                           ///< of the member that waits least for others
    std::optional<double> processor_s = {};  ///< processor time of one member, all its threads
    std::string axis = {};                   ///< of the mesh, where a run measured it
    std::optional<double> mean_s = {};       ///< over all members, with their waiting for others
};

/// What `orrery calibrate` and each run measure, and `orrery simulate` takes for prices.
struct CostTable {
    std::string made_by;  ///< "calibrate", "run"
    std::string device;   ///< the plugin: "cpu"
    std::string machine;  ///< Device::machine: "name=value" lines
    /// Further facts: hosts, ranks, mesh, the step's seconds.
    std::vector<std::pair<std::string, std::string>> facts = {};
    std::vector<std::pair<std::string, double>> totals = {};  ///< seconds of a step, by what they went to
    std::vector<KernelCost> kernels = {};
    std::vector<WireCost> wires = {};
    std::vector<std::string> notes = {};  ///< what was left out, and why
};

/// JSON, one row a line; the same text for equal tables.
std::string cost_table_text(const CostTable& table);
/// Reads it back. Throws Error naming `file` and the row that is wrong.
CostTable parse_cost_table(std::string_view text, const std::string& file);

/// "matmul {trans_b=true} f32[8,512] f32[64,512] -> f32[8,64]": equal for equal specs alone, and for messages.
std::string spec_text(const KernelSpec& spec);
/// What a machine says of itself, in one form: its lines trimmed and sorted, without empty ones.
std::string machine_key(const std::string& machine);

/// The identity of a device's machine: Device::machine, or its name where it has none.
std::string machine_of(Device& device);

}  // namespace orrery
