// Days and price of a training, and whose table of measured kernels a cluster can take.
#include "sim/training_cost.h"

#include <catch2/catch.hpp>

#include "orrery/error.h"
#include "sim/cluster_prices.h"

using namespace orrery;

TEST_CASE("training cost: steps, days and price of a number of tokens", "[training_cost]") {
    TrainingTerms terms{.tokens = 15e12, .tokens_per_step = 16e6, .goodput = {}, .price_per_s = 0};
    CHECK(training_cost(terms, 8).steps == 937500);
    CHECK(training_cost(terms, 8).days == Approx(937500 * 8 / 86400.0));
    CHECK(training_cost(terms, 8).price == 0);
    CHECK(text(terms, 8) == "15.0 T tokens: 937,500 steps, 86.81 days without failures");
    terms.goodput = 0.9;
    terms.price_per_s = 16384 * 2.5 / 3600;
    CHECK(training_cost(terms, 8).days == Approx(937500 * 8 / 86400.0 / 0.9));
    CHECK(training_cost(terms, 8).price == Approx(937500 * 8 / 0.9 * terms.price_per_s));
    CHECK(text(terms, 8) ==
          "15.0 T tokens: 937,500 steps, 96.45 days with goodput 90.0 %, price 94.8 M in the unit of price_per_hour");
    terms.tokens = 1;
    CHECK(training_cost(terms, 8).steps == 1);
    terms.tokens_per_step = 0;
    CHECK_THROWS_WITH(training_cost(terms, 8), Catch::Contains("the inputs of the program are not tokens"));
}

TEST_CASE("a table is of a cluster's accelerator if all parts of its name are words of the device's",
          "[training_cost]") {
    CostTable table;
    table.device = "cuda";
    table.machine = "driver=12080\nprocessor=NVIDIA H100 80GB HBM3\n";
    CHECK(measured_on(table) == "NVIDIA H100 80GB HBM3");
    CHECK(measured_on(table, "h100"));
    CHECK(measured_on(table, "H100_80GB"));
    for (const char* other : {"h200", "h100_pcie", "h10", "b200", "cpu"}) CHECK_FALSE(measured_on(table, other));
    table.machine = "processor=NVIDIA GB200\n";
    CHECK_FALSE(measured_on(table, "b200"));
    CHECK(measured_on(table, "gb200"));
    table.machine = "processor=NVIDIA A100-SXM4-80GB\n";
    CHECK(measured_on(table, "a100"));
    table.device = "cpu";
    table.machine = "model name=Some CPU\n";
    CHECK(measured_on(table) == "Some CPU");
    CHECK(measured_on(table, "cpu"));
    CHECK_FALSE(measured_on(table, "a100"));
}
