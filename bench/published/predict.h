#pragma once
#include <memory>
#include <string>
#include <vector>

#include "published/graph.h"
#include "published/job.h"
#include "sim/constants.h"
#include "sim/kernel_prices.h"

namespace orrery::published {

/// A job whose plan is made, ready to be priced again and again.
struct Prepared {
    Job job;
    Mesh mesh;
    Graph graph;
    std::vector<KernelWork> works;  ///< by price: of kernels
    std::vector<double> wire_s;     ///< by price: seconds of collectives and messages, alone on their links
};

struct Prediction {
    double step_s = 0, tokens_per_s = 0, peak_gib = 0;  ///< tokens of one accelerator
    int chosen = 0;                                     ///< of the row's jobs
    bool fits = true;
};

/// Compiles all jobs of a row. Throws Error where the row is not to be expressed. `keep`: a folder of graphs that were
/// made before; "": none.
std::vector<Prepared> prepare(const Row& row, const std::string& script, const std::string& keep = "");

/// The cluster of a row as TOML, for core/sim/cluster.
std::string cluster_toml(const Row& row);
/// Asks for the seconds of all wires anew.
void wire(Prepared& prepared, const Constants& constants);
/// A constant of wires: fitted to collectives (bench/published_collectives), and not here.
bool is_of_wires(const Constant& constant);

/// Seconds of each price of the graph.
std::vector<double> price(const Prepared& prepared, const Constants& constants);
/// Whether a price of it may depend on the constant.
bool concerns(const Prepared& prepared, const Constant& constant);
double step_seconds(const Prepared& prepared, const Constants& constants, std::vector<double>* weights = nullptr);
/// Of the plan's arenas alone.
double plan_gib(const Prepared& prepared);
double peak_gib(const Prepared& prepared, const Constants& constants);

/// Of several jobs the fastest that fits; the smallest where none does.
Prediction predict(const std::vector<Prepared>& jobs, const Constants& constants);

}  // namespace orrery::published
