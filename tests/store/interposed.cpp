// What others do to the posix store's folder between two of its system calls, and a file system that runs out of links:
// these calls of the store's plugin come here first.
#include <dirent.h>
#include <dlfcn.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

#include "stores.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// Called once, at the call that it is for.
struct Hooks {
    std::function<void()> before_rename, after_marker_went;
    std::function<void(int)> when_written;
    bool links = true, lists = true;
    int64_t free = -1;  ///< of the file system; -1: as it is
};
Hooks hooks;
std::atomic<bool> hooked{false};  ///< by the test at hand: others call from many threads at once

struct Unhooked {
    Unhooked() { hooked = true; }
    ~Unhooked() {
        hooked = false;
        hooks = {};
    }
};

void commit(CheckpointStore& store, int64_t step) {
    store.put(step, "a", bytes_of_text("weights"));
    store.flush(step);
    store.commit(step, "m");
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int renameat2(int from_at, const char* from, int to_at, const char* to,
                                                     unsigned flags) noexcept {
    if (hooked)
        if (const auto hook = std::exchange(hooks.before_rename, {})) hook();
    return static_cast<int>(::syscall(SYS_renameat2, from_at, from, to_at, to, flags));
}

__attribute__((visibility("default"))) int linkat(int from_at, const char* from, int to_at, const char* to,
                                                  int flags) noexcept {
    if (hooked && !hooks.links) return errno = EMLINK, -1;
    return static_cast<int>(::syscall(SYS_linkat, from_at, from, to_at, to, flags));
}

__attribute__((visibility("default"))) int unlinkat(int at, const char* name, int flags) noexcept {
    const auto done = static_cast<int>(::syscall(SYS_unlinkat, at, name, flags));
    if (hooked && std::strcmp(name, ".orrery-checkpoint") == 0)
        if (const auto hook = std::exchange(hooks.after_marker_went, {})) hook();
    return done;
}

__attribute__((visibility("default"))) int posix_fadvise(int file, off_t, off_t, int) noexcept {
    if (hooked && hooks.when_written) hooks.when_written(file);
    return 0;
}
}

extern "C" {

__attribute__((visibility("default"))) DIR* fdopendir(int file) {
    if (hooked && !std::exchange(hooks.lists, true)) return errno = EMFILE, nullptr;
    static const auto real = reinterpret_cast<DIR* (*)(int)>(::dlsym(RTLD_NEXT, "fdopendir"));
    return real(file);
}

__attribute__((visibility("default"))) int statvfs(const char* path, struct statvfs* out) noexcept {
    static const auto real = reinterpret_cast<int (*)(const char*, struct statvfs*)>(::dlsym(RTLD_NEXT, "statvfs"));
    const int done = real(path, out);
    if (hooked && hooks.free >= 0) out->f_frsize = 1, out->f_bavail = static_cast<fsblkcnt_t>(hooks.free);
    return done;
}
}

TEST_CASE("a step that is committed does not fail for what is left to clean") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_unclean");
    const auto store = stores.open(scratch.path);
    store->put(1, "a", bytes_of_text("unfinished"));
    store->put(2, "a", bytes_of_text("weights"));
    store->flush(2);
    hooks.lists = false;
    store->commit(2, "m");
    CHECK(hooks.lists);  // it was asked for, and failed
    CHECK(fs::exists(scratch.path / "step-00000001.partial"));
    CHECK(store->steps() == std::vector<int64_t>{2});
}

TEST_CASE("what unfinished saves and removals have left counts as free", "[room]") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_room_left");
    const auto store = stores.open(scratch.path), older = stores.open(scratch.path);
    const std::string mib(size_t{1} << 20, 'x');
    store->put(1, "a", bytes_of_text(mib));
    store->flush(1);
    store->commit(1, "m");
    hooks.free = int64_t{5} << 20;
    const auto left = [&] { return (store->free_bytes() - hooks.free + (1 << 19)) >> 20; };  // but for some KiB
    CHECK(left() == 0);
    store->put(2, "a", bytes_of_text(mib));
    CHECK(left() == 1);
    store->link(2, "b", 1, "a");  // goes with nothing
    CHECK(left() == 1);
    REQUIRE(older->claim(3));
    older->act_for(3);
    older->put(3, "a", bytes_of_text(mib));
    CHECK(left() == 2);
    fs::create_directories(scratch.path / "step-00000009.partial");
    std::ofstream(scratch.path / "step-00000009.partial" / "thesis.txt") << mib;  // not ours to drop
    CHECK(left() == 2);
    fs::rename(scratch.path / "step-00000002.partial", scratch.path / "step-00000002.removed");
    CHECK(left() == 2);
}

TEST_CASE("a file that appears while a step is erased makes neither the removal nor the next save fail") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_appears");
    const auto store = stores.open(scratch.path);
    const fs::path rubbish = scratch.path / "step-00000001.removed";
    for (const int64_t step : {1, 2}) commit(*store, step);
    hooks.after_marker_went = [&] { std::ofstream(rubbish / ".pinned.txt.new") << "for the paper"; };
    store->remove(1);
    CHECK_FALSE(hooks.after_marker_went);
    CHECK(fs::exists(rubbish / ".pinned.txt.new"));
    CHECK(store->steps() == std::vector<int64_t>{2});
    commit(*store, 3);
    CHECK_FALSE(fs::exists(rubbish));
}

TEST_CASE("a pin that is confirmed while its step is removed keeps it, one that comes later is refused") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_pinned_last");
    const auto store = stores.open(scratch.path), other = stores.open(scratch.path);
    commit(*store, 1);
    hooks.before_rename = [&] { other->pin(1, "for the paper"); };
    CHECK_THROWS_WITH(store->remove(1), Contains("step 1 is pinned, so it stays"));
    CHECK(store->steps() == std::vector<int64_t>{1});
    CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
    CHECK(store->pin_of(1) == "for the paper");
    CHECK(std::distance(fs::directory_iterator(scratch.path), {}) == 1);
    CHECK_THROWS_WITH(store->remove(1), Contains("is pinned"));
    store->unpin(1);
    // The file of the pin is written, but has not got its name, when the step goes.
    hooks.when_written = [&](int) {
        hooks.when_written = {};
        fs::rename(scratch.path / "step-00000001", scratch.path / "step-00000001.removed");
    };
    CHECK_THROWS_WITH(other->pin(1, "for the talk"), Contains("step 1 was removed while it was pinned"));
    commit(*store, 2);
    CHECK(std::distance(fs::directory_iterator(scratch.path), {}) == 1);
}

TEST_CASE("a link that becomes a copy is read back") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_copied");
    const auto store = stores.open(scratch.path);
    commit(*store, 1);
    CHECK(store->contract().links);
    hooks.links = false;  // this file has no more to give
    store->link(2, "a", 1, "a");
    store->flush(2);
    store->commit(2, "m");
    CHECK(text_at(*store, 2, "a", 0, 7) == "weights");
    hooks.when_written = [](int file) { REQUIRE(::pwrite(file, "W", 1, 0) == 1); };  // the disk loses a bit
    CHECK_THROWS_WITH(store->link(3, "a", 1, "a"), Contains("a is a copy of") && Contains("cannot be read back"));
    CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
}
