#pragma once
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/constants.h"
#include "sim/software/wires.h"

namespace orrery {

/// Returns the rates that determine an accelerator's kernel times. `tf32`: f32 matrix products run in TF32.
AcceleratorRates rates_of(const Accelerator& accelerator, const Constants& constants, bool tf32 = false);

/// Predicts times of work on a cluster from its data-sheet rates and the fitted constants, without measurements.
class ClusterPrices final : public Prices {
public:
    /// Keeps references to the first five arguments. `tf32`: f32 matrix products run in TF32, as with device.cuda.tf32.
    ClusterPrices(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping, const Constants& constants,
                  const SoftwareRun& software, bool tf32 = false);

    Demand kernel(const KernelSpec& spec, int64_t rank) override {
        return !software_.software.planned && lays_out(spec) ? Demand{} : of(rank).kernel(spec);
    }
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

private:
    const KernelPrices& of(int64_t rank) const {
        return kernels_[static_cast<size_t>(cluster_.place(mapping_.slot(rank)).kind)];
    }

    const Cluster& cluster_;
    const Mapping& mapping_;
    const SoftwareRun& software_;
    const std::vector<int> like_;  ///< for each kind of node: the first kind that is equally fast
    std::vector<KernelPrices> kernels_;
    ClusterWires wires_;
    SoftwareWires sent_;
};

}  // namespace orrery
