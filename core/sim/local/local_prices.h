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

/// By (transport, operation) that was not measured: the operation whose rows stand in for it.
using Derived = std::map<std::pair<std::string, std::string>, std::string>;

/// The table's rows of communication for `MeasuredWires`, of all members together. Of a transport that has only some
/// of the operations the others are made of these by the bytes that they send.
std::vector<MeasuredTable::Row> wire_rows(const CostTable& plain, double processors, Derived& derived);

/// Prices of the machine that a table of measured costs was made on, whose processors all ranks share: a kernel is a
/// load of its threads' seconds on them, and of more where kernels of its kind hold each other up (memory). Ranks wait
/// without taking any. Each rank must be an actor of its own (SimulateOptions::each_rank), as a kernel is one rank's.
class LocalPrices final : public Prices {
public:
    /// `plain`: of `plain_costs` or `joined_costs`. `transports`: by name of the plan's axes of more than one rank.
    /// Throws Error where the table has no kernels, or nothing of a transport: says which transports it has.
    LocalPrices(const CostTable& plain, const Plan& plan, const SharedHost& host,
                const std::map<std::string, std::string>& transports);

    Demand kernel(const KernelSpec& spec, int64_t rank) override;
    Demand copy(int64_t bytes, int64_t rank) override;
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override;
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) override;
    double capacity(ResourceId resource) const override { return resource == crowd_ ? 1 : wires_.capacity(resource); }

    /// Where the times of what was asked for are from, a line each.
    std::vector<std::string> sources() const;

private:
    Demand work(double alone_s, double crowding) const;
    void use(Opcode opcode, const Demand& priced);

    LocalKernels kernels_;
    const int threads_;
    const ResourceId crowd_;  ///< what kernels share beside the processors: 1 of it a second
    Derived derived_;
    std::map<std::string, std::string> used_;  ///< of these, as told
    MeasuredWires wires_;
};

}  // namespace orrery
