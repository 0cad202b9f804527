#pragma once
#include <memory>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cluster/mapping.h"
#include "sim/cluster/wires.h"
#include "sim/constants.h"
#include "sim/kernel_prices.h"

namespace orrery {

/// Returns the settings of a software stack by its name: "compiled" (fused norms and updates, attention written for the
/// accelerator, like the CUDA plugin's), "eager", "megatron", "unfused", "eight_bit". Throws Error for another name.
KernelSoftware software_of(const std::string& name, const Constants& constants);
/// Returns the rates that determine an accelerator's kernel times. `tf32`: f32 matrix products run in TF32.
AcceleratorRates rates_of(const Accelerator& accelerator, const Constants& constants, bool tf32 = false);

/// Predicts times of work on a cluster from its data-sheet rates and the fitted constants, without measurements.
class ClusterPrices final : public Prices {
public:
    /// Keeps references to the first four arguments. `tf32`: f32 matrix products run in TF32, as with device.cuda.tf32.
    ClusterPrices(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping, const Constants& constants,
                  const std::string& software = "compiled", bool tf32 = false);

    Demand kernel(const KernelSpec& spec, int64_t rank) override { return of(rank).kernel(spec); }
    Demand copy(int64_t bytes, int64_t rank) override { return of(rank).copy(bytes); }
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike) override {
        return wires_.collective(opcode, axis, bytes, group, alike);
    }
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) override {
        return wires_.message(axis, bytes, from, to, alike);
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
    const std::vector<int> like_;  ///< for each kind of node: the first kind that is equally fast
    std::vector<KernelPrices> kernels_;
    ClusterWires wires_;
};

}  // namespace orrery
