// The manifest of configs/llama405b.toml: who writes what, an index per rank, the root, and reading them again. CI
// makes it for a mesh of 64 ranks, `scripts/test --long` for all 16,384 and leaves a table in the file that ORRERY_LONG
// names.
#include <sys/resource.h>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "base/json.h"
#include "compile/compile.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/checkpoint/format/cover.h"
#include "run/checkpoint/format/messages.h"
#include "run/checkpoint/save/saved_state.h"
#include "stores.h"

using namespace orrery;

namespace {

/// Seconds of processor: what a busy machine does beside it says nothing of this.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double resident_mib() {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

Compiled compiled(const std::string& mesh) {
    std::ifstream file(in_source("configs/llama405b.toml"));
    std::stringstream text;
    text << file.rdbuf();
    std::string toml = text.str();
    if (const size_t at = toml.find("pp = 16"); !mesh.empty())
        toml.replace(at, toml.find("[train]") - at, mesh + "\n\n");
    FakeHost host(toml);
    host.strategies = built_strategy;
    run_script(in_source("scripts/gpt.lua"), host);
    CompileOptions options;
    for (const Axis& axis : host.experiment->mesh.axes())
        if (!axis.sequential && axis.size > 1) {
            TransportContract& contract = options.contracts[axis.name];
            contract.send = TransportContract::Send::grouped;
            contract.queued = true;
            contract.checks_tags = false;
            options.transports[axis.name] = "gloo";
        }
    options.runs = [](const KernelSpec&) { return true; };
    return compile_training(*host.experiment, options);
}

/// What the ranks of a plan hold, without memory: nothing here looks at bytes.
class States {
public:
    explicit States(const Plan& plan)
        : plan_(plan), class_of_(static_cast<size_t>(plan.mesh.ranks())), stages_(stages_of(plan)) {
        for (const RankClass& one : plan.classes)
            for (const int64_t rank : one.ranks) class_of_[static_cast<size_t>(rank)] = &one;
    }
    std::vector<StateValue> of(int64_t rank) const {
        std::vector<StateValue> state;
        for (const Operand& place : class_of_[static_cast<size_t>(rank)]->places) {
            const Value& value = plan_.program.value(place.value);
            if (value.role != Role::param && value.role != Role::state) continue;
            state.push_back({value.name,
                             value.type,
                             value.layout,
                             {nullptr, value.type.dtype, value.layout.local_shape(value.type.shape, plan_.mesh)},
                             stages_[static_cast<size_t>(place.value)],
                             false});
        }
        return state;
    }

private:
    const Plan& plan_;
    std::vector<const RankClass*> class_of_;
    std::vector<std::vector<int64_t>> stages_;
};

/// What ObjectWriter makes of its shares, with digests that stand for any.
RankIndex index_for(int64_t rank, const std::vector<StateValue>& state, const std::vector<Share>& shares,
                    int64_t& all) {
    const CheckpointOptions options;
    RankIndex index{5, rank, options.piece_bytes, {}, {}, {}};
    std::map<std::string, size_t> names;
    int64_t at = 64;
    const auto close = [&] {
        if (at == 64) return;
        const auto pieces = static_cast<size_t>((at + options.piece_bytes - 1) / options.piece_bytes);
        index.objects.push_back({fmt::format("rank-{:05}-{:03}.safetensors", rank, index.objects.size()), rank, at,
                                 sha256(std::to_string(rank)), std::vector<uint32_t>(pieces, 0xfedcba98u), 5});
        at = 64;
    };
    for (size_t i = 0; i < state.size(); ++i)
        for (const Block& block : shares[i].blocks) {
            const auto [place, fresh] = names.try_emplace(state[i].name, index.tensors.size());
            if (fresh) index.tensors.push_back(state[i].name);
            index.shards.push_back({place->second, static_cast<int64_t>(index.objects.size()), at, block});
            const int64_t bytes = block.count() * size_of(state[i].global.dtype);
            at += bytes, all += bytes;
            if (at >= options.object_bytes) close();
        }
    close();
    return index;
}

struct Measured {
    double made_s = 0, cover_s = 0, one_cover_s = 0, read_s = 0, own_s = 0, part_s = 0, before_mib = 0, most_mib = 0;
    size_t root_bytes = 0, shards = 0, objects = 0, firsts = 0;
    int64_t index_bytes = 0, bytes = 0;
    double largest = 0;  ///< share, of the mean of its stage's
};

Measured measure(const Plan& plan) {
    const States states(plan);
    const Mesh mesh = plan.mesh.with_microbatches(1);
    const TestStore stores("memory");
    const auto store = stores.open("llama405b");
    Measured out;
    out.before_mib = resident_mib();
    const double start = now();
    std::vector<std::string> reports;
    std::map<int64_t, std::vector<int64_t>> by_stage;
    std::vector<int64_t> firsts;  // who read what others have written of a block of theirs
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        const double began = now();
        const auto state = states.of(rank);
        const auto shares = shares_of(state, mesh, rank, plan.stage_axis, 4096);
        if (std::any_of(shares.begin(), shares.end(), [](const Share& s) { return s.first && s.count > 1; }))
            firsts.push_back(rank);
        int64_t bytes = 0;
        const RankIndex index = index_for(rank, state, shares, bytes);
        const std::string text = index.text();
        store->put(5, RankIndex::key(rank), std::as_bytes(std::span(text)));
        Json report = {{"problem", ""},
                       {"step", 5},
                       {"index", Json::array({text.size(), sha256(text)})},
                       {"bytes", bytes},
                       {"schema", sha256(schema_of(state).dump())},
                       {"votes", {{shares[0].holders, sha256("")}}}};
        if (first_of_stage(mesh, rank, plan.stage_axis)) report["tensors"] = schema_of(state);
        reports.push_back(message_text(report));
        out.own_s = std::max(out.own_s, now() - began);
        out.index_bytes += static_cast<int64_t>(text.size());
        out.bytes += bytes;
        by_stage[mesh.coordinates(rank)[static_cast<size_t>(plan.stage_axis)]].push_back(bytes);
    }
    for (const auto& [stage, bytes] : by_stage) {
        double sum = 0;
        for (const int64_t one : bytes) sum += static_cast<double>(one);
        const double most = static_cast<double>(*std::max_element(bytes.begin(), bytes.end()));
        out.largest = std::max(out.largest, most * static_cast<double>(bytes.size()) / sum);
    }
    Assembled made = assemble(reports, 5, mesh, plan.stage_axis, CheckpointOptions{}.piece_bytes);
    CHECK(made.disputed.empty());
    made.root.host = "{}";
    const std::string root = made.root.text();
    out.root_bytes = root.size();
    store->commit(5, root);
    out.made_s = now() - start;

    for (const int64_t rank : firsts) {
        const double began = now();
        const auto state = states.of(rank);
        const auto shares = shares_of(state, mesh, rank, plan.stage_axis, 4096);
        check_shared(*store, 5, state, shares, mesh, rank, plan.stage_axis);
        out.cover_s += now() - began;
        out.one_cover_s = std::max(out.one_cover_s, now() - began);
    }
    out.firsts = firsts.size();

    const double reads = now();
    {
        const auto state = states.of(mesh.ranks() - 1);
        std::vector<Wanted> wanted;
        for (const StateValue& value : state) wanted.push_back({value.name, box_of(value, mesh, mesh.ranks() - 1)});
        Manifest part = Manifest::root_of(*store, 5);
        part.load(*store, wanted);
        CHECK(mismatch(part, state).empty());
        out.part_s = now() - reads;
    }
    const double whole = now();
    const Manifest manifest = Manifest::of(*store, 5);  // throws unless every tensor is covered once
    out.read_s = now() - whole;
    for (const ManifestTensor& tensor : manifest.tensors) out.shards += tensor.shards.size();
    out.objects = manifest.objects.size();
    out.most_mib = resident_mib();
    return out;
}

std::string table(int64_t ranks, const Measured& m) {
    return fmt::format(
        "manifest of llama405b.toml on {} ranks: {:.0f} GB of state, {} objects, {} shards\n"
        "made and put in a store in memory {:8.1f} s of processor    the longest of one rank {:.3f} s\n"
        "cover checked by {:5} ranks      {:8.1f} s of processor    the longest of one rank {:.3f} s\n"
        "read again, each tensor checked   {:8.1f} s of processor    what one rank restores  {:.3f} s\n"
        "root {:.2f} MiB, indexes {:.1f} MiB; {:.0f} MiB resident at most, {:.0f} before; the largest share {:.3f} of "
        "its "
        "stage's mean\n",
        ranks, static_cast<double>(m.bytes) / 1e9, m.objects, m.shards, m.made_s, m.own_s, m.firsts, m.cover_s,
        m.one_cover_s, m.read_s, m.part_s, static_cast<double>(m.root_bytes) / (1 << 20),
        static_cast<double>(m.index_bytes) / (1 << 20), m.most_mib, m.before_mib, m.largest);
}

}  // namespace

TEST_CASE("the manifest of a large model on many ranks is made and read") {
    const char* table_file = std::getenv("ORRERY_LONG");
    const Compiled all = compiled(table_file ? "" : "pp = 4\ndp = 8\ntp = 2");
    const Plan& plan = *all.plans().front();
    const Measured measured = measure(plan);
    const std::string text = table(plan.mesh.with_microbatches(1).ranks(), measured);
    if (table_file) std::ofstream(table_file) << text;
    INFO(text);
    CHECK(measured.root_bytes <= size_t{16} << 20);
    CHECK(measured.largest <= 1.1);
    CHECK(measured.shards > 0);
    if (!table_file) return;
    CHECK(measured.made_s + measured.cover_s + measured.read_s <= 60);
    CHECK(measured.most_mib <= 2048);
    CHECK(measured.own_s <= 0.1);
}
