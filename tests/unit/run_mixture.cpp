// Samples of several sources by weight: exact shares, the same whatever reads them, held-out data of each.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>

#include "lua/fake_host.h"
#include "run/data/data.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// A text of `samples` samples of 10 tokens; each sample begins with two bytes that say which it is.
struct File {
    std::string path = std::tmpnam(nullptr);
    explicit File(int64_t samples, char fill) {
        std::string text;
        for (int64_t i = 0; i < samples; ++i) {
            text += {static_cast<char>(i / 200), static_cast<char>(i % 200)};
            text += std::string(8, fill);
        }
        std::ofstream(path, std::ios::binary) << text + "x";
    }
    ~File() { std::remove(path.c_str()); }
};

std::shared_ptr<DataSource> text_of(const std::string& path, int64_t seq = 10) {
    Config options("o.data.text");
    options.set("path", {path, {}});
    options.set("seq", {seq, {}});
    return built_data("text", options, {});
}

struct Three {
    File web{5000, 'w'}, books{1000, 'b'}, code{700, 'c'};
    DataSpec spec(const std::vector<double>& weights, double validation = 0, uint64_t seed = 7) const {
        Config none("o.data.mixture");
        DataSpec made;
        made.source = built_data("mixture", none, {"", "mix.lua", 4});
        std::vector<DataPart> parts;
        const std::string* const paths[] = {&web.path, &books.path, &code.path};
        for (size_t i = 0; i < weights.size(); ++i)
            parts.push_back({text_of(*paths[i]), weights[i], {"", "mix.lua", static_cast<int>(i) + 5}});
        made.source->over(parts);
        made.validation = validation;
        made.seed = seed;
        return made;
    }
    /// 0 web, 1 books, 2 code; of the position in the row of all samples.
    static size_t source_of(int64_t position) { return position < 5000 ? 0 : position < 6000 ? 1 : 2; }
};

std::vector<int64_t> counts(const Dataset& data, int64_t first, int64_t count, Split split = Split::train) {
    std::vector<int64_t> all(3);
    for (int64_t i = first; i < first + count; ++i) ++all[Three::source_of(data.position(split, i))];
    return all;
}

std::string refusal(const std::vector<double>& weights) {
    const Three three;
    try {
        three.spec(weights);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "nothing was refused";
}

}  // namespace

TEST_CASE("a mixture's shares are exact to one sample in every 4,096, wherever they begin") {
    const Three three;
    for (const std::vector<double>& weights : std::vector<std::vector<double>>{
             {0.7, 0.2, 0.1}, {1, 1, 1}, {5, 0, 3}, {1e-4, 1, 3}, {2e6, 1e6, 1e3}, {1, 4095, 0}}) {
        const Dataset data(three.spec(weights));
        const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
        const std::vector<int64_t> first = counts(data, 0, 4096);
        for (size_t k = 0; k < 3; ++k) {
            CHECK(std::abs(static_cast<double>(first[k]) - 4096 * weights[k] / total) < 1);
            CHECK((first[k] > 0) == (weights[k] > 0));
        }
        for (const int64_t begin : {1, 17, 4095, 4096, 100'000, 1'234'567}) CHECK(counts(data, begin, 4096) == first);
        // And shorter windows are as even as they can be: no source is behind by more than two samples.
        for (int64_t begin = 0; begin < 4096; begin += 61) {
            const std::vector<int64_t> few = counts(data, begin, 100);
            for (size_t k = 0; k < 3; ++k)
                CHECK(std::abs(static_cast<double>(few[k]) - 100.0 * static_cast<double>(first[k]) / 4096) <= 2);
        }
    }
}

TEST_CASE("each source of a mixture is drawn as by itself: all of it, then all again in another order") {
    const Three three;
    const Dataset data(three.spec({0.5, 0.25, 0.25}));
    std::vector<std::vector<int64_t>> drawn(3);
    for (int64_t i = 0; i < 20'000; ++i) {
        const int64_t at = data.position(Split::train, i);
        drawn[Three::source_of(at)].push_back(at);
    }
    const auto epoch = [&](size_t source, size_t size, size_t number) {
        const auto begin = drawn[source].begin() + static_cast<std::ptrdiff_t>(size * number);
        return std::vector<int64_t>(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    const size_t sizes[] = {5000, 1000, 700};
    for (size_t k = 0; k < 3; ++k) {
        const auto one = epoch(k, sizes[k], 0), two = epoch(k, sizes[k], 1);
        CHECK(std::set<int64_t>(one.begin(), one.end()).size() == sizes[k]);
        CHECK(std::set<int64_t>(two.begin(), two.end()).size() == sizes[k]);
        CHECK(one != two);
    }
    const Dataset again(three.spec({0.5, 0.25, 0.25})), other(three.spec({0.5, 0.25, 0.25}, 0, 8));
    int64_t differ = 0;
    for (int64_t i = 0; i < 1000; ++i) {
        CHECK(again.position(Split::train, 19'000 - i) == data.position(Split::train, 19'000 - i));
        differ += other.position(Split::train, i) != data.position(Split::train, i);
    }
    CHECK(differ > 900);
}

TEST_CASE("a mixture reads its source's bytes, and says where they lie") {
    const Three three;
    const Dataset data(three.spec({0.4, 0.3, 0.3}));
    for (int64_t i = 0; i < 200; ++i) {
        int32_t ids[10];
        data.read(Split::train, i, 0, {0}, {ids, DType::i32, {10}});
        const int64_t at = data.position(Split::train, i);
        const size_t source = Three::source_of(at);
        const int64_t number = at - (source == 0 ? 0 : source == 1 ? 5000 : 6000);
        CHECK(ids[0] * 200 + ids[1] == number);
        CHECK(ids[5] == "wbc"[source]);
        const std::string& path = source == 0 ? three.web.path : source == 1 ? three.books.path : three.code.path;
        CHECK(data.where(Split::train, i) == "data file " + path + ", byte " + std::to_string(10 * number) +
                                                 ": sample " + std::to_string(number) + ", token " +
                                                 std::to_string(10 * number));
    }
}

TEST_CASE("a mixture holds out a share of each source, and evaluates it once in the same shares") {
    const Three three;
    const Dataset data(three.spec({0.6, 0.3, 0.1}, 0.1));
    const int64_t n = data.samples(Split::validation);
    CHECK(n > 150);  // books have 96 held out, of which 3 in 10 are evaluated
    CHECK(n < 5000 / 10 + 1000 / 10);
    std::set<int64_t> held;
    for (int64_t i = 0; i < n; ++i) held.insert(data.position(Split::validation, i));
    CHECK(held.size() == static_cast<size_t>(n));
    const std::vector<int64_t> evaluated = counts(data, 0, n, Split::validation);
    CHECK(std::abs(static_cast<double>(evaluated[0]) - 0.6 * static_cast<double>(n)) <= 2);
    for (int64_t i = 0; i < 40'000; ++i) CHECK(held.count(data.position(Split::train, i)) == 0);
    CHECK(data.samples(Split::train) == 5000 - 496 + 1000 - 96 + 700 - 64);
    CHECK_THROWS_WITH(Dataset(three.spec({1, 1, 1}, 0.01)), Contains("samples; data.validation = 0.01 needs at least"));
    CHECK_NOTHROW(Dataset(three.spec({1, 0, 0}, 0.01)));  // nothing is drawn of the small ones
}

TEST_CASE("a mixture tells how often each source repeats") {
    const Three three;
    const Dataset data(three.spec({0.5, 0.25, 0.25}));
    const std::string told = data.told(8192);
    CHECK_THAT(told, Contains("a mixture of 3 sources, in every 4096 samples:") &&
                         Contains("2048 (50.00 %) of data file " + three.web.path +
                                  ": this run draws 4096 of its 5000, each 0.82 times") &&
                         Contains("draws 2048 of its 700, each 2.93 times"));
}

TEST_CASE("mixtures that cannot be are refused with source, weight and what to do") {
    CHECK_THAT(refusal({0, 0, 0}), Contains("mix.lua:5: o.data.mixture: the weights of its 3 sources sum to 0"));
    CHECK_THAT(refusal({1, -0.5, 1}), Contains("mix.lua:6: o.data.mixture: source 2 has the weight -0.5\n  give it a"));
    CHECK_THAT(refusal({1, std::nan(""), 1}), Contains("source 2 has the weight nan"));
    CHECK_THAT(refusal({}), Contains("mix.lua:4: o.data.mixture: it has no sources"));
    CHECK_THAT(refusal({1e-9, 1e-9, 1}), Contains("has the weight 1e-09 of 1, less than one sample in 4096"));
    CHECK(refusal({1, 2, 3}) == "nothing was refused");
    const Three three;
    Config none("o.data.mixture");
    const auto source = built_data("mixture", none, {});
    CHECK_THROWS_WITH(
        source->over({{text_of(three.web.path), 1, {}}, {text_of(three.books.path, 20), 1, {"", "mix.lua", 9}}}),
        Contains("mix.lua:9: o.data.mixture: source 2, data file " + three.books.path +
                 ", offers tokens i32[seq 20]") &&
            Contains("source 1, data file " + three.web.path + ", offers tokens i32[seq 10], targets i32[seq 10]"));
}

TEST_CASE("a checkpoint of other shares or sources is no mixture's own") {
    const Three three;
    const Dataset one(three.spec({1, 1, 2})), other(three.spec({1, 2, 1}));
    CHECK(one.digest() == other.digest());
    CHECK(one.source().identity() != other.source().identity());
    CHECK(one.source().identity()[0] == std::pair<std::string, int64_t>{"source_1.of_4096", 1024});
}
