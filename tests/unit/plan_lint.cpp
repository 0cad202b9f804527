// The list of what propagation inserted.
#include <algorithm>
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/lint.h"
#include "plan/summary.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;

std::vector<Redistribution> lint(const Program& program, const Mesh& mesh) {
    const Lowered lowered = compile(program, mesh);
    const auto entries = redistributions(lowered.plan);
    // Nothing is left out and nothing counted twice.
    std::map<std::string, int64_t> listed, planned;
    for (const Redistribution& e : entries) listed[e.axis] += e.bytes;
    for (const ClassSummary& c : summary(lowered.plan).classes)
        for (const auto& t : c.traffic) planned[mesh.axis(t.axis).name] += t.bytes_sent;
    CHECK(listed == planned);
    return entries;
}

const Redistribution* find(const std::vector<Redistribution>& entries, const std::string& kind,
                           const std::string& what) {
    for (const Redistribution& e : entries)
        if (e.kind == kind && e.what == what) return &e;
    return nullptr;
}

}  // namespace

TEST_CASE("lint: of a pipeline each entry is what one rank sends") {
    Model m = network({0, 1, 2, 3}, false);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    for (Value& value : m.program.values) value.origin.line = 1;  // as in a loop of a script
    for (Op& op : m.program.ops) op.origin.line = 1;
    m.split_names({{"batch", "dp"}});
    const Mesh mesh = Mesh({{"pp", 4}, {"dp", 2}}).with_microbatches(4);
    const Schedule schedule = hand_1f1b(4, 4);
    CompileOptions options;
    options.schedule = &schedule;
    for (const char* axis : {"pp", "dp"}) options.contracts[axis].lanes = TransportContract::Lanes::peer_and_direction;
    const Lowered lowered = compile(m.program, mesh, options);
    REQUIRE(lowered.plan.classes.size() == 4);
    // What the stream that sends most over an axis does.
    std::map<std::string, std::pair<int64_t, int64_t>> most;
    for (const ClassSummary& c : summary(lowered.plan).classes) {
        std::map<std::string, std::pair<int64_t, int64_t>> own;
        for (const auto& t : c.traffic) {
            auto& [bytes, count] = own[mesh.axis(t.axis).name];
            bytes += t.bytes_sent;
            count += t.count;
        }
        for (const auto& [axis, sent] : own) {
            auto& [bytes, count] = most[axis];
            bytes = std::max(bytes, sent.first);
            count = std::max(count, sent.second);
        }
    }
    for (const Redistribution& e : redistributions(lowered.plan)) {
        INFO(e.kind << " over " << e.axis << ", " << e.what << ", " << e.why);
        CHECK(e.bytes <= most.at(e.axis).first);
        CHECK(e.count <= most.at(e.axis).second);
        CHECK(e.streams >= 1);
        CHECK(e.streams <= 4);
    }
    // The gradients of a layer are alike on all stages: one layer's, not four.
    const auto entries = redistributions(lowered.plan);
    const Redistribution* up = find(entries, "all_reduce", "layers.*.up.grad");
    REQUIRE(up);
    CHECK(up->values == 4);
    CHECK(up->streams == 4);
    CHECK(up->count == 1);
    CHECK(up->bytes == 4 * 12 * 4);  // 2 S (P-1)/P
}

TEST_CASE("planned bytes are those of the algorithm that runs") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}});
    const Mesh mesh({{"dp", 4}});
    const Lowered lowered = compile(m.program, mesh);
    const auto sent = [&](const WireBytes& wires) {
        const auto classes = summary(lowered.plan, wires).classes;
        REQUIRE(classes.size() == 1);
        REQUIRE(classes[0].traffic.size() == 1);
        int64_t listed = 0;
        for (const Redistribution& e : redistributions(lowered.plan, wires)) listed += e.bytes;
        CHECK(listed == classes[0].traffic[0].bytes_sent);
        return listed;
    };
    const int64_t S = sent({}) * 4 / 6;  // 2 S (P-1)/P
    // Everybody to the root and back: the root sends 3 S.
    ChunkTable star{"star", Opcode::all_reduce, 4, 1, {}, {}};
    for (int i = 1; i < 4; ++i) star.moves.push_back({ChunkMove::Kind::reduce, i - 1, 0, i, 0, {}});
    for (int i = 1; i < 4; ++i) star.moves.push_back({ChunkMove::Kind::copy, 3, 0, 0, i, {}});
    prove(star);
    CHECK(sent({{}, {{"dp", {star}}}}) == 3 * S);
    CHECK(sent({{}, {{"dp", {ring_table(4)}}}}) == 6 * S / 4);
    CHECK(sent({{}, {{"tp", {star}}}}) == 6 * S / 4);
    TransportContract doubling;
    doubling.small_bytes = 1 << 20;
    CHECK(sent({{{"dp", doubling}}, {}}) == 2 * S);  // S log2 P
    CHECK(sent({{{"dp", doubling}}, {{"dp", {star}}}}) == 3 * S);
    doubling.small_bytes = 0;
    CHECK(sent({{{"dp", doubling}}, {}}) == 6 * S / 4);
}

TEST_CASE("lint: layers are one entry with their count, bytes, reason, strategy and line") {
    Model m = deep(3, 4, 8);
    for (Value& value : m.program.values) value.origin.line = 1;  // a loop in a script has one line for all layers
    for (Op& op : m.program.ops) op.origin.line = 1;
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const auto entries = lint(m.program, Mesh({{"dp", 2}, {"tp", 2}}));
    const Redistribution* up = find(entries, "all_reduce", "layers.*.up.grad");
    REQUIRE(up);
    CHECK(up->axis == "dp");
    CHECK(up->values == 3);
    CHECK(up->count == 3);
    CHECK(up->bytes == 3 * 8 * 16 * 4);  // 2 S (P-1)/P of [8,32] split over tp
    CHECK(up->by.find("strategy.lua:1") != std::string::npos);
    CHECK_FALSE(up->implicit);
    const Redistribution* down = find(entries, "all_reduce", "matmul of layers.*");
    REQUIRE(down);
    CHECK(down->axis == "tp");
    CHECK(down->why == "for add");
    CHECK(down->origin.file == "model.lua");
    const std::string text = lint_text(entries);
    INFO(text);
    CHECK(text.find("all_reduce over dp: layers.*.up.grad") != std::string::npos);
    CHECK(text.find("none is implicit") != std::string::npos);
    CHECK(lint_text(entries, 1).find("more kinds") != std::string::npos);
    CHECK(lint_text({}).empty());
}

TEST_CASE("lint: micro-batches count, joined messages are told apart") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    m.program.bucket("dp", 1 << 20, {});
    const auto entries = lint(m.program, Mesh({{"dp", 2}, {"tp", 2}}).with_microbatches(2));
    const Redistribution* sum = find(entries, "all_reduce", "matmul of mlp");
    REQUIRE(sum);
    CHECK(sum->values == 1);
    CHECK(sum->count == 2);
    const Redistribution* grad = find(entries, "all_reduce", "up.w.grad");
    REQUIRE(grad);
    CHECK(grad->count == 1);
    CHECK(grad->bytes == 4 * 6 * 4);
}

TEST_CASE("lint: a gather that no mark asked for is called implicit") {
    Model m;
    const ValueId x = m.input("x", {4, 6}, {"batch", "embed"});
    m.build.result("y", m.op("softmax", {x}), {});
    m.store("x", "tp", S(1), "tensor");
    const auto entries = lint(m.program, Mesh({{"tp", 2}}));
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].implicit);
    CHECK(entries[0].kind == "all_gather");
    CHECK(entries[0].by == "tensor, strategy.lua:1");
    CHECK(lint_text(entries).find("no strategy asked for: 48 B a step") != std::string::npos);
    Model asked = mlp(8, 4, 12);
    asked.split_names({{"batch", "dp"}});
    for (ValueId p : asked.program.params()) {
        asked.store(asked.program.value(p).name, "dp", S(0));
        asked.use(asked.program.value(p).name, "dp", Placement::replicated());
    }
    for (const Redistribution& e : lint(asked.program, Mesh({{"dp", 2}}))) CHECK_FALSE(e.implicit);
    asked.program.bucket("dp", 1 << 20, {});  // several params in one message
    const auto joined = lint(asked.program, Mesh({{"dp", 2}}));
    for (const Redistribution& e : joined) CHECK_FALSE(e.implicit);
    CHECK(std::any_of(joined.begin(), joined.end(),
                      [](const Redistribution& e) { return e.kind == "all_gather" && e.why.ends_with("more"); }));
}
