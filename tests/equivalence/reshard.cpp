// A checkpoint of one mesh goes on on another: state bit for bit after a gather, the losses of the run that was not
// interrupted, the samples behind the last one seen.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "follow.h"
#include "run/checkpoint/save/checkpoints.h"
#include "run/checkpoint/save/saved_state.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t before = 4, steps = 8;

struct Place {
    std::string name;
    std::string mesh;
    std::string script;
};

std::unique_ptr<Experiment> made(const std::string& model, const Place& place) {
    return experiment("tests/equivalence/grid.lua",
                      fmt::format("[mesh]\n{}[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = 2\n[data]\n"
                                  "path = \"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\n{}",
                                  place.mesh, steps, model, place.script));
}

CheckpointStore& store_of(std::vector<std::unique_ptr<CheckpointStore>>& open, const std::string& place) {
    static const Registry registry = [] {
        Registry r;
        Loader({in_build("plugins")}).load("store", "memory", r, {});
        return r;
    }();
    Config config("store.memory");
    return *open.emplace_back(registry.store("memory", {})(config, place));
}

/// One rank's parts of the params and states, in memory of their own.
struct Parts {
    std::vector<std::vector<char>> memory;
    std::vector<StateValue> values;

    /// `whole`: what they are cut from; nullptr leaves them unset.
    Parts(const Plan& plan, int64_t rank, const test::Contents* whole) {
        const auto stages = stages_of(plan);
        for (const Operand& at : plan.class_of(rank).places) {
            const Value& value = plan.program.value(at.value);
            if (value.role != Role::param && value.role != Role::state) continue;
            const Layout layout = test::at_rest(value, plan.mesh);
            const Block piece = block_of(layout, value.type.shape, plan.mesh, rank);
            const TensorType local{value.type.dtype, piece.shape};
            auto& bytes = memory.emplace_back(static_cast<size_t>(local.bytes()), '\xee');
            if (whole) slice(whole->at(value.name).data(), value.type.shape, piece, 4, bytes.data());
            values.push_back({value.name,
                              value.type,
                              layout,
                              {bytes.data(), local.dtype, local.shape},
                              stages[static_cast<size_t>(at.value)],
                              is_fixed(plan.program, at.value)});
        }
    }
};

/// Calls work(checkpoints, rank) for each rank of the plan, on a thread each.
template <class Work>
void on_ranks(const Plan& plan, const std::string& place, Work work) {
    test::run_ranks(plan.mesh.ranks(), [&](int64_t rank, Rendezvous& rendezvous) {
        std::vector<std::unique_ptr<CheckpointStore>> open;
        const Gather gather = [&](const std::string& topic, const std::string& mine) {
            rendezvous.set(fmt::format("{}/{}", topic, rank), mine);
            std::vector<std::string> all;
            for (int64_t other = 0; other < plan.mesh.ranks(); ++other)
                all.push_back(rendezvous.get(fmt::format("{}/{}", topic, other), std::chrono::seconds(20)));
            return all;
        };
        Checkpoints checkpoints(store_of(open, place), plan.mesh, rank, gather,
                                {.share_bytes = 64, .stage_axis = plan.stage_axis});
        work(checkpoints, rank);
    });
}

test::Ran run(const test::Lowered& lowered, int64_t first, int64_t count, const test::Contents* state) {
    test::Running how;
    how.steps = count;
    how.reference = false;
    how.every_step = true;
    how.contents = [=, drawn = drawn_for(lowered.plan, 40)](const Value& value, int64_t step) {
        if (value.role == Role::input || !state) return drawn(value, step + first - 1);
        const std::vector<float>& whole = state->at(value.name);
        const char* bytes = reinterpret_cast<const char*>(whole.data());
        return std::vector<char>(bytes, bytes + whole.size() * 4);
    };
    return run_steps(lowered, how);
}

/// Saves on one mesh after a few steps, goes on on another, and returns the part of the tolerances used.
void move(const std::string& model, const Place& from, const Place& to) {
    INFO(model << ", " << from.name << " to " << to.name);
    const auto source = made(model, from), target = made(model, to);
    const auto a = compiled(*source), b = compiled(*target);
    const test::Ran whole = run(a, 1, steps, nullptr);
    const test::Contents& saved = whole.steps.at(before - 1);
    const std::string place = fmt::format("{} {} {}", model, from.name, to.name);
    on_ranks(a.plan, place, [&](Checkpoints& checkpoints, int64_t rank) {
        const Parts parts(a.plan, rank, &saved);
        checkpoints.save(before, parts.values, "{}");
    });

    // After a gather: every block of every rank has the bits that were saved.
    std::vector<std::unique_ptr<Parts>> restored(static_cast<size_t>(b.plan.mesh.ranks()));
    on_ranks(b.plan, place, [&](Checkpoints& checkpoints, int64_t rank) {
        auto parts = std::make_unique<Parts>(b.plan, rank, nullptr);
        const auto found = checkpoints.restore(parts->values);
        if (!found || found->step != before) throw Error("nothing was restored");
        restored[static_cast<size_t>(rank)] = std::move(parts);
    });
    test::Contents gathered;
    int64_t blocks = 0;
    for (size_t rank = 0; rank < restored.size(); ++rank) {
        const Parts expected(b.plan, static_cast<int64_t>(rank), &saved);
        CHECK(restored[rank]->memory == expected.memory);
        blocks += static_cast<int64_t>(expected.memory.size());
        for (const StateValue& value : restored[rank]->values) {
            auto& array = gathered[value.name];
            array.resize(static_cast<size_t>(value.global.count()));
            orrery::place(array.data(), value.global.shape,
                          block_of(value.layout, value.global.shape, b.plan.mesh, static_cast<int64_t>(rank)), 4,
                          value.local.data);
        }
    }
    int64_t elements = 0;
    for (const auto& [name, values] : gathered) {
        CHECK(values == saved.at(name));
        elements += static_cast<int64_t>(values.size());
    }

    const test::Ran rest = run(b, before + 1, steps - before, &gathered);
    Elements losses(1e-5, "relative"), params(1e-4);
    for (int64_t step = before; step < steps; ++step) {
        const double loss = loss_of(whole.steps[static_cast<size_t>(step)]);
        losses.add(fmt::format("step {}", step + 1),
                   {static_cast<float>(loss_of(rest.steps[static_cast<size_t>(step - before)]))},
                   {static_cast<float>(loss)}, loss);
    }
    for (const auto& [name, values] : gathered)
        if (!name.ends_with("attn.k.bias") && !name.ends_with(".m") && !name.ends_with(".v"))
            params.add(name, at(rest.values, name), at(whole.values, name));
    CHECK(print(fmt::format("{}: {} after {} steps, then {}; {} blocks and {} elements bit for bit", model, from.name,
                            before, to.name, blocks, elements),
                {losses.line("loss, steps behind"), params.line("params at the end")}) <= 1);
}

}  // namespace

TEST_CASE("a checkpoint of one mesh goes on on another", "[reshard]") {
    const Place one{"one rank", "", ""}, dp2{"dp 2", "dp = 2\n", ""}, dp4{"dp 4", "dp = 4\n", ""},
        tp2{"tp 2", "tp = 2\n", ""}, zero3{"dp 4, ZeRO-3", "dp = 4\n", "zero = 3\n"},
        zero1{"dp 2 x tp 2, ZeRO-1", "dp = 2\ntp = 2\n", "zero = 1\n"},
        pp{"pp 2 x tp 2", "pp = 2\ntp = 2\n", "schedule = \"1f1b\"\n"},
        vee{"pp 2 x dp 2, ZeRO-2, zbv", "pp = 2\ndp = 2\n", "zero = 2\nlayers = 4\nschedule = \"zbv\"\n"},
        deep{"tp 2, four layers", "tp = 2\n", "layers = 4\n"},
        heads{"dp 2 x cp 2 by heads, ZeRO-3", "dp = 2\ncp = 2\n", "zero = 3\ncontext = \"heads\"\n"},
        gather{"cp 4 by gathering", "cp = 4\n", "context = \"gather\"\n"},
        ring{"cp 4 by a ring, ZeRO-2", "cp = 4\n", "zero = 2\ncontext = \"ring\"\n"},
        zigzag{"cp 2 in zigzag order", "cp = 2\n", "context = \"gather\"\norder = \"zigzag\"\n"},
        balanced{"dp 2 x cp 2 by a ring in balanced order, ZeRO-2", "dp = 2\ncp = 2\n",
                 "zero = 2\ncontext = \"ring\"\norder = \"balanced\"\n"},
        all{"pp 2 x dp 2 x tp 2, ZeRO-1", "pp = 2\ndp = 2\ntp = 2\n", "zero = 1\nschedule = \"zb_h1\"\n"};
    const std::vector<std::pair<Place, Place>> moves{
        {dp2, one},   {one, dp4},     {dp4, dp2},         {dp2, tp2},      {tp2, zero3},  {zero3, tp2},
        {zero1, dp2}, {zero3, zero1}, {pp, zero3},        {zero3, pp},     {all, dp4},    {tp2, all},
        {vee, deep},  {one, heads},   {heads, one},       {heads, gather}, {gather, tp2}, {heads, ring},
        {ring, one},  {one, zigzag},  {zigzag, balanced}, {balanced, one}};
    int moved = 0;
    for (const auto& [from, to] : moves) {
        for (const char* model : {"gpt", "llama"}) move(model, from, to);
        ++moved;
    }
    CHECK(moved == static_cast<int>(moves.size()));
}

TEST_CASE("experts, the bias of their choice and their last loads go on on another mesh", "[reshard]") {
    const std::string balanced = "balance = \"last_step\"\nbias_rate = 0.01\nstd = 0.2\n";
    const Place one{"one rank", "", balanced}, four{"ep 4", "ep = 4\n", balanced + "experts_over = \"ep\"\n"},
        both{"ep 2 x tp 2", "ep = 2\ntp = 2\n", balanced + "experts_over = \"ep\"\n"};
    for (const char* model : {"mixtral", "deepseek_v3"}) {
        move(model, four, both);
        move(model, both, one);
        move(model, one, four);
    }
}
