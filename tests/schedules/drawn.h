// Schedules and plans drawn by chance, for the tests of this folder.
#pragma once
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <fstream>
#include <random>

#include "../unit/layout_models.h"
#include "compile/pipeline.h"
#include "harness.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan_ranks.h"

namespace orrery::test {

using C = TransportContract;
using Kind = Fragment::Kind;

using Random = std::mt19937_64;

inline size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }

/// Every contract that a shipped transport declares, of those alike one.
inline std::map<std::string, C> shipped() {
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
inline std::vector<Piece> needs(const Piece& piece, int stages) {
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
inline Drawn draw(Random& random) {
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
inline bool legal(const Drawn& drawn) {
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
inline Drawn broken(Drawn drawn, Random& random) {
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

inline Model model(const Drawn& drawn, bool tied, int64_t rows = 2) {
    std::vector<int> stages;
    for (int stage = 0; stage < drawn.stages(); ++stage) stages.push_back(stage);
    Model m = network(stages, tied, DType::f32, rows * drawn.micros);
    m.program.pipeline({"pp", "drawn", drawn.chunks, {"", "job.lua", 9, 0}});
    return m;
}

/// A rank of the pipeline each.
inline Mesh mesh(const Drawn& drawn) {
    return Mesh({{"pp", static_cast<int64_t>(drawn.schedule.ranks.size())}}).with_microbatches(drawn.micros);
}

/// The pipeline beside axes whose collectives run between the messages.
inline Mesh with_collectives(Model& m, const Drawn& drawn) {
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    m.program.bucket("dp", 1 << 20, {});
    return Mesh({{"dp", 2}, mesh(drawn).axes()[0], {"tp", 2}}).with_microbatches(drawn.micros);
}

/// What a job is distributed with: `joined`, one transport for all axes and the status word, which goes over them.
inline CompileOptions carried(const Mesh& mesh, bool joined) {
    CompileOptions options;
    options.status_word = joined;
    if (joined) options.transports = one_transport(mesh);
    return options;
}

/// Where it is lowered at least, `lowered` has it.
inline std::string refusal(const Schedule& schedule, const Program& program, const Mesh& mesh, const C& contract,
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

inline std::vector<size_t> message_places(const std::vector<Instruction>& stream) {
    std::vector<size_t> places;
    for (size_t i = 0; i < stream.size(); ++i)
        if (is_message(stream[i].opcode)) places.push_back(i);
    return places;
}

/// Two messages of one rank change places; waits go with the instructions.
inline void swap_messages(Plan& plan, Random& random) {
    auto& stream = plan.classes[below(random, plan.classes.size())].stream;
    const std::vector<size_t> messages = message_places(stream);
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

}  // namespace orrery::test
