// The engine of time against the checker that was before it, on plans drawn by chance. ORRERY_LONG: 2,000 and 500.
#include "deadlock_oracle.h"
#include "drawn.h"

using namespace orrery;
using namespace orrery::test;

namespace {

std::string said(void (*judge)(const Plan&, const Network&), const Plan& plan, const Network& network) {
    try {
        judge(plan, network);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

/// One message is gone, has another tag, or goes to another rank: what lowering would never make.
void break_message(Plan& plan, Random& random) {
    auto& stream = plan.classes[below(random, plan.classes.size())].stream;
    const std::vector<size_t> messages = message_places(stream);
    Instruction& one = stream[messages[below(random, messages.size())]];
    switch (below(random, 3)) {
        case 0: one.tag += 1000; break;
        case 1: one.opcode = one.opcode == Opcode::send ? Opcode::receive : Opcode::send; break;
        default: {
            const auto at = static_cast<int>(&one - stream.data());
            stream.erase(stream.begin() + at);
            for (Instruction& i : stream) {
                std::erase(i.waits, at);
                for (int& wait : i.waits) wait -= wait > at;
            }
        }
    }
}

/// Where several messages meet wrong ones, who is looked at first decides which is named.
bool meet_wrongly(const std::string& said) { return said.find("send and receive do not match: ") != std::string::npos; }

}  // namespace

TEST_CASE("replay and the old checker judge plans alike", "[contract][schedules][any]") {
    const Sweep sweep;
    const std::map<std::string, C> contracts = shipped();
    Random random(15);
    const auto compare = [&](int count, auto&& change, const std::string& what) {
        int good = 0, refused = 0;
        for (int at = 0; at < count; ++at) {
            const Drawn drawn = draw(random);
            Model m = model(drawn, below(random, 2) == 1);
            const Mesh all = at % 4 == 3 ? with_collectives(m, drawn) : mesh(drawn);
            const Program program = distribute(m.program, all, carried(all, at / 4 % 2 == 1));
            for (const auto& [name, contract] : contracts) {
                Lowered lowered;
                REQUIRE(refusal(drawn.schedule, program, all, contract, lowered) == "");
                change(lowered.plan);
                Network network;
                for (const Axis& axis : all.axes()) network[axis.name] = contract;
                const auto engine = [](const Plan& plan, const Network& given) { check_deadlock(plan, given); };
                const std::string now = said(engine, lowered.plan, network);
                const std::string before = said(oracle::check_deadlock, lowered.plan, network);
                INFO(fmt::format("{} {} on {}, {}", what, at, name, drawn.text()));
                if (!meet_wrongly(now) || !meet_wrongly(before)) CHECK(now == before);
                (now.empty() ? good : refused) += 1;
            }
        }
        sweep.note(fmt::format("{}: {} plans end, {} do not; replay and the old checker say the same of all {}", what,
                               good, refused, good + refused));
        return refused;
    };
    CHECK(compare(
              sweep.count(20, 1000), [](Plan&) {}, "as lowered") == 0);
    CHECK(compare(
              sweep.count(20, 1000), [&](Plan& plan) { swap_messages(plan, random); }, "two messages swapped") > 0);
    CHECK(compare(
              sweep.count(20, 500), [&](Plan& plan) { break_message(plan, random); }, "a message broken") > 0);
}
