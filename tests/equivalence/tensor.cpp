// A tensor-parallel perceptron whose strategy is ten lines of scripts/mlp.lua.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "follow.h"
#include "plan/summary.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t blocks = 2, embed = 16, batch = 4, seq = 6, steps = 20;

std::unique_ptr<Experiment> made(const std::string& mesh) {
    return experiment("scripts/mlp.lua",
                      fmt::format("[mesh]\n{}\n[train]\nsteps = {}\nsequences_per_step = {}\n[data]\npath = \"none\"\n"
                                  "tokens_per_sequence = {}\n[script]\nlayers = {}\nembed = {}\nmlp = 48\nlr = 1e-3\n",
                                  mesh, steps, batch, seq, blocks, embed));
}

test::Ran run(const test::Lowered& lowered, int64_t steps) { return run_drawn(lowered, steps, 256); }

/// All-reduces over tp of one step and the bytes that all ranks send for them: one of activations for `down` and one of
/// their gradients for `up`, each [batch / dp, seq, embed] a layer; one scalar for the norm of all split gradients.
void account(const Program& program, const Mesh& mesh) {
    const auto tp = *mesh.find("tp");
    const int64_t dp = mesh.size("dp"), members = mesh.size(tp), scalars = 1;
    const int64_t activations = batch / dp * seq * embed * 4;
    const int64_t count = 2 * blocks + scalars;
    const int64_t bytes = 2 * (members - 1) * (2 * blocks * activations + 4 * scalars) * dp;  // of `dp` groups

    const auto lowered = test::compile(program, mesh);
    const test::Ran ran = run(lowered, 1);
    int64_t sent = 0;
    for (const auto& rank : ran.traffic) {
        CHECK(rank[static_cast<size_t>(tp)].collectives == count);
        sent += rank[static_cast<size_t>(tp)].bytes_sent;
    }
    CHECK(sent == bytes);
    const PlanSummary all = summary(lowered.plan);
    for (const ClassSummary::Traffic& planned : all.classes.at(0).traffic) {
        CHECK(planned.opcode == Opcode::all_reduce);
        if (planned.axis != tp) continue;
        CHECK(planned.count == count);
        CHECK(std::abs(planned.bytes_sent * mesh.ranks() - bytes) < 2 * mesh.ranks() * count);
    }
    fmt::print("  {} all-reduces over tp a step, {:.1f} B a rank\n", count,
               static_cast<double>(sent) / static_cast<double>(mesh.ranks()));
}

}  // namespace

TEST_CASE("a Lua strategy splits the hidden dim: the numbers of one rank, and its messages", "[tensor]") {
    const auto one = made("");
    show_gradients(one->train());
    const test::Ran alone = run(test::compile(one->train(), one->mesh), steps);
    for (const std::string mesh : {"tp = 2", "tp = 3", "dp = 2\ntp = 2"}) {
        const auto many = made(mesh);
        Program shown = many->train();
        show_gradients(shown);
        const test::Ran ran = run(test::compile(shown, many->mesh), steps);
        CHECK(print(fmt::format("scripts/mlp.lua, {}, against one rank", many->mesh.text()), follow(ran, alone)) <= 1);
        account(many->train(), many->mesh);
    }
}
