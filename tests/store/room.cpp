// How much a store can still take.
#include <catch2/catch.hpp>

#include <fstream>

#include "stores.h"

namespace orrery {

TEST_CASE("a posix store tells what the file system has left, also before its folder is made", "[checkpoint][room]") {
    const TestStore stores("posix");
    const Scratch scratch("room");
    std::filesystem::create_directories(scratch.path);
    const auto free = static_cast<int64_t>(std::filesystem::space(scratch.path).available);
    const int64_t told = stores.open((scratch.path / "run" / "checkpoints").string())->free_bytes();
    CHECK_FALSE(std::filesystem::exists(scratch.path / "run"));
    CHECK(told > free / 2);  // others write meanwhile
    CHECK(told < free * 2);
    CHECK(stores.open("/proc/self/no such folder")->free_bytes() == 0);
}

TEST_CASE("a store that has no limit of its own says nothing of room", "[checkpoint][room]") {
    CHECK(TestStore("memory").open("room")->free_bytes() == -1);
}

TEST_CASE("a removal that is cut off leaves no half of a step, and not less of what was linked", "[checkpoint][room]") {
    namespace fs = std::filesystem;
    const TestStore stores("posix");
    const Scratch scratch("cut_removal");
    const auto store = stores.open(scratch.path);
    const auto commit = [&](int64_t step) {
        store->flush(step);
        store->commit(step, "{}");
    };
    store->put(1, "rank-0", bytes_of_text("twelve bytes"));
    commit(1);
    store->link(2, "rank-0", 1, "rank-0");
    commit(2);
    // As remove leaves it: renamed first, then its files go, one after the other.
    const fs::path rubbish = scratch.path / "step-00000001.removed";
    fs::rename(scratch.path / "step-00000001", rubbish);
    const bool some_are_gone = GENERATE(false, true);
    if (some_are_gone) fs::remove(rubbish / "rank-0");
    CHECK(store->steps() == std::vector<int64_t>{2});
    CHECK(store->size(1, "rank-0") == -1);
    CHECK(text_at(*store, 2, "rank-0", 0, 12) == "twelve bytes");
    store->put(3, "rank-0", bytes_of_text("more"));
    commit(3);  // finds the rubbish
    CHECK_FALSE(fs::exists(rubbish));
    CHECK(store->steps() == std::vector<int64_t>{3, 2});
    CHECK(text_at(*store, 2, "rank-0", 0, 12) == "twelve bytes");
}

}  // namespace orrery
