// Packed documents: every token of every document once an epoch, rows without padding, equal parts of a batch.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "folders.h"
#include "lua/fake_host.h"
#include "run/data/data.h"
#include "run/data/equal_parts.h"
#include "run/data/token_pair.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

using Ids = std::vector<int32_t>;
enum : size_t { tokens, targets, positions, documents, places };

struct Folder {
    std::filesystem::path path = in_build("run_documents");
    Folder() {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string name(const std::string& of) const { return (path / of).string(); }
    std::string write(const std::string& of, const std::string& text) const {
        std::ofstream(name(of), std::ios::binary) << text;
        return name(of);
    }
    /// A pair whose documents have these lengths, and whose tokens are their indices in the file.
    std::string pair(const std::string& of, const std::vector<int64_t>& lengths, int64_t ignored = 0) const {
        TokenPair pair(name(of), 4, ignored > 0);
        int32_t next = 0;
        for (const int64_t length : lengths) {
            Ids ids(static_cast<size_t>(length));
            std::iota(ids.begin(), ids.end(), next);
            next += static_cast<int32_t>(length);
            pair.add(ids, std::min(ignored, length));
        }
        pair.finish();
        return name(of + ".bin");
    }
};

using Value = decltype(ConfigValue::data);

DataSpec spec_of(const std::string& path, int64_t row, const std::vector<std::pair<std::string, Value>>& more = {},
                 double held_out = 0) {
    Config options("o.data.documents");
    options.set("path", {path, {}});
    options.set("seq", {row, {}});
    for (const auto& [key, value] : more) options.set(key, {value, {"", "script.lua", 3}});
    DataSpec spec;
    spec.source = built_data("documents", options, {"", "script.lua", 3});
    spec.validation = held_out;
    spec.seed = 7;
    spec.origin = {"", "script.lua", 3};
    return spec;
}

int64_t row_of(const Dataset& data) { return data.source().arrays()[0].dims[0].second; }

Ids read(const Dataset& data, size_t array, int64_t index, Split split = Split::train, int64_t from = 0,
         int64_t count = 0) {
    Ids ids(static_cast<size_t>(count > 0 ? count : row_of(data)));
    data.read(split, index, array, {from}, {ids.data(), DType::i32, {static_cast<int64_t>(ids.size())}});
    return ids;
}

std::string refusal(const DataSpec& spec, int64_t rows = 0) {
    try {
        const Dataset data(spec);
        for (int64_t i = 0; i < rows; ++i) read(data, targets, i);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was refused";
}

std::vector<int64_t> lengths_of(int64_t count, int64_t most, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(random() % 10 == 0 ? random() % 3 : 1 + random() % most);
    return all;
}

/// Lengths with a mean, and normal logarithms of this deviation: 0.42 is that of verses, 0.6 of chapters.
std::vector<int64_t> drawn_lengths(int64_t count, double mean, double spread, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(std::log(mean) - spread * spread / 2, spread);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(std::max<int64_t>(1, std::llround(std::exp(normal(random)))));
    return all;
}

/// The largest over the mean sum of `parts` equal parts.
double largest_over_mean(const std::vector<int64_t>& costs, size_t parts) {
    std::vector<double> sums(parts);
    for (size_t i = 0; i < costs.size(); ++i) sums[i * parts / costs.size()] += static_cast<double>(costs[i]);
    return *std::max_element(sums.begin(), sums.end()) / std::accumulate(sums.begin(), sums.end(), 0.0) *
           static_cast<double>(parts);
}

std::vector<int64_t> pairs_of(const Dataset& data, const std::vector<int64_t>& draws) {
    std::vector<int64_t> all;
    for (const int64_t draw : draws) all.push_back(data.source().pairs(data.sample(Split::train, draw)));
    return all;
}

}  // namespace

TEST_CASE("rows of packed documents have every token of every document once an epoch, and nothing else") {
    const Folder folder;
    for (const auto& [count, longest, row] :
         std::vector<std::array<int64_t, 3>>{{300, 40, 16}, {90, 200, 64}, {7, 9, 5}}) {
        INFO(count << " documents of up to " << longest << " tokens in rows of " << row);
        const std::vector<int64_t> lengths = lengths_of(count, longest, static_cast<unsigned>(count));
        const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
        std::vector<int64_t> document, ends;  // by token
        for (size_t d = 0; d < lengths.size(); ++d)
            for (int64_t i = 0; i < lengths[d]; ++i) {
                document.push_back(static_cast<int64_t>(d));
                ends.push_back(i + 1 == lengths[d]);
            }
        const Dataset data(spec_of(folder.pair("a", lengths), row));
        CHECK(data.samples(Split::train) == all / row);
        std::vector<Ids> orders;
        std::vector<int64_t> seen(static_cast<size_t>(all));
        int64_t wrong = 0, at = 0, cuts = 0;
        for (int64_t i = 0; at < 3 * all; ++i) {
            const Ids ids = read(data, tokens, i), next = read(data, targets, i), place = read(data, positions, i),
                      number = read(data, documents, i), where = read(data, places, i);
            for (size_t k = 0; k < ids.size() && at < 3 * all; ++k, ++at) {
                if (at % all == 0) orders.emplace_back();
                const auto id = static_cast<size_t>(ids[k]);
                if (++seen[id] != at / all + 1) ++wrong;  // in each epoch once
                if (orders.back().empty() || orders.back().back() != document[id])
                    orders.back().push_back(static_cast<int32_t>(document[id]));
                const bool first = k == 0 || ids[k] != ids[k - 1] + 1 || ends[static_cast<size_t>(ids[k - 1])];
                if (k == 0 && id > 0 && document[id] == document[id - 1] && at < all) ++cuts;
                wrong += next[k] != (ends[id] ? -1 : ids[k] + 1);
                wrong += place[k] != (first ? 0 : place[k - 1] + 1);
                wrong += number[k] != (k == 0 ? 0 : number[k - 1] + (first ? 1 : 0));
                wrong += where[k] != static_cast<int32_t>(k);
            }
        }
        CHECK(wrong == 0);
        CHECK(orders.size() == 3);
        CHECK(orders[0] != orders[1]);
        CHECK(orders[1] != orders[2]);
        CHECK_THAT(data.told(0), Contains("the ends of " + std::to_string(cuts) + " of its "));
    }
}

TEST_CASE("a row of documents is the same wherever a run resumes, and for every reader of a part of it") {
    const Folder folder;
    const std::string path = folder.pair("a", lengths_of(200, 30, 3));
    const Dataset one(spec_of(path, 32, {}, 0.1)), other(spec_of(path, 32, {}, 0.1));
    for (const int64_t index : {400, 77, 3, 1000, 78, 0, 79, 401})
        for (const size_t array : {tokens, targets, positions, documents, places}) {
            const Ids whole = read(other, array, index);
            CHECK(read(one, array, index) == whole);
            for (const int64_t from : {0, 5, 31})
                CHECK(read(one, array, index, Split::train, from, 32 - from) == Ids(whole.begin() + from, whole.end()));
        }
    for (int64_t i = 0; i < 300; ++i) CHECK(read(one, tokens, i) == read(other, tokens, i));
    DataSpec seed = spec_of(path, 32);
    seed.seed = 8;
    CHECK(read(Dataset(seed), tokens, 0) != read(Dataset(spec_of(path, 32)), tokens, 0));
}

TEST_CASE("documents that are held out are evaluated in the order of the file and never trained on") {
    const Folder folder;
    const std::string path = folder.pair("a", lengths_of(400, 30, 4));
    const Dataset data(spec_of(path, 16, {}, 0.1));
    Ids held;
    for (int64_t i = 0; i < data.samples(Split::validation); ++i) {
        const Ids ids = read(data, tokens, i, Split::validation);
        held.insert(held.end(), ids.begin(), ids.end());
        CHECK(read(data, tokens, i + data.samples(Split::validation), Split::validation) == ids);
    }
    CHECK(std::is_sorted(held.begin(), held.end()));
    const std::set<int32_t> kept(held.begin(), held.end());
    CHECK(kept.size() == held.size());
    CHECK(held.size() > 300);
    for (int64_t i = 0; i < 2 * data.samples(Split::train); ++i)
        for (const int32_t id : read(data, tokens, i)) CHECK(kept.count(id) == 0);
    CHECK_THAT(data.where(Split::validation, 1), Contains("row 1 of the held-out ones: document "));
    CHECK_THAT(data.where(Split::train, data.samples(Split::train) + 1), Contains("in epoch 1: document "));
    // A file of its own is read whole.
    DataSpec other = spec_of(path, 16);
    other.held_out = spec_of(folder.pair("b", {20, 20, 9}), 16).source;
    const Dataset both(other);
    CHECK(both.samples(Split::validation) == 3);
    CHECK(read(both, tokens, 4, Split::validation)[0] == 16);
    CHECK_THAT(refusal(spec_of(folder.pair("b", {20, 20, 9}), 16, {}, 0.1)),
               Contains("has 3 documents; data.validation = 0.1 needs at least 160"));
}

TEST_CASE("documents end by a separator, by an index, or where a line of JSON does") {
    const Folder folder;
    const Dataset text(spec_of(folder.write("a.txt", "ab\ncde\n\nf"), 9, {{"separator", int64_t{10}}}));
    std::map<std::string, Ids> found;
    const Ids ids = read(text, tokens, 0), next = read(text, targets, 0), number = read(text, documents, 0);
    for (size_t i = 0; i < ids.size(); ++i) found[std::string(1, static_cast<char>(ids[i]))].push_back(next[i]);
    CHECK(found.at("a") == Ids{'b'});
    CHECK(found.at("b") == Ids{'\n'});  // the separator is a target, and what follows it is none of its document
    CHECK(found.at("\n") == Ids{-1, -1, -1});
    CHECK(found.at("f") == Ids{-1});
    CHECK(number.back() == 3);

    const std::string lines =
        "{\"id\": {\"a\": [1, \"}\"]}, \"text\": \"na\\u00efve \\ud83e\\udd8a\\n\", \"n\": -1.5e3}\n\n"
        "{\"text\":\"plain\", \"more\": null}\n{\"text\": \"\"}\n{\"title\": \"t\", \"text\": \"q\\\"\\\\\"}";
    const Dataset json(spec_of(folder.write("a.jsonl", lines), 20));
    const Ids bytes = read(json, tokens, 0), of = read(json, documents, 0);
    std::set<std::string> texts;
    for (int32_t d = 0; d < 3; ++d) {
        std::string one;
        for (size_t i = 0; i < bytes.size(); ++i)
            if (of[i] == d) one += static_cast<char>(bytes[i]);
        texts.insert(one);
    }
    CHECK(texts == std::set<std::string>{"na\xc3\xafve \xf0\x9f\xa6\x8a\n", "plain", "q\"\\"});
    CHECK(read(json, tokens, 0, Split::train, 7, 9) == Ids(bytes.begin() + 7, bytes.begin() + 16));
    CHECK(json.source().vocabulary() == 256);

    CHECK_THAT(refusal(spec_of(folder.write("a.txt", "ab\ncde"), 4, {{"separator", int64_t{7}}})),
               Contains("script.lua:3: data file") &&
                   Contains("its separator 7 never comes in 6 tokens\n  set data.separator to the id that ends each "
                            "document, as the tokenizer's end of text; its first ids are 97, 98, 10, 99, 100, 101"));
    CHECK_THAT(refusal(spec_of(folder.name("a.txt"), 4)),
               Contains("does not say where its documents end\n  set data.separator to the id of the byte"));
    const auto index = [](int64_t last) {  // of two sequences of two 16-bit tokens, by Megatron's layout
        std::string made("MMIDIDX\0\0", 9);
        const auto put = [&](const auto&... numbers) {
            (made.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
        };
        put(uint64_t{1}, uint8_t{8}, uint64_t{2}, uint64_t{2}, int32_t{2}, int32_t{2});
        put(int64_t{0}, int64_t{4}, int64_t{0}, last);
        return made;
    };
    folder.write("two.idx", index(1));
    const std::string two = folder.write("two.bin", std::string("a\0b\0c\0d\0", 8));
    CHECK_THAT(refusal(spec_of(two, 2)), Contains("the last document does not end with the last sequence"));
    folder.write("two.idx", index(2));
    CHECK(read(Dataset(spec_of(two, 2)), documents, 0) == Ids{0, 0});
    std::filesystem::copy_file(folder.name("a.txt"), folder.name("alone.bin"));
    CHECK_THAT(refusal(spec_of(folder.name("alone.bin"), 2)),
               Contains("or write a pair with `orrery tokenize -o NAME`"));
    CHECK_THROWS_WITH(spec_of(folder.name("a.txt"), 4, {{"separator", int64_t{-2}}}),
                      Contains("separator is -2, expected the id that ends each document"));
    CHECK_THAT(refusal(spec_of(folder.name("a.txt"), 7, {{"separator", int64_t{10}}})),
               Contains("has 6 tokens; one row has 7\n  use more data"));
    const auto line = [&](const std::string& of_json) { return refusal(spec_of(folder.write("b.jsonl", of_json), 1)); };
    CHECK_THAT(line("{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"),
               Contains("b.jsonl, line 2: the object has no string \"text\"\n"));
    CHECK_THAT(line("{\"text\": \"a}\n"),
               Contains("line 1: invalid JSON at byte 13 of the line: syntax error while parsing value") &&
                   Contains("missing closing quote"));
    CHECK_THAT(line("[1]"), Contains("line 1: expected a JSON object, found array"));
    CHECK_THAT(line("{\"text\": \"\\ud800\"}"), Contains("line 1: invalid JSON at byte ") && Contains("U+D800"));
    CHECK_THAT(line("{\"text\": \"\\x\"}"),
               Contains("line 1: invalid JSON at byte 12 of the line: ") && Contains("after backslash"));
    CHECK_THAT(line("{\"text\": \"\"}"), Contains("has no text in its 1 lines"));
}

TEST_CASE("a row of documents whose targets are all ignored is refused") {
    const Folder folder;
    const std::string text = std::string(40, '\n') + "ab\n";
    CHECK_THAT(refusal(spec_of(folder.write("a.txt", text), 4, {{"separator", int64_t{10}}}), 5),
               Contains("none of the 4 targets of this row counts: each of its documents has one token, or the mask") &&
                   Contains("\n  remove such documents, or use longer rows"));
    // Those of a mask: all but the last of each document.
    CHECK_THAT(refusal(spec_of(folder.pair("a", {100}, 90), 10), 10), Contains("none of the 10 targets"));
    CHECK(refusal(spec_of(folder.pair("a", {10, 10, 10}, 9), 10), 3) == "nothing was refused");
    const Dataset data(spec_of(folder.pair("a", {10, 10, 10}, 9), 10));
    CHECK(read(data, targets, 0, Split::train, 0, 4) == Ids{-1, -1, -1, -1});  // a part of a row may have none
}

TEST_CASE("documents that are longer than a row are split, and counted") {
    const Folder folder;
    const Dataset data(spec_of(folder.pair("a", {25, 5, 10}), 10));
    CHECK_THAT(data.told(0), Contains("3 documents of 40 tokens, 1 of them longer than a row of 10; in the first epoch "
                                      "the ends of "));
    std::multiset<int32_t> begins;
    for (int64_t i = 0; i < 4; ++i) {
        const Ids ids = read(data, tokens, i), at = read(data, positions, i);
        for (size_t k = 0; k < ids.size(); ++k)
            if (at[k] == 0) begins.insert(ids[k]);
    }
    CHECK(begins.size() >= 5);  // the three documents, and the rests of the first one
}

TEST_CASE("documents of other ends or lengths are another data set to a checkpoint") {
    const Folder folder;
    const Dataset one(spec_of(folder.pair("a", {6, 6}), 4)), other(spec_of(folder.pair("a", {5, 7}), 4));
    CHECK(one.digest() != other.digest());
    CHECK(one.source().identity() == other.source().identity());
}

TEST_CASE("a mixture of documents draws each source as by itself") {
    const Folder folder;
    const std::vector<int64_t> web = lengths_of(120, 30, 5), books = lengths_of(40, 60, 6);
    const int64_t sizes[] = {std::accumulate(web.begin(), web.end(), int64_t{0}),
                             std::accumulate(books.begin(), books.end(), int64_t{0})};
    const std::string paths[] = {folder.pair("web", web), folder.pair("books", books)};
    Config none("o.data.mixture");
    DataSpec spec;
    spec.source = built_data("mixture", none, {"", "mix.lua", 4});
    spec.source->over({{spec_of(paths[0], 16).source, 1, {}}, {spec_of(paths[1], 16).source, 2, {}}});
    spec.validation = 0;
    spec.seed = 7;
    const Dataset data(spec);
    const int64_t first = sizes[0] / 16;
    std::vector<int64_t> seen[2] = {std::vector<int64_t>(static_cast<size_t>(sizes[0])),
                                    std::vector<int64_t>(static_cast<size_t>(sizes[1]))};
    int64_t drawn[2] = {}, wrong = 0;
    for (int64_t i = 0; i < 600; ++i) {
        const size_t of = data.position(Split::train, i) < first ? 0 : 1;
        for (const int32_t id : read(data, tokens, i))
            wrong += ++seen[of][static_cast<size_t>(id)] != drawn[of]++ / sizes[of] + 1;
    }
    CHECK(wrong == 0);
    CHECK(drawn[0] > sizes[0]);
    CHECK(drawn[1] > 2 * sizes[1]);
    CHECK(data.source().pairs(data.sample(Split::train, 3)) > 0);
    const std::string where = data.where(Split::train, 3);
    CHECK_THAT(where, Contains(", row ") && Contains(" in epoch 0: document "));
}

TEST_CASE("equal parts of an order have nearly equal costs") {
    CHECK(equal_parts(std::vector<int64_t>{}).empty());
    CHECK(equal_parts(std::vector<int64_t>{5}) == std::vector<int64_t>{0});
    CHECK(equal_parts(std::vector<int64_t>{8, 1, 5, 2, 6, 3, 7, 4}) == std::vector<int64_t>{0, 1, 2, 7, 6, 3, 4, 5});
    std::mt19937 random(3);
    for (const size_t count : {2, 3, 7, 12, 24, 30, 64, 96, 1000}) {
        std::vector<int64_t> costs(count);
        for (int64_t& cost : costs) cost = 1 + static_cast<int64_t>(random() % 1000);
        const std::vector<int64_t> order = equal_parts(costs);
        CHECK(std::set<int64_t>(order.begin(), order.end()).size() == count);
        CHECK(*std::max_element(order.begin(), order.end()) + 1 == static_cast<int64_t>(count));
        std::vector<int64_t> placed;
        for (const int64_t row : order) placed.push_back(costs[static_cast<size_t>(row)]);
        for (const size_t parts : {2, 4, 8})
            if (count % parts == 0 && count / parts >= 8) CHECK(largest_over_mean(placed, parts) < 1.05);
    }
}

TEST_CASE("64 rows of documents cost 8 members of dp the same: at most 1.05 of the mean") {
    const Folder folder;
    struct Kind {
        const char* name;
        int64_t count;
        double mean, spread;
    };
    for (const Kind& kind : {Kind{"verses", 31'000, 142, 0.42}, Kind{"chapters", 1'189, 3'500, 0.6}}) {
        const Dataset data(spec_of(folder.pair(kind.name, drawn_lengths(kind.count, kind.mean, kind.spread, 9)), 4096));
        double most = 0, natural = 0, mean_natural = 0;
        constexpr int64_t steps = 16;
        for (int64_t step = 0; step < steps; ++step) {
            std::vector<int64_t> draws, drawn(64);
            data.rows(Split::train, 64 * step, 64, draws);
            std::iota(drawn.begin(), drawn.end(), 64 * step);
            most = std::max(most, largest_over_mean(pairs_of(data, draws), 8));
            const double without = largest_over_mean(pairs_of(data, drawn), 8);
            natural = std::max(natural, without);
            mean_natural += without / steps;
            std::sort(draws.begin(), draws.end());
            CHECK(draws == drawn);
        }
        INFO(kind.name << ": largest over mean pairs " << most << "; " << natural << " at most and " << mean_natural
                       << " in the mean without the order");
        CHECK(most <= 1.05);
        CHECK(mean_natural > most);
    }
}
