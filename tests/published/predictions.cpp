// 21 rows that the repository keeps, predicted: compiled by this project, played by its simulator.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "folders.h"
#include "published/predict.h"
#include "published/score.h"

using namespace orrery;
using namespace orrery::published;

namespace {

std::string few() { return in_source("bench/published/few_rows.csv"); }
std::string script() { return in_source("bench/published/model.lua"); }

std::map<std::string, Prediction> predictions(const Table& table) {
    std::map<std::string, Prediction> all;
    for (size_t i = 0; i < table.rows.size(); ++i) {
        const Row row = read_row(table, i);
        all[row.id] = predict(row, script(), Constants());
    }
    return all;
}

/// Each measured column moved to other rows.
Table shuffled(Table table) {
    for (const std::string& column : measured_columns) {
        const auto found = std::find(table.columns.begin(), table.columns.end(), column);
        if (found == table.columns.end()) continue;
        const auto at = static_cast<size_t>(found - table.columns.begin());
        const std::string first = table.rows.front()[at];
        for (size_t i = 0; i + 1 < table.rows.size(); ++i) table.rows[i][at] = table.rows[i + 1][at];
        table.rows.back()[at] = first;
    }
    return table;
}

}  // namespace

TEST_CASE("published: 21 rows are predicted, and other measurements beside them change nothing", "[published]") {
    const Table table = read_table(few());
    REQUIRE(table.rows.size() == 21);
    const Table moved = shuffled(table);
    REQUIRE(moved.rows != table.rows);
    CHECK(without_measured(moved).rows == without_measured(table).rows);
    const auto all = predictions(without_measured(table));
    std::vector<double> errors;
    for (size_t i = 0; i < table.rows.size(); ++i) {
        const Prediction& one = all.at(table.cell(i, "id"));
        INFO(table.cell(i, "id"));
        CHECK(one.step_s > 0);
        CHECK(std::isfinite(one.step_s));
        CHECK(one.peak_gib > 1);
        errors.push_back(std::abs(one.step_s / read_label(table, i).measured.step_s - 1));
        CHECK(errors.back() < 0.5);
    }
    CHECK(median_of(errors) < 0.12);
    // Read from the shuffled table by another way: the columns stay in it, and nobody looks at them.
    const Row row = read_row(moved, 0);
    CHECK(predict(row, script(), Constants()).step_s == all.at(row.id).step_s);
}

TEST_CASE("published: the slopes of a fit are those of its prices", "[published]") {
    const Table table = without_measured(read_table(few()));
    const std::vector<Prepared> jobs = prepare(read_row(table, 0), script());
    const Constants constants;
    std::vector<double> slopes;
    const double step = step_seconds(jobs[0], constants, &slopes);
    const std::vector<double> prices = price(jobs[0], constants);
    double sum = 0;
    for (size_t p = 0; p < prices.size(); ++p) sum += slopes[p] * prices[p];
    CHECK(jobs[0].job.batches * sum == Approx(step));
}

TEST_CASE("published: a fit's graphs say what the simulator says", "[published]") {
    const Table table = without_measured(read_table(few()));
    for (size_t i = 0; i < table.rows.size(); i += 3) {
        const Row row = read_row(table, i);
        INFO(row.id);
        const Prediction simulated = predict(row, script(), Constants());
        const Prediction graph = predict(prepare(row, script()), Constants());
        CHECK(graph.step_s == Approx(simulated.step_s).epsilon(1e-6));  // the simulator counts whole picoseconds
        CHECK(graph.chosen == simulated.chosen);
        CHECK(graph.peak_gib == simulated.peak_gib);
    }
}
