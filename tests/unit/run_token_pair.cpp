#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "folders.h"
#include "orrery/error.h"
#include "run/data/token_pair.h"

using namespace orrery;

namespace {

std::string contents(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

template <class T>
std::vector<T> numbers(const std::string& bytes, size_t from, size_t count) {
    std::vector<T> out(count);
    REQUIRE(from + count * sizeof(T) <= bytes.size());
    std::memcpy(out.data(), bytes.data() + from, count * sizeof(T));
    return out;
}

struct Folder {
    std::filesystem::path path = in_build("run_token_pair");
    Folder() {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string name(const char* of) const { return (path / of).string(); }
};

}  // namespace

TEST_CASE("a pair of token files is Megatron's, field by field") {
    const Folder folder;
    for (const int each : {2, 4}) {
        TokenPair pair(folder.name("a"), each, true);
        const std::vector<int32_t> one{7, 65499, 0}, two{}, three{1, 2, 3, 4, 5, 6, 7};
        pair.add(one, 2);
        pair.add(two);
        pair.add(three, 7);
        CHECK_FALSE(std::filesystem::exists(folder.name("a.idx")));  // the second time it is removed below
        pair.finish();
        CHECK(pair.tokens() == 10);
        CHECK(pair.documents() == 3);
        const std::string bin = contents(folder.name("a.bin")), idx = contents(folder.name("a.idx"));
        CHECK(bin.size() == 10 * static_cast<size_t>(each));
        if (each == 2)
            CHECK(numbers<uint16_t>(bin, 0, 4) == std::vector<uint16_t>{7, 65499, 0, 1});
        else
            CHECK(numbers<int32_t>(bin, 0, 4) == std::vector<int32_t>{7, 65499, 0, 1});
        CHECK(idx.substr(0, 9) == std::string("MMIDIDX\0\0", 9));
        CHECK(numbers<uint64_t>(idx, 9, 1)[0] == 1);
        CHECK(idx[17] == (each == 2 ? 8 : 4));
        CHECK(numbers<uint64_t>(idx, 18, 2) == std::vector<uint64_t>{3, 4});
        CHECK(numbers<int32_t>(idx, 34, 3) == std::vector<int32_t>{3, 0, 7});
        CHECK(numbers<int64_t>(idx, 46, 3) == std::vector<int64_t>{0, 3 * each, 3 * each});
        CHECK(numbers<int64_t>(idx, 70, 4) == std::vector<int64_t>{0, 1, 2, 3});
        CHECK(idx.size() == 102);
        CHECK(contents(folder.name("a.mask")) == std::string("\xfb\x03"));  // tokens 0, 1 and 3 to 9
        std::filesystem::remove(folder.name("a.idx"));
    }
}

TEST_CASE("a pair of token files that was not finished leaves nothing, and what was there") {
    const Folder folder;
    std::ofstream(folder.name("a.bin")) << "kept";
    {
        TokenPair pair(folder.name("a"), 2, true);
        pair.add(std::vector<int32_t>{1, 2});
    }
    CHECK(contents(folder.name("a.bin")) == "kept");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
    CHECK_THROWS_AS(TokenPair(folder.name("no/such"), 2, false), Error);
}
