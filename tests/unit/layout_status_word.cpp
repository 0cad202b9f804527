// The word that every rank tells all others with each train step: what adds up, which messages carry it, who learns it.
#include "compile/passes/status_word.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "layout_models.h"
#include "plan/access.h"
#include "plan_ranks.h"
#include "run/host_side.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

struct Case {
    std::string name;
    Program program;
    Mesh mesh;
    Schedule schedule = {};
    int64_t messages = 0;  ///< that a rank has only because of the word
    int64_t words = 1;     ///< messages that the word is in, 4 bytes of each
    bool joined = false;   ///< one transport for all axes
};

std::vector<Case> cases() {
    std::vector<Case> all;
    const auto model = [](int64_t micro, int64_t bucket, bool heads) {
        Model m = block(8, 4, 2, 4, 8, true, true);
        m.split_names({{"batch", "dp"}});
        if (heads) m.split_names({{"heads", "tp"}, {"mlp", "tp"}});
        m.program.bucket("dp", bucket, {});
        if (micro > 1) m.program.microbatches(micro, {});
        return m.program;
    };
    all.push_back({"dp=2", model(1, 4096, false), Mesh({{"dp", 2}}), {}, 0});
    all.push_back({"dp=4, not joined", model(1, 0, false), Mesh({{"dp", 4}}), {}, 1});
    all.push_back({"dp=2, micro-batches", model(4, 4096, false), Mesh({{"dp", 2}}).with_microbatches(4), {}, 0});
    all.push_back({"dp=2 tp=2", model(1, 4096, true), Mesh({{"dp", 2}, {"tp", 2}}), {}, 1, 2});
    all.push_back({"tp=2 dp=2, micro-batches",
                   model(2, 4096, true),
                   Mesh({{"tp", 2}, {"dp", 2}}).with_microbatches(2),
                   {},
                   1,
                   2});
    all.push_back({"dp=2 tp=2 together", model(1, 4096, true), Mesh({{"dp", 2}, {"tp", 2}}), {}, 1, 2, true});
    // No message of the loss would take the word along: it goes over all axes at once.
    all.push_back({"dp=2 tp=2 together, no bucket", model(1, 0, true), Mesh({{"dp", 2}, {"tp", 2}}), {}, 1, 1, true});
    {
        Model m = block(8, 4, 2, 4, 8, true, true);
        m.split_names({{"batch", "rep"}, {"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
        for (const char* axis : {"rep", "dp"}) m.program.bucket(axis, 4096, {});
        const Mesh mesh({{"rep", 2}, {"dp", 2}, {"tp", 2}});
        all.push_back({"rep=2 dp=2 tp=2", m.program, mesh, {}, 2, 3});
        all.push_back({"rep=2 dp=2 tp=2 together", m.program, mesh, {}, 1, 2, true});
        Model whole = block(8, 4, 2, 4, 8, true, true);
        whole.split_names({{"heads", "tp"}, {"mlp", "tp"}});
        all.push_back({"rep=2 dp=2 together, the loss on each rank", whole.program, mesh, {}, 1, 1, true});
    }
    for (const int64_t dp : {1, 2}) {
        Model m = network({0, 1}, false, DType::f32, 16);
        if (dp > 1) m.split_names({{"batch", "dp"}});
        m.program.pipeline({"pp", "1f1b", 1, {}});
        m.program.microbatches(4, {});
        const Mesh mesh = dp > 1 ? Mesh({{"dp", dp}, {"pp", 2}}) : Mesh({{"pp", 2}});
        all.push_back({dp > 1 ? "dp=2 pp=2" : "pp=2", m.program, mesh.with_microbatches(4), hand_1f1b(2, 4), dp, dp});
    }
    for (const char* axis : {"tp", "dp"}) {
        Model m = network({0, 1}, false, DType::f32, 16);
        m.split_names({{axis[0] == 't' ? "mlp" : "batch", axis}});
        m.program.pipeline({"pp", "1f1b", 1, {}});
        m.program.microbatches(4, {});
        const Mesh mesh = Mesh({{"pp", 2}, {axis, 2}}).with_microbatches(4);
        all.push_back({fmt::format("pp=2 {}=2 together", axis), m.program, mesh, hand_1f1b(2, 4), 1, 1, true});
    }
    return all;
}

Lowered lowered(const Case& c, bool status) {
    CompileOptions options;
    options.status_word = status;
    if (!c.schedule.ranks.empty()) options.schedule = &c.schedule;
    if (c.joined) options.transports = one_transport(c.mesh);
    if (c.mesh.find("pp")) options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return compile(c.program, c.mesh, options);
}

/// Messages and bytes of a class' stream.
std::pair<int64_t, int64_t> sent(const RankClass& ranks) {
    std::pair<int64_t, int64_t> all{0, 0};
    for (const Instruction& i : ranks.stream)
        if (is_collective(i.opcode) || i.opcode == Opcode::send) {
            ++all.first;
            all.second += i.operands[0].type.bytes();
        }
    return all;
}

/// What each rank finds in the results when the ranks say these words.
std::vector<float> told(const Lowered& lowered, const std::vector<Status>& words, int64_t steps) {
    const int64_t ranks = lowered.plan.mesh.ranks();
    std::vector<float> found(static_cast<size_t>(ranks), -1);
    registry();
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        const auto device = cpu_device();
        RankContext context(setting_of(lowered, rank, *device, &rendezvous));
        for (const Memory& arena : context.arenas()) std::memset(arena.data, 0, static_cast<size_t>(arena.bytes));
        const auto executor = context.executor(lowered.plan);
        const HostMemory inputs(*device, executor->inputs().bytes);
        const HostResults results(*device, *executor);
        for (int64_t step = 0; step < steps; ++step) {
            std::memset(inputs.data(), 0, static_cast<size_t>(executor->inputs().bytes));
            const ValueId own = *lowered.plan.program.find(status_name);
            const float word = word_of(words[static_cast<size_t>(rank)]);
            std::memcpy(inputs.data() + executor->inputs().offset(own).value(), &word, sizeof word);
            executor->run(inputs.data(), results.data());
        }
        results.read(status_name, &found[static_cast<size_t>(rank)]);
    });
    return found;
}

}  // namespace

TEST_CASE("the largest status wins, however many ranks say it") {
    CHECK(status_of(0) == Status::go_on);
    CHECK(word_of(Status::go_on) == 0);
    using enum Status;
    float most = 0;  // of all lower ones, said by as many
    for (const Status status : {saving, stop, save_failed, leave}) {
        for (const float ranks : {1.0f, 2.0f, 16384.0f, 4194303.0f}) {
            CHECK(status_of(ranks * word_of(status)) == status);
            CHECK(status_of(most + ranks * word_of(status)) == status);
        }
        most += 4194303.0f * word_of(status);
        CHECK(std::isfinite(most));
        CHECK(status_of(most) == status);
    }
    CHECK_THROWS_WITH(status_of(NAN), Catch::Matchers::Contains("status words"));
    CHECK_THROWS_WITH(status_of(-1), Catch::Matchers::Contains("status words"));
}

TEST_CASE("every rank learns what any rank says, beside the loss where that is joined, else by 4 bytes a message",
          "[slow]") {
    for (const Case& c : cases()) {
        INFO(c.name);
        const Lowered without = lowered(c, false), with = lowered(c, true);
        for (size_t k = 0; k < with.plan.classes.size(); ++k) {
            const auto before = sent(without.plan.classes[k]), after = sent(with.plan.classes[k]);
            INFO("class " << k);
            CHECK(after.first - before.first == c.messages);
            CHECK(after.second - before.second == 4 * c.words);
        }
        const int64_t ranks = c.mesh.ranks();
        CHECK(told(with, std::vector(static_cast<size_t>(ranks), Status::go_on), 2) ==
              std::vector<float>(static_cast<size_t>(ranks), 0));
        for (int64_t who = 0; who < ranks; ++who) {
            std::vector<Status> words(static_cast<size_t>(ranks), Status::go_on);
            words[static_cast<size_t>(who)] = Status::stop;
            CHECK(told(with, words, 1) == std::vector<float>(static_cast<size_t>(ranks), word_of(Status::stop)));
        }
        const std::vector<float> all = told(with, std::vector(static_cast<size_t>(ranks), Status::stop), 1);
        for (const float sum : all) CHECK(status_of(sum) == Status::stop);
    }
}

TEST_CASE("a program of one rank has no status word") {
    Case c{"one", mlp(4, 4, 8).program, Mesh()};
    const Lowered one = lowered(c, true);
    CHECK_FALSE(one.plan.program.find(status_name));
    CHECK_FALSE(one.plan.program.result(status_name));
}
