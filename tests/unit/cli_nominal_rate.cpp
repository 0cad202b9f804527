#include <catch2/catch.hpp>

#include "cli/simulate/nominal_rate.h"
#include "config/load.h"
#include "folders.h"
#include "sim/cluster/cluster.h"

using namespace orrery;

TEST_CASE("the dense rate of a data sheet is found by the driver's name") {
    const std::filesystem::path folder = in_source("configs/clusters");
    CHECK(nominal_rate(folder, "NVIDIA H200", rate_name(DType::bf16, false)) == 989e12);
    CHECK(nominal_rate(folder, "NVIDIA H100 80GB HBM3", rate_name(DType::f8e5m2, false)) == 1979e12);
    CHECK(nominal_rate(folder, "NVIDIA A100-SXM4-80GB", rate_name(DType::f32, true)) == 156e12);
    CHECK(nominal_rate(folder, "NVIDIA A100-SXM4-80GB", rate_name(DType::f32, false)) == 19.5e12);
    CHECK(nominal_rate(folder, "NVIDIA A100-SXM4-80GB", rate_name(DType::f8e4m3, false)) == 0);
    CHECK(nominal_rate(folder, "NVIDIA H2", "bf16") == 0);
    CHECK(nominal_rate("no/such/folder", "NVIDIA H200", "bf16") == 0);
}

TEST_CASE("each accelerator of configs/clusters has its driver's name") {
    for (const auto& entry : std::filesystem::directory_iterator(in_source("configs/clusters"))) {
        if (entry.path().extension() != ".toml") continue;
        INFO(entry.path());
        Config file = load_toml(entry.path());
        for (const NodeKind& kind : Cluster(file).kinds)
            CHECK((kind.accelerator.generation == Generation::other) == kind.accelerator.driver_names.empty());
    }
}
