#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::published {

/// A CSV file: cells by row and column, quotes undone.
struct Table {
    std::string path;
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;

    /// "" where there is no such column.
    const std::string& cell(size_t row, const std::string& column) const;
    bool has(const std::string& column) const;
};

/// Throws Error at path:line for a row whose cells are not as many as the columns.
Table read_table(const std::string& path);

/// What was measured of a run, and never seen by the predictor. 0: not given.
struct Measured {
    double step_s = 0, tokens_per_s = 0, peak_gib = 0;
};

/// Columns that are dropped before the predictor sees a row.
extern const std::vector<std::string> measured_columns;
Table without_measured(Table table);

/// One training run as it was configured.
struct Row {
    std::string id, source, gpu, model, precision, zero, recompute, notes;
    int64_t gpus = 0, layers = 0, embed = 0, heads = 0, kv_heads = 0, mlp = 0, vocab = 0, tokens = 0;
    int64_t tp = 1, pp = 1, cp = 1, ep = 1, dp = 1;
    std::optional<int64_t> micro_batch, chunks;
    int64_t batch = 0;           ///< sequences of a step
    double nic_bytes_per_s = 0;  ///< of one accelerator, one direction; 0: not given
};

/// What groups rows in statistics; the predictor does not see it.
struct Label {
    std::string family, accelerator, precision, model, trust;
    Measured measured;
    bool asked = false;  ///< predict = yes
};

/// Why the row cannot be read as a configuration; "" where it can.
std::string missing_in(const Table& table, size_t row);
/// Throws Error naming row and column where a cell is no number, or a count none that a run can have.
Row read_row(const Table& table, size_t row);
Label read_label(const Table& table, size_t row);

/// "H100-80G-SXM" of "H100-80G-SXM (this box: ...)".
std::string accelerator_of(const std::string& gpu);

}  // namespace orrery::published
