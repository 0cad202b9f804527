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
        scaled,    ///< another shape of its op, by its work
        kind,      ///< the same of another op whose time goes by the same work: no row has the op
        rates,     ///< the machine's rates, as its rows have them: no row is of its kind
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

    /// Of what was not measured the row whose shape is nearest, in logarithms of its sizes, by the ratio of their work;
    /// of the same type of numbers, attributes and threads before others. Throws Error where the op has no row and the
    /// table none that tells the machine's rate.
    const LocalPrice& price(const KernelSpec& spec);
    /// Of a copy in memory: twice its bytes, at the median rate of kernels that move bytes; 0 where the table has none,
    /// which `sources` says.
    double copy_s(double bytes);
    /// Ranks of so many threads that can work at once.
    double at_once() const { return at_once_; }
    /// Of a rank, in the fastest product that the table has; 0: it has none.
    double flops_per_s() const { return flops_per_s_; }
    /// "52 of 56 kernels as measured; 3 scaled by their work from other shapes (matmul 2, gelu); 1 by ...".
    std::string sources() const;
    /// By kind of work, what other ranks cost; "": no kernel was measured both with and without them.
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
    const int beside_;  ///< ranks at work beside one
    std::map<Work, double> crowding_;
    std::map<std::string, std::vector<Row>> exact_, by_op_;
    std::map<Work, std::vector<Row>> by_kind_;
    double flops_per_s_ = 0, bytes_per_s_ = 0;  ///< 0: no row tells
    bool copies_are_free_ = false;              ///< some were asked for, and no row tells
    std::map<std::string, LocalPrice> known_;
    std::map<LocalPrice::From, std::map<std::string, int>> from_;  ///< how many specs of an op
};

/// What the time of a launch goes by: FLOP of products and attention, else bytes.
double amount_of(const KernelWork& work);

}  // namespace orrery
