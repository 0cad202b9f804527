// Messages between ranks of one class: streams of shifts drawn by chance, sound and broken. Whether they end is judged
// by playing every member, by rotation, by the checker that was before the engine on a class a rank, in small steps,
// and by running them. ORRERY_LONG: more of each.
#include "deadlock_oracle.h"
#include "drawn.h"
#include "plan/print.h"
#include "plan_stepper.h"

#include <atomic>
#include <thread>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr int64_t words = 4;  // of a buffer, f32

/// One instruction of every rank of a class.
struct Line {
    Opcode what;
    int from = none, to = none;  ///< buffers
    AxisId axis = none;
    int peer = none;
    bool relative = false;
    int64_t tag = 0;
};

/// What all ranks do together: a shift over dp, a sum over dp, a copy; or ranks of the first class hand a buffer to
/// those of the second, over pp.
struct Act {
    enum class What : uint8_t { shift, sum, copy, pass } what;
    int by = 0, from = 0, to = 0;
};

struct Shifts {
    Mesh mesh;
    std::vector<Act> acts;
    std::vector<std::vector<Line>> lines;  ///< by class

    AxisId dp() const { return *mesh.find("dp"); }
    int buffers() const { return static_cast<int>(acts.size()) + 1; }
};

std::vector<Line> lines_of(const Act& act, size_t of_class, const Shifts& job, int64_t tag, bool receive_first) {
    const auto size = static_cast<int>(job.mesh.size("dp"));
    switch (act.what) {
        case Act::What::copy: return {{Opcode::copy, act.from, act.to}};
        case Act::What::sum: return {{Opcode::all_reduce, act.from, act.to, job.dp()}};
        case Act::What::pass:
            if (of_class == 1) return {{Opcode::receive, none, act.to, 0, 0, false, tag}};
            return {{Opcode::send, act.from, none, 0, 1, false, tag}, {Opcode::copy, act.from, act.to}};
        case Act::What::shift: break;
    }
    std::vector<Line> both{{Opcode::send, act.from, none, job.dp(), act.by, true, tag},
                           {Opcode::receive, none, act.to, job.dp(), size - act.by, true, tag}};
    if (receive_first) std::swap(both[0], both[1]);
    return both;
}

/// A receive goes behind some of what does not read what it brings, other receives and sends too.
void delay(std::vector<Line>& lines, Random& random) {
    size_t at = below(random, lines.size());
    if (lines[at].what != Opcode::receive) return;
    for (size_t far = 1 + below(random, 5); far > 0 && at + 1 < lines.size(); --far, ++at) {
        if (lines[at + 1].from == lines[at].to) return;
        std::swap(lines[at], lines[at + 1]);
    }
}

/// Each act writes a buffer of its own. Of a shift the send comes first, of some of `unsure` jobs behind the receive.
Shifts draw(Random& random, int64_t members, size_t classes, bool unsure) {
    Shifts job;
    job.mesh = classes == 1 ? Mesh({{"dp", members}}) : Mesh({{"pp", 2}, {"dp", members}});
    job.lines.resize(classes);
    const int count = 2 + static_cast<int>(below(random, 5));
    for (int at = 0; at < count; ++at) {
        Act act;
        const size_t kind = below(random, 8);
        act.what = kind == 0                  ? Act::What::sum
                   : kind == 1                ? Act::What::copy
                   : kind < 4 && classes == 2 ? Act::What::pass
                                              : Act::What::shift;
        act.by = 1 + static_cast<int>(below(random, static_cast<size_t>(members - 1)));
        act.from = static_cast<int>(below(random, static_cast<size_t>(at) + 1));
        act.to = at + 1;
        job.acts.push_back(act);
        for (size_t k = 0; k < classes; ++k) {
            const bool first = unsure && below(random, 6) == 0;
            for (Line& line : lines_of(act, k, job, at + 1, first)) job.lines[k].push_back(line);
        }
    }
    for (auto& lines : job.lines)
        for (int times = unsure ? 3 : 0; times > 0; --times) delay(lines, random);
    return job;
}

/// Two messages change places, one is gone, goes elsewhere, has another tag, or is turned round. False: has none.
bool break_one(Shifts& job, Random& random) {
    std::vector<Line>& lines = job.lines[below(random, job.lines.size())];
    std::vector<size_t> messages;
    for (size_t i = 0; i < lines.size(); ++i)
        if (is_message(lines[i].what)) messages.push_back(i);
    if (messages.size() < 2) return false;
    const size_t at = below(random, messages.size() - 1);
    Line& one = lines[messages[at]];
    switch (below(random, 6)) {
        case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(messages[at])); break;
        case 1: one.tag += 100; break;
        case 2:
            if (!one.relative || job.mesh.size("dp") < 3) return false;
            one.peer = 1 + one.peer % static_cast<int>(job.mesh.size("dp") - 1);
            break;
        case 3:
            one.what = one.what == Opcode::send ? Opcode::receive : Opcode::send;
            std::swap(one.from, one.to);
            break;
        default: std::swap(one, lines[messages[std::min(messages.size() - 1, at + 1 + below(random, 3))]]);
    }
    return true;
}

/// Buffer 0 is an input, the others scratch. Queues as the contract's lanes, and waits between them for what wrote or
/// reads a buffer before.
Plan plan_of(const Shifts& job, const C& contract) {
    Plan plan;
    plan.mesh = job.mesh;
    Value x;
    x.name = "x";
    x.type = {DType::f32, {words}};
    x.role = Role::input;
    x.layout = Layout(1);
    plan.program.values.push_back(x);
    for (size_t k = 0; k < job.lines.size(); ++k) {
        RankClass& c = plan.classes.emplace_back();
        c.stage = static_cast<int>(k);
        for (int64_t rank = 0; rank < job.mesh.ranks(); ++rank)
            if (rank / job.mesh.size("dp") == static_cast<int64_t>(k)) c.ranks.push_back(rank);
        c.scratch_bytes = 64 * job.buffers();
        for (int b = 0; b < job.buffers(); ++b)
            c.buffers.push_back({Arena::scratch, 64 * b, 64, none, BufferUse::activation, 0, 1 << 20});
        c.buffers[0] = {Arena::persistent, 0, 64, 0, BufferUse::input, 0, 1 << 20};
        c.places.push_back({0, 0, x.type, 0});
        c.persistent_bytes = 64;
        std::vector<std::vector<int>> users(c.buffers.size());  // since the last write, which is the first
        std::map<std::tuple<AxisId, int, Opcode>, int> queues;
        for (const Line& line : job.lines[k]) {
            Instruction& i = c.stream.emplace_back();
            const int index = static_cast<int>(c.stream.size()) - 1;
            i.opcode = line.what;
            i.axis = line.axis;
            i.peer = line.peer;
            i.relative = line.relative;
            i.tag = line.tag;
            if (i.axis != none) {
                const bool apart = is_message(i.opcode) && contract.lanes != C::Lanes::communicator;
                const bool direction = is_message(i.opcode) && contract.lanes == C::Lanes::peer_and_direction;
                const auto next = static_cast<int>(queues.size()) + 1;
                i.queue = queues.try_emplace({i.axis, apart ? i.peer : none, direction ? i.opcode : Opcode::copy}, next)
                              .first->second;
            }
            const auto touch = [&](int buffer, bool writes) {
                i.operands.push_back({buffer, 0, x.type, buffer == 0 ? 0 : none});
                std::vector<int>& before = users[static_cast<size_t>(buffer)];
                for (size_t u = 0; u < (writes ? before.size() : std::min<size_t>(1, before.size())); ++u)
                    if (c.stream[static_cast<size_t>(before[u])].queue != i.queue) i.waits.push_back(before[u]);
                if (writes) before.clear();
                before.push_back(index);
            };
            if (line.from != none) touch(line.from, false);
            if (line.to != none) touch(line.to, true);
        }
    }
    return plan;
}

/// The same with a class for each rank, which names its peers.
Plan every_rank_apart(const Plan& plan) {
    Plan apart;
    apart.program = plan.program;
    apart.mesh = plan.mesh;
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
        RankClass& c = apart.classes.emplace_back(plan.class_of(rank));
        c.ranks = {rank};
        c.stage = static_cast<int>(rank);
        const std::vector<int64_t> place = plan.mesh.coordinates(rank);
        for (Instruction& i : c.stream) {
            if (!is_message(i.opcode)) continue;
            i.peer = i.peer_of(place[static_cast<size_t>(i.axis)], plan.mesh.size(i.axis));
            i.relative = false;
        }
    }
    return apart;
}

template <class Judge>
std::string refusal(Judge judge) {
    try {
        judge();
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

Network network(const Mesh& mesh, const C& contract) {
    Network all;
    for (const Axis& axis : mesh.axes()) all[axis.name] = contract;
    return all;
}

/// What the first word of each rank's buffers holds at the end.
std::vector<std::vector<float>> expected(const Shifts& job) {
    const int64_t ranks = job.mesh.ranks();
    std::vector<std::vector<float>> held(static_cast<size_t>(ranks));
    for (int64_t r = 0; r < ranks; ++r) held[static_cast<size_t>(r)].push_back(static_cast<float>(1 + r));
    for (const Act& act : job.acts) {
        const auto before = held;
        const auto from = [&](int64_t r) { return before[static_cast<size_t>(r)][static_cast<size_t>(act.from)]; };
        for (int64_t r = 0; r < ranks; ++r) {
            const auto group = job.mesh.group(r, job.dp());
            const int64_t own = job.mesh.coordinates(r)[static_cast<size_t>(job.dp())];
            const int64_t size = job.mesh.size("dp");
            float made = from(r);
            if (act.what == Act::What::shift) made = from(group[static_cast<size_t>((own + size - act.by) % size)]);
            if (act.what == Act::What::pass) made = from(r % size);
            if (act.what == Act::What::sum) {
                made = 0;
                for (const int64_t other : group) made += from(other);
            }
            held[static_cast<size_t>(r)].push_back(made);
        }
    }
    return held;
}

/// "" where it comes to its end within the time with the values that are expected; else what a rank says, or which
/// value is wrong.
std::string run_on_threads(const Plan& plan, std::chrono::milliseconds time,
                           const std::vector<std::vector<float>>& want) {
    Lowered lowered;
    lowered.plan = plan;
    const auto ranks = static_cast<size_t>(plan.mesh.ranks());
    registry();
    // They outlive a rank that fails: others may still read its memory.
    std::vector<std::unique_ptr<Device>> devices(ranks);
    std::vector<std::unique_ptr<RankContext>> contexts(ranks);
    for (auto& device : devices) device = cpu_device();
    std::atomic<size_t> begun{0}, ended{0};
    const auto soon = std::chrono::milliseconds(1);
    std::string why;
    std::thread all([&] {
        try {
            run_ranks(plan.mesh.ranks(), [&](int64_t rank, Rendezvous& rendezvous) {
                const auto r = static_cast<size_t>(rank);
                contexts[r] = std::make_unique<RankContext>(setting_of(lowered, rank, *devices[r], &rendezvous));
                std::memset(contexts[r]->arenas()[1].data, 0xff,
                            static_cast<size_t>(plan.class_of(rank).scratch_bytes));
                for (int64_t w = 0; w < words; ++w) {
                    const auto x = static_cast<float>(1 + rank + 1000 * w);
                    std::memcpy(static_cast<char*>(contexts[r]->arenas()[0].data) + 4 * w, &x, 4);
                }
                const auto executor = contexts[r]->executor(lowered.plan);
                // Who fails in its step must not end what others still connect.
                for (++begun; begun < ranks && rendezvous.lost().empty();) std::this_thread::sleep_for(soon);
                executor->run();
            });
        } catch (const std::exception& error) {
            why = error.what();
        }
        ended = 1;
    });
    while (begun < ranks && ended == 0) std::this_thread::sleep_for(soon);
    const auto until = std::chrono::steady_clock::now() + time;
    while (ended == 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(soon);
    if (ended == 0)
        for (const auto& context : contexts) context->abort("it does not end");
    all.join();
    if (!why.empty()) return why;
    for (size_t r = 0; r < ranks; ++r)
        for (size_t b = 0; b < (want.empty() ? 0 : want[r].size()); ++b) {
            float found = 0;
            std::memcpy(&found, static_cast<const char*>(contexts[r]->arenas()[b > 0].data) + 64 * b, 4);
            if (found != want[r][b]) return fmt::format("rank {} holds {} in b{}, not {}", r, found, b, want[r][b]);
        }
    return "";
}

}  // namespace

TEST_CASE("messages between ranks of one class are judged alike by four", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(40, 1000);
    const std::map<std::string, C> contracts = shipped();
    Random random(16);
    int ended = 0, refused = 0, sound_refused = 0;
    for (int at = 0; at < count; ++at) {
        const size_t classes = 1 + below(random, 2);
        Shifts job = draw(random, 2 + static_cast<int64_t>(below(random, 5)), classes, true);
        const bool broken = at % 2 == 1 && break_one(job, random);
        for (const auto& [name, contract] : contracts) {
            const Plan plan = plan_of(job, contract), apart = every_rank_apart(plan);
            const Network given = network(plan.mesh, contract);
            const std::string played = refusal([&] { check_deadlock(plan, given); });
            INFO(fmt::format("{} {} on {}: {}\n{}", broken ? "broken" : "drawn", at, name, played, print(plan)));
            CHECK(refusal([&] { check_deadlock(plan, given, 1); }).empty() == played.empty());
            CHECK(refusal([&] { check_deadlock(apart, given); }).empty() == played.empty());
            CHECK(refusal([&] { oracle::check_deadlock(apart, given); }).empty() == played.empty());
            if (classes == 1) {
                const std::string stepped = Stepper(plan, contract, static_cast<uint64_t>(at)).run();
                INFO(stepped);
                // In a group what one message receives, another may not send.
                const bool raced = stepped.find("same bytes") != std::string::npos;
                if (raced)
                    CHECK_THROWS_AS(check_values(plan, given), Error);
                else
                    CHECK(stepped.empty() == played.empty());
            }
            CHECK_NOTHROW(check_form(plan, given));
            if (!broken && !contract.groups_messages()) CHECK_NOTHROW(check_values(plan, given));
            (played.empty() ? ended : refused) += 1;
            sound_refused += !broken && !played.empty();
        }
    }
    CHECK(ended > count / 2);
    CHECK(refused > count / 2);
    CHECK(sound_refused > 0);
    sweep.note(
        fmt::format("shifts between ranks of one class: {} end, {} do not; every member, rotation, the old checker "
                    "and small steps agree on all {}",
                    ended, refused, ended + refused));
}

TEST_CASE("rotation says of any number of members what playing each says", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(6, 100);
    const std::map<std::string, C> contracts = shipped();
    Random random(17);
    int ended = 0, refused = 0;
    for (const int64_t members : {3, 63, 64, 65, 97})
        for (int at = 0; at < count; ++at) {
            Shifts job = draw(random, members, 1 + below(random, 2), true);
            if (at % 2 == 1) break_one(job, random);
            for (const auto& [name, contract] : contracts) {
                const Plan plan = plan_of(job, contract);
                const Network given = network(plan.mesh, contract);
                const std::string each = refusal([&] { check_deadlock(plan, given, 1 << 20); });
                const std::string turned = refusal([&] { check_deadlock(plan, given, 1); });
                INFO(fmt::format("{} of {} members on {}:\n{}\n{}", at, members, name, each, turned));
                CHECK(each.empty() == turned.empty());
                CHECK(refusal([&] { check_deadlock(plan, given); }) == (members > 64 ? turned : each));
                CHECK(each.size() < 20'000);
                (each.empty() ? ended : refused) += 1;
            }
        }
    CHECK(ended > 0);
    CHECK(refused > 0);
    sweep.note(fmt::format("3 to 97 members: {} end, {} do not, of each and by rotation", ended, refused));
}

TEST_CASE("shifts end on threads exactly if the proof says so, with the values that are meant", "[schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(24, 400);
    const C contract = conformance::contract_of({"threads", false, {}});
    Random random(18);
    int ended = 0, stuck = 0;
    for (int at = 0; at < count; ++at) {
        Shifts job = draw(random, 2 + static_cast<int64_t>(below(random, 4)), 1 + below(random, 2), at % 4 == 2);
        const bool broken = at % 2 == 1 && break_one(job, random);
        const Plan plan = plan_of(job, contract);
        const std::string proof = refusal([&] { check_deadlock(plan, network(plan.mesh, contract)); });
        // What is refused never ends; a wrong refusal shows by a run that does.
        const std::chrono::milliseconds time(proof.empty() ? 15'000 : 400);
        const std::string run = run_on_threads(plan, time, broken ? std::vector<std::vector<float>>() : expected(job));
        INFO(fmt::format("{} {}: {}\n{}\n{}", broken ? "broken" : "drawn", at, proof, run, print(plan)));
        CHECK(proof.empty() == run.empty());
        (run.empty() ? ended : stuck) += 1;
    }
    CHECK(ended > count / 3);
    CHECK(stuck > 0);
    sweep.note(fmt::format("shifts on threads: {} end with their values, {} do not, as the proof says", ended, stuck));
}

TEST_CASE("a relative send before its receive in one lane is refused under rendezvous, unless both are a group",
          "[schedules][any]") {
    for (const int64_t members : {2, 3, 5, 65}) {
        Shifts job;
        job.mesh = Mesh({{"dp", members}});
        job.acts.push_back({Act::What::shift, 1, 0, 1});
        job.lines.push_back(lines_of(job.acts[0], 0, job, 1, false));
        const auto judged = [&](C::Send send, C::Lanes lanes) {
            C contract;
            contract.send = send;
            contract.lanes = lanes;
            const Plan plan = plan_of(job, contract);
            const Network given = network(plan.mesh, contract);
            const std::string all = refusal([&] { check_deadlock(plan, given); });
            CHECK(refusal([&] { check_deadlock(plan, given, 1); }).empty() == all.empty());
            if (members < 65) CHECK(Stepper(plan, contract, 7).run().empty() == all.empty());
            return all;
        };
        INFO(members << " members");
        CHECK(judged(C::Send::rendezvous, C::Lanes::communicator).find("never ends") != std::string::npos);
        CHECK(judged(C::Send::grouped, C::Lanes::communicator).empty());
        CHECK(judged(C::Send::rendezvous, C::Lanes::peer_and_direction).empty());
        // With one lane a peer, two members use the same one both ways.
        CHECK(judged(C::Send::rendezvous, C::Lanes::peer).empty() == (members > 2));
    }
}
