// Every schedule of the library, proved under the contract of every transport.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "../lua/fake_host.h"
#include "../unit/layout_models.h"
#include "compile/pipeline.h"
#include "harness.h"
#include "lua/script.h"
#include "plan/check/check.h"
#include "plan/chunks/chunks.h"
#include "suites/chosen.h"

using namespace orrery;
using namespace orrery::test;
using namespace orrery::conformance;
using C = TransportContract;

namespace {

std::map<std::string, C> contracts() {
    std::map<std::string, C> all;
    for (const Backend& backend : backends()) all.emplace(backend.transport, contract_of(backend));
    for (const Backend& backend : with_option("slots", {int64_t{2}, {}, false}))
        all.emplace(backend.transport + " with slots", contract_of(backend));
    // What NCCL declares, where it cannot be loaded.
    C nccl;
    nccl.send = C::Send::grouped;
    nccl.queued = true;
    all.emplace("nccl", nccl);
    return all;
}

}  // namespace

TEST_CASE("every schedule of the library ends under every transport's contract", "[contract][schedules]") {
    const std::map<std::string, C> all = contracts();
    const std::vector<std::string> chosen = suites::chosen("transport");
    CHECK(all.size() >= (chosen.empty() ? 3 : chosen == std::vector<std::string>{"nccl"} ? 1 : 2));
    const std::vector<std::pair<const char*, int>> schedules{
        {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb_h1", 1}, {"zbv", 2}};
    FakeHost host;
    for (const auto& [transport, contract] : all)
        for (const auto& [name, chunks] : schedules)
            for (const int ranks : {2, 4})
                for (const int64_t micros : {1, ranks, 2 * ranks}) {
                    if (micros % ranks != 0 && std::string(name) == "interleaved") continue;  // wants rounds of p
                    INFO(fmt::format("{} on {}: {} ranks, {} micro-batches", name, transport, ranks, micros));
                    std::vector<int> stages;
                    for (int stage = 0; stage < ranks * chunks; ++stage) stages.push_back(stage);
                    Model m = network(stages, true);
                    m.program.pipeline({"pp", name, chunks, {}});
                    const Schedule schedule = load_schedule(m.program.pipeline(), ranks, micros, {}, host);
                    CompileOptions options;
                    options.schedule = &schedule;
                    options.contracts["pp"] = contract;
                    Persistent persistent;
                    const Mesh mesh = Mesh({{"pp", ranks}}).with_microbatches(micros);
                    const Plan plan = plan_of(distribute(m.program, mesh), mesh, persistent, options);
                    CHECK_NOTHROW(check(plan, options.contracts));
                    CHECK_NOTHROW(check_collective_tables(plan, {{"pp", {ring_table(ranks)}}}, {}));
                }
}
