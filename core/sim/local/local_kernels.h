#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/cost_table.h"
#include "sim/kernel_prices.h"

namespace orrery {

/// What a launch takes on the machine of a table, and where that is known from.
struct LocalPrice {
    enum class From : uint8_t {
        measured,  ///< this very launch
        scaled,    ///< other shapes of its op, by their work
        rates,     ///< the machine's rates, as its rows have them: no row of the op
    };
    double alone_s = 0;   ///< no other rank at work
    double crowding = 1;  ///< how many times as long it takes when every processor does the same
    From from = From::measured;
};

/// Kernels of a rank on one machine, from a plain table (`plain_costs`). A row says how many ranks worked beside it:
/// how much longer kernels of a kind (`Work`) take then is the median over those that the table has with and without
/// others, 1 where it has no such.
class LocalKernels {
public:
    /// `threads`: of a rank; `ranks`: of the host. Throws Error where the table has no kernels.
    LocalKernels(const CostTable& plain, int threads, int64_t ranks, double processors);

    /// Between the two nearest amounts of work of the op, on logarithmic scales; in proportion to its work beyond. Rows
    /// of the same type of numbers and of as many threads go first; of another number of threads by its ratio. Throws
    /// Error where the op has no row and the table none that tells the machine's rate.
    const LocalPrice& price(const KernelSpec& spec);
    /// Of a copy in memory: twice its bytes, at the rate of kernels that move bytes.
    double copy_s(double bytes);
    /// Ranks of so many threads that can work at once.
    double at_once() const { return at_once_; }
    /// "52 kernels as measured; 3 scaled by their work from other shapes (matmul 2, gelu); 1 by the machine's rates".
    std::string sources() const;

private:
    struct Row {
        KernelWork work;
        double amount = 0;  ///< FLOP, or bytes
        double alone_s = 0;
        int threads = 1, beside = 0;
    };
    void find_crowding(const CostTable& plain);
    double alone(const KernelCost& row, Work work) const;
    double crowding(Work work) const;
    LocalPrice find(const KernelSpec& spec) const;
    double scaled(const std::vector<Row>& rows, const KernelWork& work) const;
    double by_rates(const KernelSpec& spec, const KernelWork& work) const;
    void find_rates();

    const int threads_;
    const double at_once_;
    const int beside_;  ///< ranks at work beside one
    std::map<Work, double> crowding_;
    std::map<std::string, std::vector<Row>> exact_, by_op_;
    double flops_per_s_ = 0, bytes_per_s_ = 0;  ///< 0: no row tells
    std::map<std::string, LocalPrice> known_;
    std::map<std::string, int> scaled_, rated_;  ///< how many specs of an op
};

/// What the time of a launch goes by: FLOP of products and attention, else bytes.
double amount_of(const KernelWork& work);

}  // namespace orrery
