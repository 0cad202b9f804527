// What is read of files of ids: pairs with index and mask, llm.c's, headerless ones; and what is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "lua/fake_host.h"
#include "run/data/data.h"
#include "run/data/token_pair.h"
#include "run/evaluate/text_windows.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

struct Folder {
    std::filesystem::path path = in_build("run_token_files");
    Folder() {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string name(const std::string& of) const { return (path / of).string(); }
    template <class T>
    std::string write(const std::string& of, const std::vector<T>& numbers) const {
        std::ofstream(name(of), std::ios::binary)
            .write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size() * sizeof(T)));
        return name(of);
    }
    /// Puts a number at a byte of a file.
    template <class T>
    void put(const std::string& of, int64_t at, T value) const {
        std::fstream file(name(of), std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(at);
        file.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
};

DataSpec tokens_of(const std::string& path, int64_t sequence = 4,
                   const std::vector<std::pair<std::string, int64_t>>& more = {}) {
    Config options("o.data.tokens");
    options.set("path", {path, {}});
    options.set("seq", {sequence, {}});
    for (const auto& [key, value] : more) options.set(key, {value, {"", "script.lua", 3}});
    DataSpec spec;
    spec.source = built_data("tokens", options, {"", "script.lua", 3});
    spec.validation = 0;
    spec.origin = {"", "script.lua", 3};
    return spec;
}

/// Tokens, or targets, of a sample by its number.
std::vector<int32_t> sample(const Dataset& data, size_t array, int64_t number, int64_t first = 0, int64_t count = 4) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    data.source().read(array, {number, 0, 0}, {first}, {ids.data(), DType::i32, {count}});
    return ids;
}

std::string refusal(const DataSpec& spec) {
    try {
        const Dataset data(spec);
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "nothing was refused";
}

using Ids = std::vector<int32_t>;

/// Three documents of 3, 0 and 7 tokens; of the first one 2, of the last one 1 are no targets.
void write_pair(const Folder& folder, int token_bytes, bool mask) {
    TokenPair pair(folder.name("a"), token_bytes, mask);
    pair.add(Ids{7, 65000, 1}, 2);
    pair.add(Ids{});
    pair.add(Ids{10, 11, 12, 13, 14, 15, 16}, 1);
    pair.finish();
}

}  // namespace

TEST_CASE("a pair is read by its index, and targets that its mask ignores are -1") {
    const Folder folder;
    for (const int width : {2, 4}) {
        write_pair(folder, width, true);
        const Dataset data(tokens_of(folder.name("a.bin")));
        CHECK(data.samples(Split::train) == 2);
        CHECK(sample(data, 0, 0) == Ids{7, 65000, 1, 10});
        CHECK(sample(data, 1, 0) == Ids{-1, 1, -1, 11});  // tokens 0, 1 and 3 are marked
        CHECK(sample(data, 0, 1) == Ids{11, 12, 13, 14});
        CHECK(sample(data, 1, 1) == Ids{12, 13, 14, 15});
        CHECK(sample(data, 1, 0, 2, 2) == Ids{-1, 11});
        CHECK_THAT(data.source().where({1}),
                   Contains("a.bin, byte " + std::to_string(4 * width) + ": sample 1, token 4 in document 2"));
        CHECK_THAT(data.source().where({0}), Contains("token 0 in document 0"));
    }
    const std::string masked = Dataset(tokens_of(folder.name("a.bin"))).digest();
    write_pair(folder, 4, false);  // removes the mask
    CHECK_FALSE(std::filesystem::exists(folder.name("a.mask")));
    const Dataset data(tokens_of(folder.name("a.bin")));
    CHECK(sample(data, 1, 0) == Ids{65000, 1, 10, 11});
    CHECK(masked.starts_with(data.digest() + "-"));
}

TEST_CASE("a pair that is cut, damaged or another's is refused with file and byte") {
    const Folder folder;
    const auto now = [&] { return refusal(tokens_of(folder.name("a.bin"))); };
    const auto fresh = [&](bool mask = true) { write_pair(folder, 2, mask); };
    fresh();
    std::filesystem::resize_file(folder.name("a.idx"), 20);
    CHECK_THAT(now(), Contains("script.lua:3: data file") &&
                          Contains("a.idx, byte 20: it is truncated here, in the 34 bytes"));
    fresh();
    std::filesystem::resize_file(folder.name("a.idx"), 100);
    CHECK_THAT(now(), Contains("a.idx, byte 100: it is truncated here; its header says 3 sequences and 4 ends"));
    fresh();
    std::ofstream(folder.name("a.idx"), std::ios::app) << "more";
    CHECK_THAT(now(), Contains("a.idx, byte 102: 4 bytes follow its end"));
    fresh();
    std::ofstream(folder.name("a.idx"), std::ios::app) << "abc";  // a mode for each sequence
    CHECK_THAT(now(), Contains("a.idx, byte 102: it has modes of sequences"));
    fresh();
    folder.put<char>("a.idx", 0, 'T');
    CHECK_THAT(now(), Contains("a.idx, byte 0: it is not a Megatron index") && Contains("tokenize"));
    fresh();
    folder.put<uint64_t>("a.idx", 9, 2);
    CHECK_THAT(now(), Contains("a.idx, byte 9: it is of version 2, supported is 1"));
    constexpr const char* names[] = {"uint8", "int8", "int16", "", "int64", "float64", "float32"};
    for (const uint8_t code : {1, 2, 3, 5, 6, 7}) {
        folder.put<uint64_t>("a.idx", 9, 1);
        folder.put<uint8_t>("a.idx", 17, code);
        CHECK_THAT(now(), Contains("a.idx, byte 17: its tokens are of type " + std::to_string(code) + ", " +
                                   names[code - 1] + "; supported are 4, int32, and 8, uint16"));
    }
    fresh();
    folder.put<uint64_t>("a.idx", 18, UINT64_MAX);
    CHECK_THAT(now(),
               Contains("a.idx, byte 102: it is truncated here; its header says 18446744073709551615 sequences"));
    fresh();
    std::filesystem::resize_file(folder.name("a.bin"), 18);
    CHECK_THAT(now(), Contains("a.idx, byte 62: the last sequence is 7 tokens of 2 bytes from byte 6 on") &&
                          Contains("a.bin has 18 bytes: it is truncated, or of another index"));
    fresh();
    folder.put<int64_t>("a.idx", 54, 4);
    CHECK_THAT(now(), Contains("a.idx, byte 54: sequence 1 begins at byte 4, where those before it end at 6"));
    fresh();
    folder.put<int64_t>("a.idx", 94, 2);
    CHECK_THAT(now(), Contains("a.idx, byte 94: the last document does not end with the last sequence"));
    fresh();
    std::filesystem::resize_file(folder.name("a.mask"), 1);
    CHECK_THAT(now(), Contains("a.mask, byte 1: it is truncated here: one bit a token needs 2 bytes"));
    std::filesystem::resize_file(folder.name("a.mask"), 3);
    CHECK_THAT(now(), Contains("a.mask, byte 2: its end is expected here, it has 3 bytes"));
    fresh();
    std::filesystem::remove(folder.name("a.idx"));
    CHECK_THAT(now(), Contains("a.mask beside it, and no") && Contains("the three belong together"));
    fresh();
    CHECK_THAT(refusal(tokens_of(folder.name("a.bin"), 4, {{"token_bytes", 4}})),
               Contains("token_bytes is 4, its header or index says 2"));
    CHECK_THAT(refusal(tokens_of(folder.name("a.bin"), 4, {{"vocab", 65000}})),
               Contains("token 1 has id 65000, at byte 2; the model's vocabulary is 65000"));
    fresh();
    CHECK(refusal(tokens_of(folder.name("a.bin"))) == "nothing was refused");
}

TEST_CASE("llm.c's files are read behind their header, and refused where it is not theirs") {
    const Folder folder;
    std::vector<uint16_t> ids(512 + 9);
    std::iota(ids.begin() + 512, ids.end(), uint16_t{500});
    const int32_t header[3] = {20240520, 1, 9};
    std::memcpy(ids.data(), header, sizeof header);
    const std::string path = folder.write("gpt2.bin", ids);
    const Dataset data(tokens_of(path));
    CHECK(data.samples(Split::train) == 2);
    CHECK(sample(data, 0, 1) == Ids{504, 505, 506, 507});
    CHECK(sample(data, 1, 1) == Ids{505, 506, 507, 508});
    CHECK_THAT(data.source().where({1}), Contains("gpt2.bin, byte 1032: sample 1, token 4") && !Contains("document"));

    std::vector<uint32_t> wide(256 + 9);
    std::iota(wide.begin() + 256, wide.end(), 128000u);
    const uint32_t of_llama[3] = {20240801, 7, 9};
    std::memcpy(wide.data(), of_llama, sizeof of_llama);
    CHECK(sample(Dataset(tokens_of(folder.write("llama.bin", wide))), 0, 1) == Ids{128004, 128005, 128006, 128007});
    wide[1] = 6;
    CHECK_THAT(refusal(tokens_of(folder.write("older.bin", wide))),
               Contains("older.bin, byte 4: it has llm.c's header of version 6, supported is 7 of magic 20240801"));

    folder.put<int32_t>("gpt2.bin", 8, 10);
    CHECK_THAT(refusal(tokens_of(path)),
               Contains("gpt2.bin, byte 1042: llm.c's header says 10 tokens of 2 bytes, which "
                        "end at byte 1044; the file has 1042"));
    folder.put<int32_t>("gpt2.bin", 8, -1);
    CHECK_THAT(refusal(tokens_of(path)), Contains("llm.c's header says -1 tokens"));
    folder.put<int32_t>("gpt2.bin", 4, 1 << 20);  // no version: ids of another file
    CHECK(sample(Dataset(tokens_of(path)), 0, 128) == Ids{500, 501, 502, 503});
}

TEST_CASE("of a file above 256 MiB evenly spread ids are looked at when it is opened, and all that are read") {
    const Folder folder;
    const std::string path = folder.write("large.bin", std::vector<uint16_t>{1, 2, 3, 4, 5});
    std::filesystem::resize_file(path, int64_t{300} << 20);  // the rest is a hole
    const int64_t tokens = int64_t{150} << 20;
    folder.put<uint16_t>("large.bin", (tokens - 1) * 2, 9);
    CHECK_THAT(refusal(tokens_of(path, 4, {{"vocab", 9}})),
               Contains("token 157286399 has id 9, at byte 314572798; the model's vocabulary is 9"));
    folder.put<uint16_t>("large.bin", (tokens - 1) * 2, 8);
    folder.put<uint16_t>("large.bin", 200'000, 9);  // between two pieces
    const Dataset data(tokens_of(path, 4, {{"vocab", 9}}));
    CHECK(sample(data, 0, 24'998) == Ids{0, 0, 0, 0});
    CHECK_THROWS_WITH(sample(data, 0, 25'000), Contains("token 100000 has id 9, at byte 200000"));
}

TEST_CASE("what is scored is read as what is trained on: header, index, mask, lengths") {
    const Folder folder;
    const auto read = [&](const std::string& name, int64_t most = 1000, int64_t width = 2) {
        const auto source = [&](int64_t sequence) {
            return tokens_of(folder.name(name), sequence, {{"token_bytes", width}}).source;
        };
        return read_token_file(source, 65001, most);
    };
    write_pair(folder, 2, true);
    const Ids all = {7, 65000, 1, 10, 11, 12, 13, 14, 15, 16};
    ScoredIds pair = read("a.bin");
    CHECK(pair.ids == all);
    CHECK(pair.ignored == std::vector<bool>{false, true, false, true, false, false, false, false, false, false});
    folder.put<char>("a.mask", 1, 2);  // the last one
    pair = read("a.bin");
    CHECK(pair.ids.back() == 0);
    CHECK(pair.ignored.back());
    CHECK_THROWS_WITH(read("a.bin", 9),
                      Contains("a.bin has 10 tokens, the maximum to evaluate is 9") && Contains("split it"));
    std::filesystem::remove(folder.name("a.mask"));
    CHECK(read("a.bin").ignored.empty());
    std::filesystem::resize_file(folder.name("a.bin"), 18);
    CHECK_THROWS_WITH(read("a.bin"), Contains("it is truncated, or of another index"));

    std::vector<uint16_t> ids(512 + 70'000);  // more than are read at once
    std::iota(ids.begin() + 512, ids.begin() + 512 + 65'000, uint16_t{0});
    const int32_t header[3] = {20240520, 1, 70'000};
    std::memcpy(ids.data(), header, sizeof header);
    folder.write("gpt2.bin", ids);
    CHECK(read("gpt2.bin", 70'000).ids == Ids(ids.begin() + 512, ids.end()));
    folder.write("plain.bin", std::vector<uint16_t>{1, 2, 3});
    CHECK(read("plain.bin").ids == Ids{1, 2, 3});
    CHECK_THROWS_WITH(read("plain.bin", 1000, 8), Contains("token_bytes is 8, expected 2 or 4"));
}

TEST_CASE("ids of another width or byte order than the default are refused where nothing says the width") {
    const Folder folder;
    std::vector<int32_t> ids(200);
    std::iota(ids.begin(), ids.end(), 1);
    const auto refused = [&](const std::string& path, std::vector<std::pair<std::string, int64_t>> more = {}) {
        more.emplace_back("vocab", 70'000);
        return refusal(tokens_of(path, 4, more));
    };
    const std::string none = "nothing was refused";
    const auto swapped = [](auto numbers) {
        for (auto& number : numbers) {
            auto* const bytes = reinterpret_cast<unsigned char*>(&number);
            std::reverse(bytes, bytes + sizeof number);
        }
        return numbers;
    };

    SECTION("4 bytes") {
        const std::string path = folder.write("wide.bin", ids);
        CHECK_THAT(refused(path), Contains("every second one is below 2, as in ids of 4 bytes") &&
                                      Contains("ids of 2 bytes: 1, 0, 2, 0, 3, 0, 4, 0, ...") &&
                                      Contains("ids of 4 bytes: 1, 2, 3, 4, 5, 6, 7, 8, ...") &&
                                      Contains("set data.token_bytes = 4"));
        CHECK_THAT(refusal(tokens_of(path, 4, {{"vocab", 300}})), Contains("every second one is 0"));
        CHECK_THAT(refusal(tokens_of(path)), Contains("as in ids of 4 bytes"));  // of a vocabulary that nothing says
        CHECK(refused(path, {{"token_bytes", 4}}) == none);
        CHECK(refused(path, {{"token_bytes", 2}}) == none);
        std::filesystem::resize_file(path, 798);  // cut in the middle of an id
        CHECK_THAT(refused(path), Contains("as in ids of 4 bytes"));
    }
    SECTION("mostly padding, and a high half that is not 0") {
        std::vector<int32_t> padded(4000, 0);
        for (size_t i = 0; i < 16; ++i) padded[200 * i] = static_cast<int32_t>(65'537 + i);
        padded[1] = 7;
        padded[2] = 9;
        CHECK_THAT(refused(folder.write("padded.bin", padded)), Contains("as in ids of 4 bytes"));
    }
    SECTION("8 bytes, or big-endian") {
        CHECK_THAT(refused(folder.write("long.bin", std::vector<int64_t>(ids.begin(), ids.end()))),
                   Contains("ids of 8 bytes: 1, 2, 3, ") && Contains("8 bytes are not supported"));
        CHECK_THAT(refused(folder.write("big.bin", swapped(ids))),
                   Contains("ids of 4 bytes, big-endian: 1, 2, 3, ") && Contains("write the ids as little-endian"));
    }
    SECTION("what ids of 2 bytes may be") {
        const auto genuine = [&](const std::vector<uint16_t>& numbers) {
            return refused(folder.write("a.bin", numbers));
        };
        CHECK(genuine(std::vector<uint16_t>(ids.begin(), ids.end())) == none);
        CHECK(genuine(std::vector<uint16_t>(200, 0)) == none);
        CHECK(genuine({9, 0, 8, 0, 7, 0, 6, 0, 5}) == none);  // as much by chance
        std::vector<uint16_t> sparse(4000, 0);                // 40 ids among zeros, at even and odd places
        for (size_t i = 0; i < 40; ++i) sparse[97 * i] = 300;
        CHECK(genuine(sparse) == none);
        std::vector<uint16_t> last(200, 0);  // one number alone says otherwise
        for (size_t i = 0; i < 200; i += 2) last[i] = 40;
        last[199] = 41;
        CHECK(genuine(last) == none);
    }
    SECTION("what is stated and does not fit says what would") {
        const std::vector<uint16_t> narrow(ids.begin(), ids.end());
        CHECK_THAT(refused(folder.write("narrow.bin", narrow), {{"token_bytes", 4}}),
                   Contains("token 0 has id 131073") && Contains("as ids of 2 bytes: 1, 2, 3, ") &&
                       Contains("set data.token_bytes = 2"));
        CHECK_THAT(refusal(tokens_of(folder.write("swapped.bin", swapped(narrow)), 4, {{"vocab", 201}})),
                   Contains("has id 256") && Contains("as ids of 2 bytes, big-endian: 1, 2, 3, "));
        std::ofstream(folder.name("bytes.bin")) << "bytes that are text, of which two make no id below 256";
        CHECK_THAT(refusal(tokens_of(folder.name("bytes.bin"), 4, {{"vocab", 256}})),
                   Contains("as ids of 1 byte: 98, 121, ") && Contains("a name that does not end in .bin"));
        std::ofstream(folder.name("saved.bin")) << "\x93NUMPY and so on";
        CHECK_THAT(refused(folder.name("saved.bin")), Contains("is a NumPy .npy file"));
    }
}
