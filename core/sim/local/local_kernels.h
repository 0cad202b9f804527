#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/cost_table.h"
#include "sim/kernel_prices.h"

namespace orrery {

/// The price of a launch on the table's machine, and its source.
struct LocalPrice {
    enum class From : uint8_t {
        measured,  ///< the same launch was measured
        scaled,    ///< another shape of the op, scaled by work
        kind,      ///< scaled from another op of the same kind of work, since the op has no row
        rates,     ///< from the machine's rates, since no row is of this kind
    };
    double alone_s = 0;   ///< time with no other rank active
    double crowding = 1;  ///< slowdown factor if every processor runs the same kernel
    From from = From::measured;
};

/// Prices of kernels on one machine, from a plain table (`plain_costs`). Each row has the number of ranks that were
/// active at the same time: the slowdown of a kind of kernel (`Work`) is the median over kernels measured both with and
/// without other ranks, 1 if there are none.
class LocalKernels {
public:
    /// `threads`: of each rank; `ranks`: of the host. Throws Error if the table has no kernels.
    LocalKernels(const CostTable& plain, int threads, int64_t ranks, double processors);

    /// The price of a launch that was not measured is scaled from the row with the nearest shape, by the logarithms of
    /// its sizes; rows with the same dtype, attributes and threads come first. Throws Error if neither the op's rows
    /// nor the machine's rates are in the table.
    const LocalPrice& price(const KernelSpec& spec);
    /// Time of a copy in memory: twice its bytes at the median rate of memory-bound kernels; 0 if the table has none,
    /// which `sources` reports.
    double copy_s(double bytes);
    /// Number of ranks, with their threads, that can run at once.
    double at_once() const { return at_once_; }
    /// Rate of one rank in the table's fastest matrix product; 0: none.
    double flops_per_s() const { return flops_per_s_; }
    /// Counts kernels by source: "52 of 56 kernels as measured; 3 scaled by their work from other shapes (matmul 2,
    /// gelu); 1 by ...".
    std::string sources() const;
    /// For each kind of work, the slowdown by other ranks; "": no kernel was measured both with and without them.
    std::string crowding_text() const;

private:
    struct Row {
        std::string attributes;
        KernelWork work;
        double amount = 0;  ///< FLOP, or bytes
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
    double flops_per_s_ = 0, bytes_per_s_ = 0;  ///< rates of the machine; 0: unknown
    bool copies_are_free_ = false;              ///< copies were priced without a known rate
    std::map<std::string, LocalPrice> known_;
    std::map<LocalPrice::From, std::map<std::string, int>> from_;  ///< number of specs by source and op
};

/// The quantity that a launch's time is proportional to: FLOP for matrix products and attention, otherwise bytes.
double amount_of(const KernelWork& work);

}  // namespace orrery
