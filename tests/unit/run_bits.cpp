// What is said where ranks, or a checkpoint and the run that resumes from it, have different code or threads.
#include "run/bits.h"

#include <catch2/catch.hpp>

#include "base/json.h"

using namespace orrery;

namespace {

BitSources usual() {
    return {{"threads_per_rank", "2"},
            {"instructions", "avx2"},
            {"liborrery", "00112233445566778899", "/o/liborrery.so"},
            {"device/cpu", "aabbccddeeff00112233", "/o/liborrery_device_cpu.so"}};
}

/// `usual` with another value under a name.
BitSources with(const std::string& name, const std::string& value) {
    BitSources bits = usual();
    for (BitSource& source : bits)
        if (source.name == name) source.value = value;
    return bits;
}

}  // namespace

TEST_CASE("bits: ranks that have the same say nothing, others are named with host and file") {
    const RankBits same{"a", usual()};
    CHECK(bits_between({same, same, {"b", usual()}}).empty());
    BitSources elsewhere = usual();
    elsewhere[3].file = "/p/liborrery_device_cpu.so";
    CHECK(bits_between({same, {"b", elsewhere}}).empty());  // where a file is counts for nothing
    elsewhere[3].value = "ffbbccddeeff00112233";
    const RankBits other{"b", elsewhere}, narrow{"c", with("instructions", "portable")};
    CHECK(bits_between({same, other, same, other, narrow}) ==
          std::vector<std::string>{
              "ranks 1, 3 on host b and rank 0 on host a may compute different bits: "
              "/p/liborrery_device_cpu.so: digest ffbbccddeeff, rank 0 has aabbccddeeff",
              "rank 4 on host c and rank 0 on host a may compute different bits: instructions: portable, rank 0 has "
              "avx2"});
    CHECK(decode_bits(encode(other)).bits[3].file == elsewhere[3].file);
    CHECK(bits_between({same, decode_bits(encode(other))}).size() == 1);
}

TEST_CASE("bits: of many hosts that differ eight are named") {
    std::vector<RankBits> ranks{{"a", usual()}};
    for (int i = 0; i < 11; ++i) ranks.push_back({"b" + std::to_string(i), with("threads_per_rank", "1")});
    const std::vector<std::string> lines = bits_between(ranks);
    REQUIRE(lines.size() == 9);
    CHECK(lines.back() == "and 3 more of this kind");
}

TEST_CASE("bits: a rank that lacks what rank 0 has, or has more") {
    BitSources less = usual(), none = usual();
    less.pop_back();
    none.back().value = "";
    const std::string begin = "rank 1 on host b and rank 0 on host a may compute different bits: ";
    CHECK(bits_between({{"a", usual()}, {"b", less}}) ==
          std::vector<std::string>{begin + "device/cpu: none, rank 0 has aabbccddeeff"});
    CHECK(bits_between({{"a", less}, {"b", usual()}}) ==
          std::vector<std::string>{begin + "/o/liborrery_device_cpu.so: digest aabbccddeeff, rank 0 has none"});
    CHECK(bits_between({{"a", none}, {"b", usual()}}).size() == 1);
}

TEST_CASE("bits: a run that resumes with the same says nothing, otherwise what was and is") {
    const auto saved = saved_bits(to_json(usual()));
    CHECK(bits_since(saved, {"a", usual()}, 10).empty());
    CHECK(bits_since(saved, {"a", with("threads_per_rank", "1")}, 10) ==
          "threads_per_rank was 2 and is 1: the losses after step 10 will differ in the last bits");
    CHECK(bits_since(saved, {"a", with("device/cpu", "ffbbccddeeff00112233")}, 7) ==
          "the code of /o/liborrery_device_cpu.so on host a was aabbccddeeff and is ffbbccddeeff: the losses after "
          "step 7 may differ in the last bits");
    BitSources more = usual();
    more.push_back({"cuDNN", "9"});
    CHECK(bits_since(saved, {"a", more}, 10).empty());
    CHECK(bits_since(saved_bits(nullptr), {"a", usual()}, 10) ==
          "the checkpoint of step 10 does not record the threads and the code version that made it: the losses after "
          "it may "
          "differ in the last bits");
    BitSources many;
    for (int i = 0; i < 6; ++i) many.push_back({"x" + std::to_string(i), "1"});
    BitSources others = many;
    for (BitSource& source : others) source.value = "0";
    CHECK(bits_since(others, {"a", many}, 3) ==
          "x0 was 0 and is 1; x1 was 0 and is 1; x2 was 0 and is 1; x3 was 0 and is 1; 2 more: the losses after step 3 "
          "may differ in the last bits");
}

TEST_CASE("bits: what a device says of its arithmetic") {
    const BitSources bits = bit_sources_of("processor=abacus = fast\ninstructions=avx2\n\n");
    REQUIRE(bits.size() == 2);
    CHECK(bits[0].name == "processor");
    CHECK(bits[0].value == "abacus = fast");
    CHECK(bits[1].value == "avx2");
    CHECK(bit_sources_of("").empty());
}
