// Right jobs of any seed, precision and mesh pass verification; mistakes of one rank are named with tensor and rank.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "ir/describe.h"
#include "plan/access.h"
#include "trial.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

struct Job {
    std::string model, mesh, script, precision;
    uint32_t seed = 0;
    int64_t steps = 2;

    std::string text() const {
        std::string place = mesh;
        std::replace(place.begin(), place.end(), '\n', ' ');
        return fmt::format("{} {} on {} {}, seed {}", model, precision, place, script, seed);
    }
};

const std::vector<std::pair<std::string, std::string>>& meshes() {
    static const std::vector<std::pair<std::string, std::string>> all{
        {"tp = 2", ""},
        {"dp = 2\ntp = 2", "sequence = true"},
        {"dp = 2", "zero = 3"},
        {"pp = 2", "layers = 2"},
    };
    return all;
}

/// Number `k` of all: each model, precision and mesh with each other within 36.
Job job(size_t k, int64_t steps) {
    const char* const models[] = {"gpt", "llama", "qwen2"};
    const char* const precisions[] = {"f32", "bf16", "f16"};
    const auto& [mesh, script] = meshes()[k % 4];
    return {models[k % 3], mesh, script, precisions[k / 3 % 3], static_cast<uint32_t>(k + 1), steps};
}

struct Made {
    std::unique_ptr<Experiment> experiment;
    test::Lowered lowered;
};

Made made(const Job& job) {
    Made m;
    const std::string scaling = job.precision == "f16" ? "loss_scale = 256.0\n" : "";
    m.experiment = experiment(
        "tests/equivalence/models.lua",
        fmt::format("[mesh]\n{}\n[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = 2\nprecision = \"{}\"\n"
                    "[data]\npath = \"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\n{}{}\n",
                    job.mesh, job.steps, job.precision, job.model, scaling, job.script));
    m.lowered = compiled(*m.experiment);
    return m;
}

VerifyReport verified(const Job& job, const Made& m, const test::Verifying& asked = {}) {
    test::Verifying how = asked;
    how.options.steps = job.steps;
    how.contents = [&job](const Value& value, int64_t step) { return draw(value, step, 40, job.seed); };
    return test::verify_plan(m.experiment->train(), m.lowered, how);
}

double worst(const VerifyReport& report) {
    double most = 0;
    for (const Compared& line : report.compared) most = std::max(most, line.worst);
    return most;
}

void sweep(size_t first, size_t count, int64_t steps) {
    double most = 0, gradients = 0;
    std::string farthest;
    int64_t left_out = 0, updated = 0;
    for (size_t k = first; k < first + count; ++k) {
        const Job right = job(k, steps);
        const Made m = made(right);
        const VerifyReport report = verified(right, m);
        INFO(right.text() << "\n" << report.text(m.lowered.plan, {}));
        CHECK(report.passed());
        CHECK(report.judges_gradients == (right.precision == "f32"));
        CHECK(report.steps == steps);
        if (worst(report) > most) most = worst(report), farthest = right.text();
        if (report.judges_gradients) gradients = std::max(gradients, report.gradients);
        left_out += report.compared[3].left_out;
        updated += report.compared[3].elements;
    }
    fmt::print(
        "  {} right jobs: worst {:.2g} of what rounding explains ({}), {:.2g} of the gradients' tolerance; {} of {} "
        "updated elements left out\n",
        count, most, farthest, gradients, left_out, updated);
    CHECK(left_out < updated / 4);
}

/// Gradients that the rank makes, in its first micro-batch, or that it reduces over ranks.
std::vector<std::string> gradients_of(const Plan& plan, int64_t rank, bool reduced) {
    std::set<std::string> names;
    const RankClass& c = plan.class_of(rank);
    for (const Instruction& i : c.stream) {
        const bool reduces = i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter;
        if (reduced ? !reduces : i.opcode != Opcode::kernel || i.fragment.micro > 0) continue;
        const auto take = [&](const Operand& operand, bool, bool writes) {
            if (operand.value == none || !(reduced || writes)) return;
            const ValueId value = reduced ? original_of(plan.program, operand.value) : operand.value;
            const std::string& name = plan.program.value(value).name;
            if (name.ends_with(".grad")) names.insert(name);
        };
        if (i.operands.size() > 2 && reduces)
            for (const Operand& operand : i.operands) take(operand, true, true);
        else
            for_each_access(c, i, take);
    }
    return {names.begin(), names.end()};
}

/// One mistake in job `k`, and whether its tensor and rank are the ones that are named.
bool names_mistake(size_t k) {
    Job wrong = job(k, 1);
    wrong.precision = k / 4 % 2 == 0 ? "f32" : "bf16";
    const bool reduced = k % 5 >= 3;
    if (reduced) wrong.mesh = "dp = 2\ntp = 2", wrong.script = k % 2 == 0 ? "zero = 1" : "";
    const Made m = made(wrong);
    const Plan& plan = m.lowered.plan;
    Injection injection;
    injection.what = reduced ? Injection::What::unreduced : Injection::What::scale;
    injection.rank = static_cast<int64_t>(k) % plan.mesh.ranks();
    const auto names = gradients_of(plan, injection.rank, reduced);
    if (names.empty()) return false;
    injection.tensor = names[(7 * k) % names.size()];
    test::Verifying how;
    how.options.injections = {injection};
    const VerifyReport report = verified(wrong, m, how);
    INFO(wrong.text() << ", " << (reduced ? "unreduced " : "scaled ") << injection.tensor << " on rank "
                      << injection.rank << "\n"
                      << report.text(plan, how.options));
    CHECK_FALSE(report.passed());
    if (report.roots.empty()) return false;
    bool named = false;
    for (const Finding& finding : report.roots) {
        CHECK(finding.own);
        CHECK(finding.rank == injection.rank);
        CHECK(finding.members.empty());
        CHECK(finding.edge.empty() == !reduced);
        named |= plan.program.value(original_of(plan.program, finding.value)).name == injection.tensor;
    }
    CHECK(named);
    CHECK((reduced || report.roots_in_all == 1));  // of a bucket, every member
    return named && report.roots[0].rank == injection.rank;
}

int mistakes_named(size_t count) {
    int named = 0;
    for (size_t k = 0; k < count; ++k) named += names_mistake(k);
    fmt::print("  {} of {} mistakes named with tensor and rank\n", named, count);
    return named;
}

}  // namespace

TEST_CASE("right jobs of 20 seeds pass verification, in every precision", "[verified]") { sweep(0, 20, 2); }

TEST_CASE("right jobs pass verification after many steps", "[verified]") {
    for (size_t k : {2, 3, 16}) sweep(k, 1, 8);
}

TEST_CASE("20 mistakes of one rank are named with tensor and rank, in f32 and bf16", "[verified]") {
    CHECK(mistakes_named(20) == 20);
}

TEST_CASE("the same by the hundred", "[.][many]") {
    sweep(720, 36, 10);
    CHECK(mistakes_named(100) == 100);
    sweep(0, 360, 2);
}
