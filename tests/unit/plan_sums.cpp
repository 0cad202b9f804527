// Sums broken on purpose: a contribution left out, overwritten, added twice, or too late.
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/lower/emit.h"
#include "plan/print.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

/// A tied transformer block with clipping and states split over dp, in two micro-batches.
Plan tied_block(bool zero) {
    Model m = block(4, 6, 2, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params())
        for (const char* state : {".m", ".v"})
            if (zero) m.store(m.program.value(p).name + state, "dp", Placement::split(0));
    if (!zero) m.program.bucket("dp", 1 << 20, {});
    return compile(m.program, Mesh({{"dp", 2}}).with_microbatches(2)).plan;
}

/// Two stages, 1F1B over four micro-batches, the table tied over the stages.
Plan tied_pipeline() {
    Model m = network({0, 1}, true);
    m.split_names({{"batch", "dp"}});
    m.program.pipeline({"pp", "1f1b", 1, {}});
    const Schedule schedule = hand_1f1b(2, 4);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return compile(m.program, Mesh({{"pp", 2}, {"dp", 2}}).with_microbatches(4), options).plan;
}

std::vector<std::pair<const char*, Plan>> plans() {
    return {{"tied block", tied_block(false)},
            {"tied block, states split", tied_block(true)},
            {"tied pipeline", tied_pipeline()}};
}

void erase(RankClass& c, int index) {
    c.stream.erase(c.stream.begin() + index);
    for (Instruction& i : c.stream) {
        std::erase(i.waits, index);
        for (int& wait : i.waits) wait -= wait > index;
    }
}

/// Lets the queues wait anew for what they share after instructions have moved.
void order(RankClass& c) {
    for (Instruction& i : c.stream) i.waits.clear();
    lowering::insert_waits(c);
}

bool overlap(const RankClass& c, const Operand& a, const Operand& b) {
    return arena(c, a) == arena(c, b) && address(c, a) < address(c, b) + b.type.bytes() &&
           address(c, b) < address(c, a) + a.type.bytes();
}

/// The last instruction before `index` that writes in the loop what `index` reads first; none.
int last_writer(const RankClass& c, int index) {
    const Operand& read = c.stream[static_cast<size_t>(index)].operands[0];
    for (int i = index - 1; i >= 0; --i) {
        const Instruction& in = c.stream[static_cast<size_t>(i)];
        bool writes = false;
        for_each_access(c, in, [&](const Operand& o, bool, bool w) { writes |= w && overlap(c, o, read); });
        if (writes) return in.fragment.micro >= 0 ? i : none;
    }
    return none;
}

}  // namespace

TEST_CASE("sums: every instruction left out is missed") {
    for (const auto& [name, good] : plans())
        for (size_t k = 0; k < good.classes.size(); ++k)
            for (int i = 0; i < static_cast<int>(good.classes[k].stream.size()); ++i) {
                Plan plan = good;
                erase(plan.classes[k], i);
                INFO(name << " without " << describe(good, good.classes[k], i));
                CHECK_THROWS_AS(check_values(plan), Error);
            }
}

TEST_CASE("sums: a kernel that adds where it should write, or the other way round, is found") {
    int dropped = 0, added = 0;
    for (const auto& [name, good] : plans())
        for (size_t k = 0; k < good.classes.size(); ++k)
            for (size_t i = 0; i < good.classes[k].stream.size(); ++i) {
                const Instruction& in = good.classes[k].stream[i];
                if (in.opcode != Opcode::kernel) continue;
                KernelSpec spec = good.classes[k].kernels[static_cast<size_t>(in.kernel)];
                if (op_def(spec.op).accumulates.empty()) continue;
                const bool adds = spec.attributes.flag("accumulate");
                (adds ? dropped : added) += 1;
                spec.attributes.set("accumulate", !adds);
                Plan plan = good;
                RankClass& c = plan.classes[k];
                c.kernels.push_back(std::move(spec));
                c.stream[i].kernel = static_cast<int>(c.kernels.size()) - 1;
                order(c);
                INFO(name << (adds ? " overwrites in " : " adds in ")
                          << describe(good, good.classes[k], static_cast<int>(i)));
                if (adds)
                    CHECK_THROWS_WITH(check_values(plan),
                                      Contains("its bytes hold the sum without") && Contains("of micro-batch"));
                else
                    CHECK_THROWS_AS(check_values(plan), Error);
            }
    CHECK(dropped > 10);
    CHECK(added > 10);
}

TEST_CASE("sums: a gradient reduced before its last micro-batch is found") {
    int moved = 0;
    for (const auto& [name, good] : plans())
        for (size_t k = 0; k < good.classes.size(); ++k)
            for (int i = 0; i < static_cast<int>(good.classes[k].stream.size()); ++i) {
                const Instruction& in = good.classes[k].stream[static_cast<size_t>(i)];
                if (!is_collective(in.opcode) || in.fragment.micro >= 0) continue;
                const int writer = last_writer(good.classes[k], i);
                if (writer == none) continue;
                Plan plan = good;
                auto& stream = plan.classes[k].stream;
                std::rotate(stream.begin() + writer, stream.begin() + i, stream.begin() + i + 1);
                order(plan.classes[k]);
                INFO(name << ": early " << describe(good, good.classes[k], i));
                CHECK_THROWS_AS(check_values(plan), Error);
                if (in.opcode == Opcode::reduce_scatter)
                    CHECK_THROWS_WITH(check_values(plan), Contains("but its bytes hold the sum"));
                ++moved;
            }
    CHECK(moved > 5);
}

TEST_CASE("sums: what is missing or too much is named") {
    const Plan good = tied_block(true);
    const RankClass& c = good.classes[0];
    const auto joins = [&](const Instruction& i) {
        return i.opcode == Opcode::kernel && c.kernels[static_cast<size_t>(i.kernel)].op == "add" &&
               i.fragment.micro == 1 && i.operands[0].buffer == i.operands[2].buffer;
    };
    const auto found = std::find_if(c.stream.begin(), c.stream.end(), joins);
    REQUIRE(found != c.stream.end());
    const int index = static_cast<int>(found - c.stream.begin());
    SECTION("left out") {
        Plan plan = good;
        erase(plan.classes[0], index);
        CHECK_THROWS_WITH(check_values(plan), Contains("without") && Contains("of micro-batch 1"));
    }
    SECTION("twice") {
        Plan plan = good;
        plan.classes[0].stream.insert(plan.classes[0].stream.begin() + index, *found);
        order(plan.classes[0]);
        CHECK_THROWS_WITH(check_values(plan), Contains("with") && Contains("of micro-batch 1 added twice"));
    }
}
