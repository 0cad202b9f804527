#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/cost_table.h"
#include "sim/kernel_prices.h"

namespace orrery {

/// The predicted time of a kernel launch on the machine of a cost table, and what it comes from.
struct LocalPrice {
    enum class From : uint8_t {
        measured,  ///< the same launch was measured
        scaled,    ///< scaled by amount of work from a measured launch of the op with another shape
        kind,      ///< scaled from another op of the same kind of work (Work), since the op was not measured
        rates,     ///< computed from the machine's FLOP/s and bytes/s, since no op of this kind of work was measured
    };
    double alone_s = 0;   ///< time with no other rank active
    double crowding = 1;  ///< slowdown factor if every processor runs the same kernel
    From from = From::measured;
};

/// Predicts times of kernels on one machine from a plain cost table (plain_costs). The slowdown of a kind of kernel
/// (`Work`) by other active ranks is the median over kernels measured both with and without other ranks; 1 if there are
/// none.
class LocalKernels {
public:
    /// `threads`: number per rank; `ranks`, `processors`: numbers per host. Throws Error if the table has no kernels.
    LocalKernels(const CostTable& plain, int threads, int64_t ranks, double processors);

    /// Returns a launch's time. A launch that was not measured is scaled from the row with the nearest shape, by the
    /// logarithms of its sizes; rows with the same dtype, attributes and threads come first. Throws Error if neither
    /// the op's rows nor the machine's rates are in the table.
    const LocalPrice& price(const KernelSpec& spec);
    /// Whether a launch of this op with the same type of its first operand was measured, with any shape.
    bool knows(const KernelSpec& spec) const;
    /// Time of a copy in memory: twice its bytes at the median rate of memory-bound kernels; 0 if the table has none,
    /// which `sources` reports.
    double copy_s(double bytes);
    /// Number of ranks that can run at once, each with its threads on processors of its own.
    double at_once() const { return at_once_; }
    /// FLOP/s of one rank in the table's fastest matrix product; 0: the table has none.
    double flops_per_s() const { return flops_per_s_; }
    /// Counts kernels by source: "52 of 56 kernels as measured; 3 scaled by their work from other shapes (matmul 2,
    /// gelu); 1 by ...".
    std::string sources() const;
    /// Says how other active ranks slow down each kind of work; "": no kernel was measured both with and without them.
    std::string crowding_text() const;

private:
    struct Row {
        std::string attributes;
        KernelWork work;
        double amount = 0;  ///< FLOP or bytes, to which the time is proportional
        double alone_s = 0;
        int threads = 1, beside = 0;
    };
    static Row row_of(const KernelSpec& spec);
    void find_crowding(const CostTable& plain);
    double alone(const KernelCost& row, Work work) const;
    double crowding(Work work) const;
    LocalPrice find(const KernelSpec& spec) const;
    double scaled(const std::vector<Row>& rows, const Row& asked) const;
    double distance(const Row& row, const Row& asked) const;
    double by_rates(const KernelSpec& spec, const Row& asked) const;
    void find_rates();

    const int threads_;
    const double at_once_;
    const int beside_;  ///< number of other ranks active at the same time
    std::map<Work, double> crowding_;
    std::map<std::string, std::vector<Row>> exact_, by_op_;
    std::map<Work, std::vector<Row>> by_kind_;
    double flops_per_s_ = 0, bytes_per_s_ = 0;  ///< FLOP/s and memory bytes/s of one rank; 0: unknown
    bool copies_are_free_ = false;              ///< whether copies were priced as 0 s, as no memory rate was measured
    std::map<std::string, LocalPrice> known_;
    std::map<LocalPrice::From, std::map<std::string, int>> from_;  ///< number of priced kernels, by source and op
};

/// The quantity that a launch's time is proportional to: FLOP for matrix products and attention, otherwise bytes.
double amount_of(const KernelWork& work);

}  // namespace orrery
