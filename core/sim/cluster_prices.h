#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/constants.h"
#include "sim/local/local_kernels.h"
#include "sim/software/wires.h"

namespace orrery {

/// Returns the rates that determine an accelerator's kernel times. `tf32`: f32 matrix products run in TF32.
AcceleratorRates rates_of(const Accelerator& accelerator, const Constants& constants, bool tf32 = false);

/// The accelerator or processor that a table was measured on: "NVIDIA H100 80GB HBM3"; the device's name if unknown.
std::string measured_on(const CostTable& table);
/// Whether a table was measured on an accelerator of this name in a cluster's file: all parts of the name, as in
/// h100_pcie, are words of measured_on(), or it is the table's device.
bool measured_on(const CostTable& table, const std::string& accelerator);

/// Predicts times of work on a cluster from its data-sheet rates and the fitted constants. Kernels have measured times
/// where a table of one of its accelerators has their op.
class ClusterPrices final : public Prices {
public:
    /// Keeps references to the first five arguments. `tf32`: f32 matrix products run in TF32, as with device.cuda.tf32.
    /// `measured`: a plain table (sim/local/local_costs); its kernels count on accelerators that it was measured_on.
    ClusterPrices(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping, const Constants& constants,
                  const SoftwareRun& software, bool tf32 = false, const CostTable* measured = nullptr);

    Demand kernel(const KernelSpec& spec, int64_t rank) override;
    Demand copy(int64_t bytes, int64_t rank) override { return of(rank).copy(bytes); }
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override {
        return sent_.collective(opcode, axis, bytes, group, alike);
    }
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) override {
        return sent_.message(axis, bytes, from, to, alike);
    }
    int kind(int64_t rank) const override {
        return like_.size() == 1 ? 0 : like_[static_cast<size_t>(cluster_.place(mapping_.slot(rank)).kind)];
    }
    double capacity(ResourceId resource) const override { return wires_.capacity(resource); }
    const ClusterWires& wires() const { return wires_; }
    /// Where the times of kernels come from, a line each; empty without a table.
    std::vector<std::string> sources() const;

private:
    size_t kind_of(int64_t rank) const { return static_cast<size_t>(cluster_.place(mapping_.slot(rank)).kind); }
    const KernelPrices& of(int64_t rank) const { return kernels_[kind_of(rank)]; }

    const Cluster& cluster_;
    const Mapping& mapping_;
    const SoftwareRun& software_;
    const std::vector<int> like_;  ///< for each kind of node: the first kind that is equally fast
    std::vector<KernelPrices> kernels_;
    std::optional<LocalKernels> measured_;
    std::vector<char> is_measured_;     ///< by kind of node: whether `measured_` is of its accelerator
    std::set<std::string> by_formula_;  ///< priced ops, each with a type, that the table lacks
    ClusterWires wires_;
    SoftwareWires sent_;
};

}  // namespace orrery
