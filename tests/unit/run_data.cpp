#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lua/fake_host.h"
#include "run/data/data.h"

using namespace orrery;

namespace {

struct File {
    std::string path;
    explicit File(const std::string& bytes) : path(std::string(std::tmpnam(nullptr))) {
        std::ofstream(path, std::ios::binary) << bytes;
    }
    ~File() { std::remove(path.c_str()); }
};

std::string numbered(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text.push_back(static_cast<char>(i % 251));
    return text;
}

/// A source of 10 tokens a sample, with more options, as a script has them.
DataSpec spec_of(const std::string& path, const std::string& name = "text",
                 const std::vector<std::pair<std::string, int64_t>>& more = {}) {
    Config options("o.data." + name);
    options.set("path", {path, {}});
    options.set("seq", {int64_t{10}, {}});
    for (const auto& [key, value] : more) options.set(key, {value, {}});
    DataSpec spec;
    spec.source = built_data(name, options, {});
    spec.sequences_per_step = 4;
    spec.validation = 0.1;
    spec.seed = 7;
    return spec;
}
DataSpec spec_of(const File& file) { return spec_of(file.path); }

/// Tokens [first, first + count) of a drawn sample, and what follows each.
void read(const Dataset& data, int64_t index, int64_t first, int64_t count, int32_t* tokens, int32_t* targets) {
    data.read(Split::train, index, 0, {first}, {tokens, DType::i32, {count}});
    data.read(Split::train, index, 1, {first}, {targets, DType::i32, {count}});
}

}  // namespace

TEST_CASE("each epoch draws every training sample once, in another order, and no held-out one") {
    const File file(numbered(10 * 1000 + 5));
    const Dataset data(spec_of(file));
    const int64_t n = data.samples(Split::train), held = data.samples(Split::validation);
    REQUIRE(n + held == 1000);
    CHECK(held == 96);
    std::set<int64_t> validation;
    for (int64_t i = 0; i < held; ++i) validation.insert(data.position(Split::validation, i));
    CHECK(validation.size() == static_cast<size_t>(held));
    std::vector<std::vector<int64_t>> epochs(2);
    for (int epoch = 0; epoch < 2; ++epoch) {
        std::set<int64_t> seen;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t at = data.position(Split::train, epoch * n + i);
            CHECK((at >= 0 && at < 1000));
            CHECK(validation.count(at) == 0);
            seen.insert(at);
            epochs[static_cast<size_t>(epoch)].push_back(at);
        }
        CHECK(seen.size() == static_cast<size_t>(n));
    }
    CHECK(epochs[0] != epochs[1]);
}

TEST_CASE("a sample's targets are its tokens, one later") {
    const File file(numbered(4000));
    const Dataset data(spec_of(file));
    int32_t tokens[10], targets[10];
    for (int64_t i : {0, 5, 77}) {
        read(data, i, 0, 10, tokens, targets);
        CHECK(tokens[0] == data.position(Split::train, i) * 10 % 251);
        for (int j = 0; j < 9; ++j) CHECK(targets[j] == tokens[j + 1]);
        int32_t part[4], part_targets[4];
        read(data, i, 6, 4, part, part_targets);
        CHECK(part[0] == tokens[6]);
        CHECK(part_targets[3] == targets[9]);
    }
}

TEST_CASE("bad data files are named with what was found and what to do") {
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(Dataset(spec_of("/nowhere/at.txt")), Contains("/nowhere/at.txt") && Contains("data.path"));
    const File empty("");
    CHECK_THROWS_WITH(Dataset(spec_of(empty)), Contains("is empty\n  set data.path to a file"));
    const File tiny("abc");
    CHECK_THROWS_WITH(Dataset(spec_of(tiny)), Contains("has 3 tokens; one sample needs 11"));
    const File odd(numbered(4001));
    CHECK_THROWS_WITH(Dataset(spec_of(odd.path, "tokens")), Contains("4001 bytes, not a multiple of 2"));
    const File text(numbered(4000));
    DataSpec narrow = spec_of(text);
    narrow.ids = 200;
    CHECK_THROWS_WITH(Dataset(narrow), Contains("token 200 has id 200") && Contains("vocab = 201"));
    CHECK_THROWS_WITH(Dataset(spec_of(text.path, "text", {{"vocab", 199}})), Contains("token 199 has id 199"));
    CHECK_THROWS_WITH(spec_of(text.path, "tokens").source->vocabulary(), Contains("data.vocab is missing"));
    CHECK_THROWS_WITH(spec_of(text.path, "tokens", {{"token_bytes", 3}}),
                      Contains("token_bytes is 3, expected 2 or 4"));
    CHECK_THROWS_WITH(spec_of(text.path, "text", {{"seq", 0}}), Contains("seq is the integer 0, expected at least 1"));
    DataSpec few = spec_of(text);
    few.validation = 0.01;
    CHECK_THROWS_WITH(Dataset(few),
                      Contains(text.path + " has 399 samples; data.validation = 0.01 needs at least 1600"));
}

TEST_CASE("a token file has the text's bytes as little-endian integers") {
    const File text(numbered(3000));
    const std::string bin = text.path + ".bin";
    const std::string beside = bin.substr(0, bin.size() - 3);
    for (const char* older : {"idx", "mask"}) std::ofstream(beside + older) << "of older tokens";
    CHECK(tokenize_bytes(text.path, bin, 2) == 3000);
    for (const char* older : {"idx", "mask"}) CHECK_FALSE(std::ifstream(beside + older).good());
    const File keep("");
    DataSpec a = spec_of(text), b = spec_of(bin, "tokens");
    a.validation = b.validation = 0;
    const Dataset left(a), right(b);
    int32_t x[10], y[10], u[10], v[10];
    read(left, 3, 0, 10, x, y);
    read(right, 3, 0, 10, u, v);
    CHECK(std::equal(x, x + 10, u));
    CHECK(std::equal(y, y + 10, v));
    std::remove(bin.c_str());
}

TEST_CASE("a text that cannot be tokenized leaves the token file that was there") {
    const File empty(""), good("ab");
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(tokenize_bytes(empty.path, good.path, 2), Contains(empty.path + " is empty"));
    const std::string folder = std::filesystem::temp_directory_path().string();  // opens, and cannot be read
    CHECK_THROWS_WITH(tokenize_bytes(folder, good.path, 2), Contains(folder));
    std::stringstream text;
    text << std::ifstream(good.path).rdbuf();
    CHECK(text.str() == "ab");
    CHECK_FALSE(std::filesystem::exists(good.path + ".part"));
}

TEST_CASE("prefetch hands out batches in order and rethrows the fill's error at its step") {
    std::byte one{}, other{};
    Prefetch prefetch(
        [](int64_t step, std::byte* batch) {
            if (step == 8) throw Error("no more");
            *batch = static_cast<std::byte>(step);
        },
        5, &one, &other);
    for (int step = 5; step < 8; ++step) CHECK(*prefetch.next() == static_cast<std::byte>(step));
    CHECK_THROWS_WITH(prefetch.next(), "no more");
}

TEST_CASE("another file of equal length has another digest") {
    std::string text = numbered(40000);
    const File one(text), same(text);
    text[39999] ^= 1;
    const File other(text);
    CHECK(Dataset(spec_of(one)).digest() == Dataset(spec_of(same)).digest());
    CHECK(Dataset(spec_of(one)).digest() != Dataset(spec_of(other)).digest());
}

TEST_CASE("waiting for data is counted") {
    std::byte one{}, other{};
    Prefetch slow([](int64_t, std::byte*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, 1, &one,
                  &other);
    slow.next();
    slow.next();
    CHECK(slow.waited_s() > 0.02);
    Prefetch fast([](int64_t, std::byte*) {}, 1, &one, &other);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fast.next();
    CHECK(fast.waited_s() < slow.waited_s());
}

namespace {

/// What reading every training sample says; "" when all are read.
std::string read_all(const Dataset& data) {
    int32_t tokens[10], targets[10];
    try {
        for (int64_t i = 0; i < data.samples(Split::train); ++i) read(data, i, 0, 10, tokens, targets);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::failed);
        return error.what();
    }
    return "";
}

std::string changed(Dataset& data) {
    try {
        return data.require_unchanged();
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::failed);
        return error.what();
    }
}

/// Another time on the file, also where the clock of the file system is coarse.
void touch(const std::string& path) {
    const auto time = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, time + std::chrono::seconds(2));
}

}  // namespace

TEST_CASE("data that is cut short while it is read is an error of the sample") {
    using Catch::Matchers::Contains;
    const File file(numbered(100'000));
    const Dataset data(spec_of(file));
    CHECK(read_all(data) == "");
    std::filesystem::resize_file(file.path, 50'003);
    CHECK_THAT(read_all(data), Contains("data file " + file.path + " was truncated: sample ") &&
                                   Contains("and it had 100000 when the run began"));
    std::filesystem::resize_file(file.path, 0);
    CHECK_THAT(read_all(data), Contains("was truncated: sample "));
}

TEST_CASE("data that is not what it was is found, and a new time alone is not") {
    using Catch::Matchers::Contains;
    const std::string text = numbered(5000);
    const File file(text);
    Dataset data(spec_of(file));
    CHECK(changed(data) == "");
    touch(file.path);
    CHECK(changed(data) == "");
    CHECK(changed(data) == "");
    std::string other = text;
    other[2500] ^= 1;
    std::ofstream(file.path, std::ios::binary | std::ios::in) << other;
    touch(file.path);
    CHECK_THAT(changed(data), Contains(file.path + " has other contents since the run began"));
    std::ofstream(file.path, std::ios::binary | std::ios::app) << "more";
    CHECK_THAT(changed(data), Contains("has 5004 bytes, not the 5000"));
}

TEST_CASE("data whose name is another file's by now is read on, and told once") {
    using Catch::Matchers::Contains;
    const std::string text = numbered(5000);
    const File file(text);
    Dataset data(spec_of(file));
    const std::string drawn = read_all(data);
    const auto replace = [&](const std::string& contents) {
        const std::string aside = file.path + ".aside";
        std::ofstream(aside, std::ios::binary) << contents;
        std::filesystem::rename(aside, file.path);
    };
    replace(text);
    CHECK(changed(data) == "");
    std::string other = text;
    other[2500] ^= 1;
    replace(other);
    CHECK_THAT(changed(data),
               Contains(file.path + " was replaced by a file with other contents: the run still reads "
                                    "the file opened at the start, but a restart would refuse this one"));
    CHECK(changed(data) == "");
    replace(text);
    CHECK(changed(data) == "");
    std::filesystem::remove(file.path);
    CHECK_THAT(changed(data), Contains(file.path + " was removed: the run still reads the file opened at the start"));
    CHECK(changed(data) == "");
    CHECK(read_all(data) == drawn);
}
