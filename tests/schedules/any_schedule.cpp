// Schedules that nobody has written: random orders of fragments, legal ones and such as were broken, under the contract
// of every transport. ORRERY_LONG: 1,000 of each, and a table.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <fstream>
#include <random>

#include "../unit/layout_models.h"
#include "compile/pipeline.h"
#include "harness.h"
#include "plan/check/check.h"
#include "plan_ranks.h"
#include "plan_stepper.h"

using namespace orrery;
using namespace orrery::test;
using C = TransportContract;
using Kind = Fragment::Kind;
using Catch::Matchers::Contains;

namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }

/// Every contract that a shipped transport declares, of those alike one.
std::map<std::string, C> shipped() {
    std::map<std::string, C> all;
    std::set<std::string> known;
    const auto add = [&](const std::string& name, const C& contract) {
        if (known.insert(contract.text()).second) all.emplace(name, contract);
    };
    for (const auto& backend : conformance::backends()) add(backend.transport, contract_of(backend));
    for (int64_t slots : {0, 1, 4})
        for (const auto& backend : conformance::with_option("slots", {slots, {}, false}))
            add(fmt::format("{} with {} slots", backend.transport, slots), contract_of(backend));
    C nccl;  // what NCCL declares, where it cannot be loaded
    nccl.send = C::Send::grouped;
    nccl.queued = true;
    nccl.checks_tags = false;
    nccl.reduction = C::Reduction::by_algorithm;
    add("nccl", nccl);
    return all;
}

/// A piece of the whole pipeline.
struct Piece {
    Kind kind;
    int stage;
    int64_t micro;
    bool operator<(const Piece& other) const {
        return std::tie(kind, stage, micro) < std::tie(other.kind, other.stage, other.micro);
    }
};

struct Drawn {
    Schedule schedule;
    int chunks = 1;
    int64_t micros = 1;
    bool weights = false;

    int stages() const { return chunks * static_cast<int>(schedule.ranks.size()); }
    std::string text() const {
        std::string all = fmt::format("m = {}, v = {}", micros, chunks);
        for (size_t r = 0; r < schedule.ranks.size(); ++r) {
            all += fmt::format("\n  {}: ", r);
            for (int c = 0; c < chunks; ++c) all += fmt::format("{},", schedule.stage_of(static_cast<int>(r), c));
            all += " " + schedule.ranks[r].text();
        }
        return all;
    }
};

/// What must be done before a piece.
std::vector<Piece> needs(const Piece& piece, int stages) {
    const auto [kind, stage, micro] = piece;
    std::vector<Piece> all;
    if (kind == Kind::forward && stage > 0) all.push_back({kind, stage - 1, micro});
    if (kind == Kind::backward) all.push_back({Kind::forward, stage, micro});
    if (kind == Kind::backward && stage + 1 < stages) all.push_back({kind, stage + 1, micro});
    if (kind == Kind::weight) all.push_back({Kind::backward, stage, micro});
    return all;
}

/// p 2 to 5, m 1 to 8, v 1 or 2; the stages on any ranks; all pieces of the pipeline in an order that their needs
/// allow, from which each rank takes its own.
Drawn draw(Random& random) {
    Drawn drawn;
    const int p = 2 + static_cast<int>(below(random, 4));
    drawn.chunks = 1 + static_cast<int>(below(random, 2));
    drawn.micros = 1 + static_cast<int64_t>(below(random, 8));
    drawn.weights = below(random, 2) == 1;
    drawn.schedule.name = "drawn";
    drawn.schedule.origin = {"", "drawn.lua", 3, 0};
    drawn.schedule.ranks.resize(static_cast<size_t>(p));
    std::vector<std::pair<int, int>> places;  // rank and chunk, by stage
    for (int c = 0; c < drawn.chunks; ++c)
        for (int r = 0; r < p; ++r) places.emplace_back(r, c);
    if (below(random, 2) == 1) {
        std::shuffle(places.begin(), places.end(), random);
        drawn.schedule.stages.assign(static_cast<size_t>(p), std::vector<int>(static_cast<size_t>(drawn.chunks)));
        for (size_t stage = 0; stage < places.size(); ++stage)
            drawn.schedule.stages[static_cast<size_t>(places[stage].first)][static_cast<size_t>(places[stage].second)] =
                static_cast<int>(stage);
    }
    std::set<Piece> open, done;
    for (Kind kind : {Kind::forward, Kind::backward, Kind::weight})
        for (int stage = 0; stage < drawn.stages() && (kind != Kind::weight || drawn.weights); ++stage)
            for (int64_t m = 0; m < drawn.micros; ++m) open.insert({kind, stage, m});
    while (!open.empty()) {
        std::vector<Piece> ready;
        for (const Piece& piece : open) {
            const std::vector<Piece> before = needs(piece, drawn.stages());
            if (std::all_of(before.begin(), before.end(), [&](const Piece& b) { return done.count(b) != 0; }))
                ready.push_back(piece);
        }
        const Piece next = ready[below(random, ready.size())];
        open.erase(next);
        done.insert(next);
        const auto [rank, chunk] = places[static_cast<size_t>(next.stage)];
        drawn.schedule.ranks[static_cast<size_t>(rank)].order.push_back({next.kind, next.micro, chunk});
    }
    return drawn;
}

/// Whether every rank can run its order to the end, each piece once: tried out.
bool legal(const Drawn& drawn) {
    const Schedule& schedule = drawn.schedule;
    std::set<Piece> done;
    std::vector<size_t> next(schedule.ranks.size(), 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < next.size(); ++r) {
            if (next[r] == schedule.ranks[r].order.size()) continue;
            const Fragment& f = schedule.ranks[r].order[next[r]];
            if (f.micro >= drawn.micros || f.chunk >= drawn.chunks) return false;
            const Piece piece{f.kind, schedule.stage_of(static_cast<int>(r), f.chunk), f.micro};
            const std::vector<Piece> before = needs(piece, drawn.stages());
            if (!std::all_of(before.begin(), before.end(), [&](const Piece& b) { return done.count(b) != 0; }))
                continue;
            if (!done.insert(piece).second) return false;
            ++next[r];
            moved = true;
        }
    }
    for (size_t r = 0; r < next.size(); ++r)
        if (next[r] < schedule.ranks[r].order.size()) return false;
    return done.size() == static_cast<size_t>(drawn.stages() * drawn.micros * (drawn.weights ? 3 : 2));
}

/// One change to one rank's order: two fragments change places (mostly), one goes, one comes twice, one is of a
/// micro-batch or chunk that is not there.
Drawn broken(Drawn drawn, Random& random) {
    auto& order = drawn.schedule.ranks[below(random, drawn.schedule.ranks.size())].order;
    Fragment& one = order[below(random, order.size())];
    switch (below(random, 8)) {
        case 0: order.erase(order.begin() + (&one - order.data())); break;
        case 1:
            order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(random, order.size())), Fragment(one));
            break;
        case 2: one.micro = drawn.micros; break;
        case 3: one.chunk = drawn.chunks; break;
        default: std::swap(one, order[below(random, order.size())]);
    }
    return drawn;
}

Model model(const Drawn& drawn, bool tied) {
    std::vector<int> stages;
    for (int stage = 0; stage < drawn.stages(); ++stage) stages.push_back(stage);
    Model m = network(stages, tied, DType::f32, 2 * drawn.micros);
    m.program.pipeline({"pp", "drawn", drawn.chunks, {"", "job.lua", 9, 0}});
    return m;
}

/// A rank of the pipeline each.
Mesh mesh(const Drawn& drawn) {
    return Mesh({{"pp", static_cast<int64_t>(drawn.schedule.ranks.size())}}).with_microbatches(drawn.micros);
}

/// Where it is lowered at least, `lowered` has it.
std::string refusal(const Schedule& schedule, const Program& program, const Mesh& mesh, const C& contract,
                    Lowered& lowered) {
    CompileOptions options;
    options.schedule = &schedule;
    for (const Axis& axis : mesh.axes()) options.contracts[axis.name] = contract;
    try {
        lowered.plan = plan_of(Program(program), mesh, lowered.persistent, options);
        check(lowered.plan, options.contracts);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

/// Two messages of one rank change places; waits go with the instructions.
void swap_messages(Plan& plan, Random& random) {
    auto& stream = plan.classes[below(random, plan.classes.size())].stream;
    std::vector<size_t> messages;
    for (size_t i = 0; i < stream.size(); ++i)
        if (is_message(stream[i].opcode)) messages.push_back(i);
    const size_t one = below(random, messages.size());
    const size_t other = std::min(messages.size() - 1, one + 1 + below(random, 4));
    const auto a = static_cast<int>(messages[one]), b = static_cast<int>(messages[other]);
    std::swap(stream[messages[one]], stream[messages[other]]);
    for (size_t i = 0; i < stream.size(); ++i) {
        for (int& wait : stream[i].waits) wait = wait == a ? b : wait == b ? a : wait;
        std::erase_if(stream[i].waits, [&](int wait) { return wait >= static_cast<int>(i); });
    }
}

/// How many schedules, and where the table of the long form goes.
struct Sweep {
    const char* table = std::getenv("ORRERY_LONG");
    int count(int few, int many) const { return table ? many : conformance::thread_sanitizer ? few / 4 : few; }
    void note(const std::string& line) const {
        static bool begun = false;
        if (table) std::ofstream(table, begun ? std::ios::app : std::ios::trunc) << line << "\n";
        begun = true;
    }
};

Schedule by_hand(const std::vector<const char*>& orders) {
    Schedule schedule{"mine", {}, {}, {"", "mine.lua", 3, 0}};
    for (const char* order : orders) schedule.ranks.push_back(RankSchedule::parse(order));
    return schedule;
}

}  // namespace

TEST_CASE("what one group receives never lies where the same group sends from", "[contract][schedules]") {
    // Rank 0 sends F1's value and receives two gradients at one moment; the first of these frees what F1 was made from.
    const Drawn drawn{by_hand({"F2 F0 B0 F1 B2 B1", "F2 F0 B0 F1 B1 B2"}), 1, 3, false};
    const Program program = distribute(model(drawn, false).program, mesh(drawn));
    for (const auto& [name, contract] : shipped()) {
        INFO(name);
        Lowered lowered;
        CHECK(refusal(drawn.schedule, program, mesh(drawn), contract, lowered) == "");
        CHECK(Stepper(lowered.plan, contract, 1).run() == "");
    }
}

TEST_CASE("any legal schedule runs on every transport", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(60, 1000);
    const std::map<std::string, C> contracts = shipped();
    REQUIRE(contracts.count("nccl") == 1);
    std::map<std::string, int> ran;
    Random random(11);
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        REQUIRE(legal(drawn));
        Model m = model(drawn, below(random, 2) == 1);
        const bool more = at % 4 == 3;  // axes whose collectives run between the messages
        if (more) {
            m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
            m.program.bucket("dp", 1 << 20, {});
        }
        const Mesh all =
            more ? Mesh({{"dp", 2}, mesh(drawn).axes()[0], {"tp", 2}}).with_microbatches(drawn.micros) : mesh(drawn);
        const Program program = distribute(m.program, all);
        for (const auto& [name, contract] : contracts) {
            INFO(fmt::format("schedule {} on {}, {}", at, name, drawn.text()));
            Lowered lowered;
            const std::string why = refusal(drawn.schedule, program, all, contract, lowered);
            CHECK(why == "");
            if (why == "" && !more) CHECK(Stepper(lowered.plan, contract, static_cast<uint64_t>(at)).run() == "");
            ran[name] += why == "";
        }
    }
    for (const auto& [name, n] : ran) sweep.note(fmt::format("{}: {} of {} legal schedules accepted", name, n, count));
}

TEST_CASE("a schedule that cannot run is refused by name and line", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(60, 1000);
    const std::map<std::string, C> contracts = shipped();
    Random random(12);
    int refused = 0;
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = broken(draw(random), random);
        const bool good = legal(drawn);
        const Program program = distribute(model(drawn, true).program, mesh(drawn));
        refused += !good;
        for (const auto& [name, contract] : contracts) {
            INFO(fmt::format("mutant {} on {}, {}", at, name, drawn.text()));
            Lowered lowered;
            const std::string why = refusal(drawn.schedule, program, mesh(drawn), contract, lowered);
            if (good) {
                CHECK(why == "");
            } else {
                CHECK_THAT(why, Catch::StartsWith("schedule drawn, drawn.lua:3: ") && !Contains("instruction"));
            }
        }
    }
    CHECK(refused > count / 2);
    sweep.note(fmt::format("broken schedules: {} refused on every transport, {} still legal and accepted", refused,
                           count - refused));
}

TEST_CASE("whether messages in another order end is judged alike by two", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(100, 3000);
    const std::map<std::string, C> contracts = shipped();
    Random random(13);
    int stuck = 0, raced = 0, ended = 0;
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        const auto& [name, contract] = *std::next(contracts.begin(), static_cast<int>(below(random, contracts.size())));
        INFO(fmt::format("plan {} on {}, {}", at, name, drawn.text()));
        Lowered lowered;
        REQUIRE(refusal(drawn.schedule, distribute(model(drawn, false).program, mesh(drawn)), mesh(drawn), contract,
                        lowered) == "");
        swap_messages(lowered.plan, random);
        const std::string why = Stepper(lowered.plan, contract, static_cast<uint64_t>(at)).run();
        INFO(why);
        const Network given{{"pp", contract}};
        if (why == "") {
            CHECK_NOTHROW(check_deadlock(lowered.plan, given));
            ++ended;
        } else if (why.find("same bytes") != std::string::npos) {
            CHECK_THROWS_AS(check(lowered.plan, given), Error);
            ++raced;
        } else {
            CHECK_THROWS_AS(check_deadlock(lowered.plan, given), Error);
            ++stuck;
        }
    }
    CHECK(stuck > 0);
    CHECK(ended > 0);
    sweep.note(
        fmt::format("plans with two messages swapped: {} never end, {} touch the same bytes, {} end; both judges "
                    "agree on all {}",
                    stuck, raced, ended, count));
}

TEST_CASE("any legal schedule gives the loss of one rank, bit for bit", "[schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(10, 100);
    Random random(14);
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        INFO(fmt::format("schedule {}, {}", at, drawn.text()));
        // One rank takes the micro-batches as the last stage does: sums of the loss have one order.
        Schedule alone{"alone", {RankSchedule{}}, {}, {}};
        for (size_t r = 0; r < drawn.schedule.ranks.size(); ++r)
            for (const Fragment& f : drawn.schedule.ranks[r].order)
                if (f.kind == Kind::forward &&
                    drawn.schedule.stage_of(static_cast<int>(r), f.chunk) + 1 == drawn.stages())
                    for (Kind kind : {Kind::forward, Kind::backward})
                        alone.ranks[0].order.push_back({kind, f.micro, 0});
        const Mesh one = Mesh().with_microbatches(drawn.micros);
        Model m = model(drawn, at % 2 == 1), same = model(drawn, at % 2 == 1);
        Lowered apart, whole;
        REQUIRE(refusal(drawn.schedule, distribute(m.program, mesh(drawn)), mesh(drawn),
                        conformance::contract_of({"threads", false, {}}), apart) == "");
        REQUIRE(refusal(alone, distribute(same.program, one), one, {}, whole) == "");
        Running how;
        how.steps = 2;
        how.every_step = true;
        const Ran many = run_steps(apart, how), single = run_steps(whole, how);
        CHECK(many.steps[0].at("result loss_sum") == single.steps[0].at("result loss_sum"));
        CHECK(difference(many.values, single.values, 2e-5) == "");
    }
    sweep.note(fmt::format("run on threads: {} of {} with the loss of one rank", count, count));
}
