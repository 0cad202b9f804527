#pragma once
#include "config/load.h"
#include "published/job.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/constants.h"
#include "sim/kernel_prices.h"
#include "sim/prices.h"
#include "sim/software/wires.h"

namespace orrery::published {

/// The kernels of a row, by its software and accelerator.
KernelPrices kernel_prices(const Job& job, const Constants& constants);

/// Seconds of the collectives and messages of a row, each alone on its links but for the groups that do the same.
class RowWires {
public:
    /// Keeps references to all arguments.
    RowWires(const Job& job, const Mesh& mesh, const Constants& constants);
    double collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike);
    double message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike);

private:
    Config config_;
    const Cluster cluster_;
    const Mapping mapping_;
    ClusterWires wires_;
    SoftwareWires sent_;
};

/// All of it, for core/sim/simulate.
class RowPrices final : public Prices {
public:
    RowPrices(const Job& job, const Mesh& mesh, const Constants& constants)
        : kernels_(kernel_prices(job, constants)), wires_(job, mesh, constants) {}

    Demand kernel(const KernelSpec& spec, int64_t) override {
        return fixed(lays_out(spec) ? 0 : kernels_.modelled(work_of(spec)));
    }
    Demand copy(int64_t bytes, int64_t) override { return kernels_.copy(bytes); }
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override {
        return fixed(wires_.collective(opcode, axis, bytes, group, alike));
    }
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) override {
        return fixed(wires_.message(axis, bytes, from, to, alike));
    }
    double capacity(ResourceId) const override { return 1; }

private:
    static Demand fixed(double seconds) { return {.fixed_s = seconds, .loads = {}, .how = ""}; }

    KernelPrices kernels_;
    RowWires wires_;
};

/// The cluster of a row as TOML, for core/sim/cluster.
std::string cluster_toml(const Row& row);

}  // namespace orrery::published
