#pragma once
#include <functional>
#include <string>
#include <vector>

#include "published/predict.h"
#include "published/rows.h"

namespace orrery::published {

/// A prediction beside what was measured.
struct Scored {
    Row row;
    Label label;
    Prediction prediction;
    std::string parallelism;  ///< "fsdp", "dp tp", "dp tp pp cp", "dp"
    bool guessed = false;

    double error() const { return std::abs(prediction.step_s / label.measured.step_s - 1); }
    double measured_tokens_per_s() const;
};

/// Families of fewer rows are pooled in one.
constexpr size_t least_family = 4;

struct Summary {
    size_t rows = 0;
    double families = 0;  ///< mean over families of the mean in each
    double median = 0;    ///< over rows
    double within = 0;    ///< share of rows within 15 %
};

/// The value with a part of the others below it, linear between neighbours: 0.5 gives the median. 0 without values.
double percentile(std::vector<double> values, double part);
double median_of(std::vector<double> values);
Summary summary_of(const std::vector<Scored>& rows);
/// By family, pooled: name and rows.
std::vector<std::pair<std::string, std::vector<Scored>>> by(const std::vector<Scored>& rows,
                                                            const std::function<std::string(const Scored&)>& key,
                                                            size_t least = 1);

/// Spearman's rank correlation; equal values share the mean of their ranks.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

/// Rows of one family, model, accelerator and precision, at least 6, whose best is at least 1.2 of the worst.
struct Sweep {
    std::string name;
    size_t rows = 0;
    double correlation = 0;
};
std::vector<Sweep> sweeps(const std::vector<Scored>& rows);

/// Neighbours of a scaling curve: all equal but the ranks of dp and the batch that grows with them.
struct Pair {
    std::string from, to;
    double predicted = 1, measured = 1;  ///< ratio of tokens a second and accelerator
};
std::vector<Pair> scaling_pairs(const std::vector<Scored>& rows);

/// Rows of equal configuration: what no prediction can be better than.
struct Equal {
    std::string name;
    size_t rows = 0;
    double floor = 0;   ///< the least mean error of one prediction for all
    double spread = 0;  ///< largest over smallest, less 1
};
std::vector<Equal> equal_rows(const std::vector<Scored>& rows);

/// Of each row a line with its predicted and measured time.
std::string each_text(const std::vector<Scored>& rows);
/// Whether constants are fitted to the row: not with context parallelism or experts, which show how well a model fitted
/// without them predicts them.
bool fitted_to(const Row& row);
/// The scores as text. Rows that are held out of the fit count only in separate lines, and those with experts have a
/// line each.
std::string report(const std::vector<Scored>& rows);

}  // namespace orrery::published
