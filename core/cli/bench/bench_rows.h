#pragma once
#include <chrono>
#include <vector>

#include "cli/bench/bench_collectives.h"
#include "orrery/communicator.h"
#include "orrery/device.h"

namespace orrery {

/// How a collective divides its tensors (n elements, P ranks), and its bus bandwidth as defined by nccl-tests.
struct BenchForm {
    const char* name;
    bool input_is_block;   ///< input has n/P elements: all_gather
    bool output_is_block;  ///< output has n/P elements: reduce_scatter
    bool blocks;           ///< n is divided into P blocks and must be a multiple of P
    bool reduces;
    double (*bus)(double ranks);  ///< bus bandwidth divided by algorithm bandwidth, for so many ranks
};

/// Returns the form of the collective `name`. Throws Error listing the known names.
const BenchForm& bench_form(const std::string& name);

/// Returns the tensor sizes in bytes that -b, -e and -f select for `ranks` ranks, ascending. With -b 0 they begin with
/// 0 and the smallest size that the form supports. Throws Error if there are none.
std::vector<int64_t> bench_sizes(const CollectiveBench& bench, const BenchForm& form, int64_t ranks);

double bench_time(CollectiveBench::Average average, const std::vector<double>& us);

/// Measures the lines of nccl-tests' table in one rank's process; each size is timed out of place and in place.
class BenchRows {
public:
    /// `arena` must hold two tensors of the largest size, each rounded up to 64 bytes.
    BenchRows(const CollectiveBench& bench, Communicator& communicator, Rendezvous& rendezvous, const Memory& arena,
              std::chrono::milliseconds limit);

    /// Times one tensor size; rank 0 prints its line. Called by all ranks.
    void row(int64_t bytes);

    int64_t wrong() const { return wrong_; }  ///< number of wrong elements on all lines and ranks
    /// Mean bus bandwidth of all lines in GB/s, out of place and in place, as in nccl-tests.
    double mean_bus_bandwidth() const { return times_ == 0 ? 0 : bus_ / static_cast<double>(times_); }

private:
    struct Timed {
        double us = 0;
        int64_t wrong = 0;
    };

    std::string columns(int64_t count, const Timed& timed);
    void call(const Tensor& in, const Tensor& out);
    int64_t iterations(int64_t bytes) const;
    Timed time(int64_t count, bool in_place);
    int64_t value(int64_t rank, int64_t i) const;
    void fill(const Tensor& in) const;
    int64_t expected(int64_t i, int64_t block) const;
    int64_t wrong_in(const Tensor& out, int64_t block) const;
    Timed gather(const Timed& mine);

    const CollectiveBench& bench_;
    const BenchForm& form_;
    Communicator& comm_;
    Rendezvous& rendezvous_;
    const Memory arena_;
    const std::chrono::milliseconds limit_;
    const int ranks_, me_;
    int64_t gathered_ = 0, wrong_ = 0, times_ = 0;
    double bus_ = 0;
};

}  // namespace orrery
