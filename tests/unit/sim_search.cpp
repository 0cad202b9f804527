#include "sim/search/search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

using namespace orrery;

namespace {

/// A cluster in a formula: kernels reach less of the rate the smaller their shards, tp costs messages, ZeRO and
/// recomputation take time and give memory.
struct Formula {
    double memory = 80e9, flops = 4e17, rate = 1e15, tp_cost = 0.01;
    StateBytes state{14e10, 28e10, 84e10};  ///< of 7e10 parameters, mixed precision

    Judged judge(const Choice& c, int64_t ranks, int64_t batch) const {
        Judged j;
        const double m = static_cast<double>(batch / c.dp / c.samples), tp = static_cast<double>(c.tp);
        const double reached = 0.7 / (1 + 0.02 * tp / static_cast<double>(c.samples));
        const double again = c.recompute == "all" ? 4.0 / 3 : c.recompute == "attention" ? 1.05 : 1;
        j.computing_s = flops * again / (rate * reached * static_cast<double>(ranks));
        j.step_s = j.computing_s * (1 + bubble(c, static_cast<int64_t>(m)));
        j.step_s += tp_cost * (tp - 1) * (c.sequence ? 0.8 : 1);
        if (c.zero >= 2) j.step_s += 0.01 * m;
        if (c.zero == 1) j.step_s += 0.005;
        if (!c.mapping.empty()) j.step_s += 0.001;
        const double kept = c.recompute == "all" ? 0.1 : c.recompute == "attention" ? 0.7 : 1;
        const double alive = std::min(m, static_cast<double>(c.pp)) * static_cast<double>(c.samples);
        j.memory_bytes = static_cast<int64_t>(
            state_bytes(state, c) + kept * alive * 4e10 / tp / static_cast<double>(c.pp) * (c.sequence ? 0.7 : 1));
        j.memory_limit = memory;
        if (c.tp == 3) j.why_not = "heads: 64 are not 3 times something";
        return j;
    }
};

/// Hands them back from the last to the first, as processes may.
Search::Judge each(const std::function<Judged(const Choice&)>& judge) {
    return [judge](const std::vector<Choice>& choices, const Search::Done& done) {
        for (size_t i = choices.size(); i-- > 0;) done(i, judge(choices[i]));
    };
}

SearchSpace space(int64_t ranks, int64_t batch, const Formula& formula) {
    SearchSpace s;
    s.ranks = ranks;
    s.batch = batch;
    s.most_pp = 16;
    s.memory_limit = formula.memory;
    s.state = formula.state;
    s.flops = formula.flops;
    s.rate = formula.rate;
    s.recomputes = {{}, {"attention", 0, 0.3 * 4e10, 0.05, 1}, {"all", 0, 0.9 * 4e10, 1, 4.0 / 3}};
    return s;
}

/// Four ranks without tp: what pipelines, samples and ZeRO make of 16 sequences.
SearchSpace pipelines_of_four() {
    SearchSpace s;
    s.ranks = 4;
    s.batch = 16;
    s.most_pp = 4;
    s.most_tp = 1;
    s.varies_recompute = s.varies_mapping = s.varies_sequence = false;
    return s;
}

/// The best of all there is, by looking at all of it.
double best_of_all(const SearchSpace& s, const Formula& formula, int64_t& choices) {
    double best = std::numeric_limits<double>::infinity();
    for (int64_t tp = 1; tp <= s.most_tp; ++tp)
        for (int64_t pp = 1; pp <= s.most_pp; ++pp) {
            if (s.ranks % (tp * pp) != 0) continue;
            for (const int64_t samples : {1, 2, 4, 8, 16})
                for (int64_t zero = 0; zero <= 3; ++zero)
                    for (const auto& [name, chunks] : std::vector<std::pair<std::string, int64_t>>{{"1f1b", 0},
                                                                                                   {"interleaved", 2},
                                                                                                   {"interleaved", 3},
                                                                                                   {"interleaved", 4},
                                                                                                   {"zb_h1", 0},
                                                                                                   {"zbv", 0}})
                        for (const bool sequence : {false, true})
                            for (const std::string recompute : {"none", "attention", "all"}) {
                                const Choice c{pp,     s.ranks / tp / pp, 1,         tp, samples, zero, name,
                                               chunks, sequence,          recompute, "", "",      ""};
                                if (!s.whole(c)) continue;
                                ++choices;
                                const Judged j = formula.judge(c, s.ranks, s.batch);
                                if (!j.why_not.empty() || static_cast<double>(j.memory_bytes) > s.memory_limit)
                                    continue;
                                best = std::min(best, j.step_s);
                            }
        }
    return best;
}

}  // namespace

TEST_CASE("search: close to the best of all, with few looks, the same each time") {
    for (const double memory : {40e9, 80e9, 200e9})
        for (const int64_t ranks : {16, 96, 256}) {
            Formula formula;
            formula.memory = memory;
            const SearchSpace s = space(ranks, 1536, formula);
            int64_t looks = 0, choices = 0;
            const auto judge = [&](const Choice& c) {
                ++looks;
                return formula.judge(c, s.ranks, s.batch);
            };
            const Found found = Search(s, each(judge)).run();
            const double best = best_of_all(s, formula, choices);
            CAPTURE(memory, ranks, looks, choices);
            REQUIRE(found.best.empty() == std::isinf(best));
            if (found.best.empty()) continue;
            CHECK(found.best.front().step_s <= 1.03 * best);
            CHECK(looks == found.compiled);
            int64_t refused = 0;
            for (const Refused& one : found.refused) refused += one.closest.why_not.empty() ? 0 : one.count;
            CHECK(looks == refused + static_cast<int64_t>(found.all.size()));
            CHECK(looks < choices / 4);
            for (size_t i = 1; i < found.best.size(); ++i) CHECK(found.best[i].step_s >= found.best[i - 1].step_s);
            for (const Judged& one : found.best) CHECK(static_cast<double>(one.memory_bytes) <= memory);
            const Found again = Search(s, each(judge)).run();
            REQUIRE(again.best.size() == found.best.size());
            for (size_t i = 0; i < found.best.size(); ++i) CHECK(again.best[i].choice == found.best[i].choice);
        }
}

TEST_CASE("search: a mesh that is best with another schedule than the first look has is found") {
    for (const double tp_cost : {0.05, 0.2, 0.5})
        for (const double memory : {80e9, 200e9, 280e9}) {
            Formula formula;
            formula.memory = memory;
            formula.tp_cost = tp_cost;
            const SearchSpace s = space(128, 256, formula);  // few micro-batches: much depends on the bubble
            int64_t choices = 0;
            const double best = best_of_all(s, formula, choices);
            const Found found =
                Search(s, each([&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); })).run();
            CAPTURE(tp_cost, memory, found.compiled, choices, found.best.front().choice.text());
            REQUIRE(!found.best.empty());
            CHECK(found.best.front().step_s <= 1.03 * best);
        }
}

TEST_CASE("search: a mesh that is kept is searched as well as among others, and its start counts") {
    for (const double memory : {60e9, 120e9})
        for (const int64_t ranks : {32, 96, 128}) {
            Formula formula;
            formula.memory = memory;
            const SearchSpace s = space(ranks, 1536, formula);
            const auto judge = [&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); };
            const Found among = Search(s, each(judge)).run();
            std::map<std::tuple<int64_t, int64_t>, double> best;
            for (const Judged& one : among.all) {
                if (!one.fits()) continue;
                double& now = best.emplace(std::tuple(one.choice.tp, one.choice.pp), one.step_s).first->second;
                now = std::min(now, one.step_s);
            }
            CHECK(best.size() > 1);
            for (const Judged& one : among.all) {
                if (!one.fits() || one.step_s > best.at({one.choice.tp, one.choice.pp})) continue;
                SearchSpace kept = s;
                kept.varies_mesh = false;
                kept.start = {.pp = one.choice.pp, .dp = one.choice.dp, .tp = one.choice.tp, .samples = 16, .zero = 3};
                const Found found = Search(kept, each(judge)).run();
                CAPTURE(one.choice.text(), memory);
                REQUIRE(!found.best.empty());
                CHECK(found.best.front().step_s <= one.step_s);
            }
        }
    SearchSpace kept = space(8, 64, {});
    kept.varies_mesh = false;
    kept.start = {.dp = 8, .samples = 2, .zero = 2, .schedule = "zbv"};
    CHECK(std::ranges::count(kept.meshes(), kept.start) == 1);
}

TEST_CASE("search: a mesh that is slow with one sample and ZeRO, and the fastest with neither, is refined") {
    const SearchSpace s = pipelines_of_four();
    const auto judge = [](const Choice& c) {
        Judged j;
        j.step_s = c.pp == 4 ? 1.6 : c.pp == 2 ? 2 : 1 + (c.zero > 0 ? 0.5 : 0) + 1 / static_cast<double>(c.samples);
        return j;
    };
    const Found found = Search(s, each(judge)).run();
    CHECK(found.best.front().choice.text() == "pp=1 dp=4 tp=1 samples=4 zero=0");
}

TEST_CASE("search: what a stopped search has found is reported as such") {
    Formula formula;
    const SearchSpace s = space(128, 1536, formula);
    const auto judge = [&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); };
    const Found whole = Search(s, each(judge)).run();
    CHECK(!whole.stopped);
    for (const int64_t most : {1, 20, 60}) {
        int64_t judged = 0;
        const auto stop = [&] { return judged >= most; };
        const auto until = [&](const std::vector<Choice>& choices, const Search::Done& done) {
            for (size_t i = 0; i < choices.size() && !stop(); ++i, ++judged) done(i, judge(choices[i]));
        };
        const Found found = Search(s, until, {}, stop).run();
        CHECK(found.stopped);
        CHECK(found.compiled == most);
        CHECK(found.compiled < whole.compiled);
        CHECK(std::ranges::all_of(found.best, [](const Judged& one) { return one.fits(); }));
        if (most > 1) CHECK(!found.best.empty());
        if (most == 1) CHECK(found.left > 0);
    }
}

TEST_CASE("search: a batch that the ranks along dp do not divide is named with one that they do") {
    SearchSpace s;
    s.ranks = 7;
    s.batch = 256;
    s.most_tp = s.most_pp = 1;
    const auto judge = [&](const Choice&) { return Judged(); };
    const Found found = Search(s, each(judge)).run();
    CHECK(found.best.empty());
    REQUIRE(found.left_out.size() == 1);
    CHECK(
        found.left_out.begin()->first ==
        "256 sequences per step are not divisible by dp = 7 (for dp = 7: set train.sequences_per_step to 252 or 259)");
    s.batch = 259;
    CHECK(Search(s, each(judge)).run().left_out.empty());
}

TEST_CASE("search: where recomputation has to free much the first that frees enough is tried, not each on the way") {
    Formula formula;
    SearchSpace s = space(64, 1536, formula);
    Choice c;
    c.pp = 4, c.dp = 8, c.tp = 2;
    s.recomputes.insert(s.recomputes.begin() + 2, {"all", 8, 0.5 * 4e10, 0.5, 1.1});
    CHECK(s.smaller(c)->recompute == "attention");
    CHECK(s.freed(*s.smaller(c)) == 0.3 * 4e10 / 2);  // four micro-batches in flight, of a quarter of the layers
    CHECK(s.smaller(c, 0.4 * 4e10 / 2)->recompute_text() == "8 layers");
    CHECK(s.smaller(c, 4e10)->recompute_text() == "all");
    CHECK(s.smaller(*s.smaller(c, 4e10))->zero == 1);
    s.varies_recompute = false;
    CHECK(s.smaller(c)->zero == 1);
}

TEST_CASE("search: what does not fit says so, what is kept stays, and the border is told") {
    Formula formula;
    formula.memory = 1e9;
    SearchSpace s = space(16, 64, formula);
    const auto judge = [&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); };
    Found found = Search(s, each(judge)).run();
    CHECK(found.best.empty());
    CHECK(found.pruned() > 0);

    formula.memory = s.memory_limit = 200e9;
    s.varies_mesh = s.varies_zero = false;
    s.start.pp = 2;
    s.start.dp = 4;
    s.start.tp = 2;
    s.start.zero = 1;
    found = Search(s, each(judge)).run();
    REQUIRE(!found.best.empty());
    for (const Judged& one : found.best) {
        CHECK(one.choice.pp == 2);
        CHECK(one.choice.zero == 1);
    }
    s.varies_mesh = true;
    s.most_tp = 2;
    formula.memory = s.memory_limit = 120e9;
    found = Search(s, each(judge)).run();
    REQUIRE(!found.best.empty());
    if (found.best.front().choice.tp == 2)
        CHECK(std::any_of(found.edges.begin(), found.edges.end(),
                          [](const std::string& edge) { return edge.find("--most-tp") != std::string::npos; }));
}

TEST_CASE("search: where the rank that limits a choice has less than others ZeRO and recomputation still make it fit") {
    Formula formula;
    formula.tp_cost = 0;
    SearchSpace s = space(16, 64, formula);
    s.most_tp = s.most_pp = 1;
    s.memory_limit = 4e12;  // of the kind with most, on which all would fit as they are
    for (const double memory : {100e9, 150e9}) {
        formula.memory = memory;
        const Found found = Search(s, each([&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); })).run();
        REQUIRE(!found.best.empty());
        CHECK(found.best.front().choice.zero == 3);
        for (const Judged& one : found.best) CHECK(one.over() <= 0);
        REQUIRE(found.refused.size() == 1);
        const Judged& closest = found.refused.front().closest;
        for (const Judged& one : found.all) CHECK((one.fits() || one.over() >= closest.over()));
    }
}

TEST_CASE("search: what is kept is judged as it is, and nothing is left out by what nobody knows") {
    Formula formula;
    formula.memory = 30e9;
    SearchSpace s = space(64, 1536, formula);
    s.varies_zero = s.varies_schedule = s.varies_recompute = false;
    s.start.zero = 3;
    s.start.schedule = "zbv";
    s.start.recompute = "all";
    const auto judge = [&](const Choice& c) { return formula.judge(c, s.ranks, s.batch); };
    const Found found = Search(s, each(judge)).run();
    REQUIRE(!found.best.empty());
    for (const Judged& one : found.all) {
        CHECK(one.choice.zero == 3);
        CHECK(one.choice.schedule == "zbv");
        CHECK(one.choice.recompute == "all");
    }
    s.start.zero = -1;
    s.start.schedule = s.start.recompute = "";
    formula.memory = s.memory_limit = 1;
    const Found unknown = Search(s, each(judge)).run();
    CHECK(unknown.left_out.empty());
    CHECK(unknown.all.size() == s.meshes().size());
    for (const Judged& one : unknown.all)
        for (const char* word : {"zero", "zbv", "1f1b", "recompute"})
            CHECK(one.choice.text().find(word) == std::string::npos);
}

TEST_CASE("search: what does not run or fit is counted by its reason, also beside what fits") {
    Formula formula;
    formula.memory = 120e9;
    SearchSpace s = space(24, 96, formula);
    s.varies_samples = s.varies_recompute = s.varies_zero = s.varies_schedule = s.varies_sequence = false;
    int64_t of_three = 0;
    const auto judge = [&](const Choice& c) {
        of_three += c.tp == 3;
        return formula.judge(c, s.ranks, s.batch);
    };
    const Found found = Search(s, each(judge)).run();
    REQUIRE(!found.best.empty());
    std::map<std::string, int64_t> counts;
    for (const Refused& one : found.refused) {
        counts[one.closest.why_not] = one.count;
        if (one.closest.why_not.empty())
            CHECK(static_cast<double>(one.closest.memory_bytes) > s.memory_limit);
        else
            CHECK(one.closest.choice.tp == 3);
    }
    int64_t unfit = 0;
    for (const Judged& one : found.all) unfit += static_cast<double>(one.memory_bytes) > s.memory_limit;
    CHECK(of_three > 1);
    CHECK(counts["heads: 64 are not 3 times something"] == of_three);
    CHECK(counts[""] == unfit);
}

TEST_CASE("search: where ranks take turns a pipeline's bubble leaves out nothing") {
    SearchSpace s;
    s.ranks = 64;
    s.batch = 1024;
    s.most_tp = 2;
    s.most_pp = 64;
    s.varies_samples = s.varies_recompute = s.varies_zero = s.varies_schedule = s.varies_sequence = s.varies_mapping =
        false;
    s.start.samples = 16;  // 64 micro-batches on a pipeline of 64: a bubble of 63/64
    s.flops = 64e12;
    s.rate = 1e12;
    const auto judge = [&](const Choice& c) {
        Judged j;
        j.computing_s = 2;  // stretched by the other rank of its processor
        j.step_s = c.pp == 64 ? 2.01 : 2.5;
        return j;
    };
    s.turns = 1;
    const Found alone = Search(s, each(judge)).run();
    CHECK(alone.best.front().choice.pp < 64);
    s.turns = 2;
    const Found shared = Search(s, each(judge)).run();
    CHECK(shared.best.front().choice.pp == 64);
}

TEST_CASE("search: of forecasts that are alike the plainest is first") {
    SearchSpace s = pipelines_of_four();
    const auto judge = [&](const Choice& c) {
        Judged j;
        j.step_s = c.schedule == "zbv" && c.pp > 1 ? 1 : c.pp > 1 ? 1.005 : 1.5;
        j.step_s += 1e-4 * static_cast<double>(c.zero) + 1e-5 * static_cast<double>(c.samples);
        return j;
    };
    CHECK(Search(s, each(judge)).run().best.front().choice.schedule == "zbv");
    s.alike = 0.01;
    const Found found = Search(s, each(judge)).run();
    CHECK(found.best.front().choice.schedule == "1f1b");
    CHECK(found.best.front().choice.pp > 1);
    for (size_t i = 2; i < found.best.size(); ++i) CHECK(found.best[i].step_s >= found.best[i - 1].step_s);
    Choice plain, other;
    other.samples = 2;
    CHECK(other.added() < plain.added());
    other.zero = 1;
    CHECK(plain.added() < other.added());
}

TEST_CASE("search: cp is searched where a row does not fit, or the batch has too few rows, with each method") {
    SearchSpace s;
    s.ranks = 32;
    s.batch = 32;
    s.most_tp = s.most_pp = 1;
    s.most_cp = 32;
    s.has_cp = true;
    s.varies_samples = s.varies_recompute = s.varies_zero = false;
    for (const char* method : {"heads", "gather", "ring"})
        for (const char* order : {"natural", "zigzag"}) s.contexts.emplace_back(method, order);
    std::tie(s.start.context, s.start.order) = s.contexts.front();
    double row = 8, memory = 10;
    const auto judge = [&](const Choice& c) {
        Judged j;
        if (c.context == "heads" && c.cp > 1 && c.order != "natural") j.why_not = "heads has one order";
        if (c.context == "heads" && 8 % c.cp != 0) j.why_not = "8 heads";
        j.step_s = 1 + 0.01 * static_cast<double>(c.cp) + (c.context == "ring" ? 0.001 : 0.002) +
                   (c.order == "natural" && c.context != "heads" ? 0.5 : 0);
        j.memory_bytes = static_cast<int64_t>(row * 1000 / static_cast<double>(c.cp));
        j.memory_limit = memory * 1000;
        return j;
    };
    const auto found_with = [&] { return Search(s, each(judge)).run(); };
    const auto largest_cp = [](const Found& found) {
        int64_t most = 0;
        for (const Judged& one : found.all) most = std::max(most, one.choice.cp);
        return most;
    };
    Found found = found_with();  // a row fits: nothing else is looked at
    CHECK(found.best.front().choice.cp == 1);
    CHECK(found.compiled == 1);
    CHECK(found.pruned() == 5);
    row = 15;
    found = found_with();
    CHECK(found.best.front().choice.text() == "pp=1 dp=16 cp=2 tp=1 samples=1 ring zigzag zero=0");
    CHECK(largest_cp(found) == 2);
    row = 150;  // where the axis is longer than the heads another method runs
    found = found_with();
    CHECK(found.best.front().choice.text() == "pp=1 dp=2 cp=16 tp=1 samples=1 ring zigzag zero=0");
    const std::string edge = "cp = 16 is the largest value searched (--most-cp)";
    CHECK(std::ranges::count(found.edges, edge) == 0);
    row = 310;
    found = found_with();
    CHECK(found.best.front().choice.cp == 32);
    s.most_cp = 16;
    row = 150;
    CHECK(std::ranges::count(found_with().edges, edge) == 1);
    row = 8;
    s.batch = 4;  // of 32 ranks
    found = found_with();
    CHECK(found.best.front().choice.dp == 4);
    CHECK(found.best.front().choice.cp == 8);
    s.contexts.clear();  // the method stays as configured
    found = found_with();
    CHECK(found.best.front().choice.context == "heads");
}

TEST_CASE("search: more micro-batches by cp are looked at where the pipeline waits, and ZeRO splits over cp, too") {
    SearchSpace s;
    s.ranks = 32;
    s.batch = 16;
    s.most_tp = 1;
    s.most_pp = 4;
    s.most_cp = 8;
    s.varies_samples = s.varies_recompute = s.varies_zero = s.varies_schedule = false;
    const auto judge = [&](const Choice& c) {
        Judged j;
        j.step_s = (1 + bubble(c, s.micros(c))) * (1 + 0.01 * static_cast<double>(c.cp)) + (c.pp < 4 ? 1 : 0);
        return j;
    };
    const Found found = Search(s, each(judge)).run();
    CHECK(found.best.front().choice.pp == 4);
    CHECK(found.best.front().choice.cp == 8);
    Choice c;
    c.dp = 2;
    c.cp = 4;
    c.zero = 3;
    CHECK(state_bytes({2, 4, 12}, c) == 18.0 / 8);
}

TEST_CASE(
    "search: ep grows as far as experts need, over sizes that divide experts and ranks, and its neighbours are tried") {
    SearchSpace s;
    s.ranks = 24;
    s.batch = 48;
    s.most_tp = 2;
    s.experts = s.most_ep = 32;
    s.varies_samples = s.varies_recompute = s.varies_mapping = false;
    s.memory_limit = 30;
    s.state = {16, 16, 96};
    s.state.experts = 0.875;
    double exchange = 0.01;
    std::set<int64_t> seen;
    const auto judge = [&](const Choice& c) {
        Judged j;
        seen.insert(c.ep);
        CHECK(32 % c.ep == 0);
        CHECK(c.dp % c.ep == 0);
        CHECK(c.dp * c.tp == 24);
        j.step_s = 1 + exchange * (1 - 1 / static_cast<double>(c.ep)) + 0.1 * static_cast<double>(c.tp - 1) +
                   0.05 * static_cast<double>(c.zero);
        j.memory_bytes = static_cast<int64_t>(state_bytes(s.state, c));
        j.memory_limit = s.memory_limit;
        return j;
    };
    Found found = Search(s, each(judge)).run();
    // Of dp = 24 at ZeRO-1: 32 (1/8 + 7/8 / ep) + 96 / 24 is 22 at ep = 2, and 36 without.
    CHECK(found.best.front().choice.text() == "pp=1 dp=12 ep=2 tp=1 samples=1 zero=1");
    CHECK(seen == std::set<int64_t>{1, 2, 4});  // tp = 2 fits without
    exchange = -0.01;  // as if a larger ep were faster: as far as 8, which 24 ranks and 32 experts have in common
    found = Search(s, each(judge)).run();
    CHECK(found.best.front().choice.ep == 8);
    s.most_ep = 4;
    found = Search(s, each(judge)).run();
    CHECK(found.best.front().choice.ep == 4);
    CHECK(std::ranges::count(found.edges, "ep = 4 is the largest value searched (--max-ep)") == 1);
    s.most_ep = 32, s.memory_limit = 9;  // more than ep frees: a higher stage, too
    found = Search(s, each(judge)).run();
    REQUIRE(!found.best.empty());
    CHECK(found.best.front().choice.ep > 1);
    CHECK(found.best.front().choice.zero > 1);
    s.experts = 0, s.most_ep = 1, s.memory_limit = 1000;
    seen.clear();
    Search(s, each(judge)).run();
    CHECK(seen == std::set<int64_t>{1});
    Choice c;
    c.dp = 8, c.tp = 2, c.ep = 4, c.zero = 1;
    CHECK(state_bytes(s.state, c) == (32 * (0.125 + 0.875 / 4) + 96.0 / 8) / 2);
}

TEST_CASE("search: closed forms of what choices lose and keep") {
    Choice c;
    CHECK(bubble(c, 8) == 0);
    c.pp = 4;
    CHECK(bubble(c, 8) == 3.0 / 8);
    c.schedule = "interleaved";
    c.chunks = 2;
    CHECK(bubble(c, 8) == 3.0 / 16);
    c.schedule = "zb_h1";
    CHECK(bubble(c, 8) == 3.0 / 24);
    c.schedule = "of my own";
    CHECK(bubble(c, 8) == 0);
    c.dp = 8;
    const StateBytes mixed{2, 4, 12}, sgd{4, 4, 0};  // landscape.md's 18, 6 + 12/N, 2 + 16/N and 18/N of a parameter
    const std::vector<double> of_mixed = {18, 6 + 12.0 / 8, 2 + 16.0 / 8, 18.0 / 8}, of_sgd = {8, 8, 4 + 4.0 / 8, 1};
    for (c.zero = 0; c.zero <= 3; ++c.zero) {
        CHECK(state_bytes(mixed, c) == of_mixed[static_cast<size_t>(c.zero)] / 4);
        CHECK(state_bytes(sgd, c) == of_sgd[static_cast<size_t>(c.zero)] / 4);
    }
    c.zero = -1;
    CHECK(state_bytes(mixed, c) == 0);
    c.zero = 1;
    c.rep = 2;  // splits the batch, but not what ZeRO splits
    CHECK(state_bytes(mixed, c) == of_mixed[1] / 4);
    CHECK(c.text() == "pp=4 rep=2 dp=8 tp=1 samples=1 zero=1 of my own x2");
    SearchSpace s;
    s.batch = 32;
    CHECK(s.micros(c) == 2);
    CHECK(s.whole(c));
    c.samples = 4;
    CHECK_FALSE(s.whole(c));
}
