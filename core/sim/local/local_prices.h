#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/plan.h"
#include "sim/cluster/measured_wires.h"
#include "sim/local/local_kernels.h"
#include "sim/prices.h"

namespace orrery {

/// The measured operation from which times of an operation without measurements are derived, by (transport, operation).
using Derived = std::map<std::pair<std::string, std::string>, std::string>;

/// Returns the table's communication rows for `MeasuredWires`, with processor times summed over the members. Adds rows
/// for operations of a transport that were not measured, derived by the bytes sent, and records them in `derived`.
std::vector<MeasuredTable::Row> wire_rows(const CostTable& plain, double processors, Derived& derived);

/// Predicts times on the machine of a cost table, whose processors all ranks share. A kernel takes processor time for
/// each of its threads, and more if kernels of its kind slow each other down (memory). Waiting ranks use no processor.
/// Each rank must be simulated by itself (SimulateOptions::each_rank).
class LocalPrices final : public Prices {
public:
    /// `plain`: table from plain_costs or joined_costs. `transports`: by name of the axis, for axes of more than one
    /// rank. Throws Error if the table has no kernels or no rows of a transport, naming the transports it has.
    LocalPrices(const CostTable& plain, const Plan& plan, const SharedHost& host,
                const std::map<std::string, std::string>& transports);

    Demand kernel(const KernelSpec& spec, int64_t rank) override;
    Demand copy(int64_t bytes, int64_t rank) override;
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override;
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) override;
    double capacity(ResourceId resource) const override { return resource == crowd_ ? 1 : wires_.capacity(resource); }

    /// Describes where the predicted times so far come from (measured, scaled or derived), as lines.
    std::vector<std::string> sources() const;

private:
    Demand work(double alone_s, double crowding) const;
    void use(Opcode opcode, const Demand& priced);

    LocalKernels kernels_;
    const int threads_;
    const ResourceId crowd_;  ///< resource for the slowdown of concurrent kernels by memory; capacity 1 per second
    Derived derived_;
    std::map<std::string, std::string> used_;  ///< descriptions of the derived operations that were used, for sources()
    MeasuredWires wires_;
};

}  // namespace orrery
