#pragma once
#include <string>
#include <vector>

#include "published/graph.h"
#include "published/job.h"
#include "sim/constants.h"

namespace orrery::published {

struct Prediction {
    double step_s = 0, tokens_per_s = 0;  ///< tokens of one accelerator
    double peak_gib = 0;                  ///< tensors and the context: what the run needs of its device
    double published_gib = 0;             ///< as the row's software counts it
    int chosen = 0;                       ///< of the row's jobs
    bool fits = true, recomputes_all = false;
};

/// The chosen job of a row by core/sim/simulate: it fits, recomputes least, then is fastest; if none fits, the
/// smallest. Compiles all of them. Throws Error if no job can express the row.
Prediction predict(const Row& row, const std::string& script, const Constants& constants);

/// A job whose plan is made, ready to be priced again and again: for the fit.
struct Prepared {
    Job job;
    Mesh mesh;
    Graph graph;
    int64_t peak_bytes = 0;
    std::vector<double> wire_s;  ///< by price: seconds of collectives and messages
};

/// Compiles all jobs of a row. Throws Error where the row is not to be expressed. `keep`: a folder of graphs that were
/// made before; "": none.
std::vector<Prepared> prepare(const Row& row, const std::string& script, const std::string& keep = "");
/// Asks for the seconds of all wires anew.
void wire(Prepared& prepared, const Constants& constants);

/// A constant of wires: fitted to collectives (bench/published_collectives), and not here.
bool is_of_wires(const Constant& constant);
/// Whether a price of it may depend on the constant.
bool concerns(const Prepared& prepared, const Constant& constant);
/// Seconds of each price of the graph.
std::vector<double> price(const Prepared& prepared, const Constants& constants);
/// What simulate() says of the plan, times the job's batches.
double step_seconds(const Prepared& prepared, const Constants& constants, std::vector<double>* slopes = nullptr);
/// GiB of device memory that a run needs: tensors and context. What an allocator only caches it can free.
double needed_gib(int64_t bytes, const Constants& constants);
/// GiB of a published peak with so many bytes of tensors on a device of `device_gib`. An allocator reserves more than
/// tensors take as far as the device has it.
double published_gib(int64_t bytes, SoftwareDefaults::Peak counts, double device_gib, const Constants& constants);

/// As above, by the graphs.
Prediction predict(const std::vector<Prepared>& jobs, const Constants& constants);

}  // namespace orrery::published
