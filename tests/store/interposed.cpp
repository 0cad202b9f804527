// What others do to the posix store's folder between two of its system calls, a file system that runs out of links, and
// folders that can be neither renamed nor removed: these calls of the store's plugin come here first.
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
#include <set>
#include <utility>

#include "stores.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// Called once, at the call that it is for.
struct Hooks {
    std::function<void()> before_rename, after_marker_went, before_sync;
    std::function<void(int)> when_written;
    std::function<int(const std::string&)> rename_code, unlink_code;  ///< by the name: 0, or why the call fails
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
    if (hooked && hooks.rename_code)
        if (const int code = hooks.rename_code(from); code != 0) return errno = code, -1;
    return static_cast<int>(::syscall(SYS_renameat2, from_at, from, to_at, to, flags));
}

__attribute__((visibility("default"))) int linkat(int from_at, const char* from, int to_at, const char* to,
                                                  int flags) noexcept {
    if (hooked && !hooks.links) return errno = EMLINK, -1;
    return static_cast<int>(::syscall(SYS_linkat, from_at, from, to_at, to, flags));
}

__attribute__((visibility("default"))) int unlinkat(int at, const char* name, int flags) noexcept {
    if (hooked && hooks.unlink_code)
        if (const int code = hooks.unlink_code(name); code != 0) return errno = code, -1;
    const auto done = static_cast<int>(::syscall(SYS_unlinkat, at, name, flags));
    if (hooked && std::strcmp(name, ".orrery-checkpoint") == 0)
        if (const auto hook = std::exchange(hooks.after_marker_went, {})) hook();
    return done;
}

__attribute__((visibility("default"))) int fsync(int file) {
    if (hooked && hooks.before_sync) hooks.before_sync();
    return static_cast<int>(::syscall(SYS_fsync, file));
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
    hooks.before_rename = [] { hooks.lists = false; };
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
    CHECK_THROWS_WITH(store->link(3, "a", 1, "a"),
                      Contains("a is a copy of") && Contains("differs from it when read back"));
    CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
}

namespace {

std::string step_name(int64_t step) {
    const std::string number = std::to_string(step);
    return "step-" + std::string(8 - number.size(), '0') + number;
}

/// The folders that are there now are in the lower layer of an overlay: files in them can be renamed, they cannot.
void put_below(const fs::path& place, int code = EXDEV) {
    std::set<std::string> below;
    for (const auto& entry : fs::directory_iterator(place))
        if (entry.is_directory()) below.insert(entry.path().filename());
    hooks.rename_code = [=](const std::string& name) {
        return below.count(name) > 0 && fs::is_directory(place / name) ? code : 0;
    };
}

std::set<std::string> names_in(const fs::path& place) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(place)) names.insert(entry.path().filename());
    return names;
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("a step in a lower layer is removed where it is, its manifest first") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_below");
    const auto store = stores.open(scratch.path), other = stores.open(scratch.path);
    for (const int64_t step : {1, 2, 3}) commit(*store, step);
    put_below(scratch.path);
    store->remove(1);
    CHECK(names_in(scratch.path) == Names{"step-00000002", "step-00000003"});

    // A pin that comes right before the manifest goes is found after it.
    hooks.before_rename = [&] { other->pin(2, "for the paper"); };
    CHECK_THROWS_WITH(store->remove(2), Contains("step 2 is pinned, so it stays"));
    CHECK(store->steps() == std::vector<int64_t>{3, 2});
    CHECK(store->manifest(2) == "m");
    store->unpin(2);
    hooks.when_written = [&](int) {
        hooks.when_written = {};
        fs::rename(scratch.path / "step-00000002" / "manifest.json",
                   scratch.path / "step-00000002" / "manifest.json.removed");
    };
    CHECK_THROWS_WITH(other->pin(2, "for the talk"), Contains("step 2 was removed while it was pinned"));

    // The marker is surely gone before the manifest's other name goes: no power cut leaves the marker alone.
    commit(*store, 4);
    put_below(scratch.path);
    std::vector<std::string> calls_made;
    hooks.unlink_code = [&](const std::string& name) { return calls_made.push_back(name), 0; };
    hooks.before_sync = [&] { calls_made.emplace_back("fsync"); };
    store->remove(4);
    hooks.unlink_code = {}, hooks.before_sync = {};
    REQUIRE(calls_made.size() > 4);
    CHECK(std::vector<std::string>(calls_made.end() - 4, calls_made.end()) ==
          std::vector<std::string>{".orrery-checkpoint", "fsync", "manifest.json.removed", "step-00000004"});

    // Cut off after each of its calls: it is no step, is named, and the next commit finishes.
    commit(*store, 4);
    CHECK(names_in(scratch.path) == Names{"step-00000003", "step-00000004"});
    put_below(scratch.path);
    for (int calls = 0; calls < 5; ++calls) {
        const int64_t step = 10 + 10 * calls;
        hooks.rename_code = {};
        commit(*store, step);
        commit(*store, step + 1);
        put_below(scratch.path);
        int left = calls;
        hooks.unlink_code = [&](const std::string& name) {
            if (name.ends_with(".removed") && !fs::exists(scratch.path / step_name(step) / name)) return 0;
            return left-- > 0 ? 0 : EPERM;
        };
        store->remove(step);
        CHECK(store->steps().front() == step + 1);
        CHECK_THROWS_WITH(store->manifest(step), Contains("is not committed"));
        CHECK_THROWS_WITH(store->pin(step, "too late"), Contains("is not committed"));
        if (calls > 0 && calls < 4) {
            REQUIRE(fs::exists(scratch.path / step_name(step)));
            bool named = false;
            for (const Stray& stray : store->strays())
                named = named || (stray.step == -1 && stray.what.starts_with(step_name(step) + " is being removed"));
            if (fs::exists(scratch.path / step_name(step) / "manifest.json.removed")) CHECK(named);
        }
        hooks.unlink_code = {};
        commit(*store, step + 2);
        CHECK_FALSE(fs::exists(scratch.path / step_name(step)));
        CHECK(store->steps().front() == step + 2);
    }
}

TEST_CASE("what cannot be renamed is set aside where it is, and the step is saved in the next place") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_aside_below");
    const auto store = stores.open(scratch.path);
    const fs::path first = scratch.path / "step-00000001", second = scratch.path / "step-00000001.2";
    commit(*store, 1);
    const int code = GENERATE(EXDEV, EPERM, EBUSY, EROFS, EACCES);
    put_below(scratch.path, code);
    CHECK(store->set_aside(1) == first.string() + " (it cannot be renamed: " + std::strerror(code) +
                                     "; its manifest is manifest.json.aside-1 now)");
    CHECK(store->steps().empty());
    for (const Stray& stray : store->strays()) CHECK(stray.step == -1);
    CHECK(stores.open(scratch.path)->set_aside(1).empty());  // it was told before
    for (const char* manifest : {"second", "third"}) {
        store->put(1, "a", bytes_of_text(manifest));
        store->flush(1);
        store->commit(1, manifest);
        CHECK(store->steps() == std::vector<int64_t>{1});
        CHECK(stores.open(scratch.path)->manifest(1) == manifest);
        CHECK(text_at(*store, 1, "a", 0, 5) == std::string(manifest).substr(0, 5));
        CHECK(store->strays().size() == (std::string(manifest) == "second" ? 1 : 2));
        store->put(1, "a", {});
        CHECK_THROWS_WITH(stores.open(scratch.path)->commit(1, "m"), Contains("is committed already"));
        CHECK_THROWS_WITH(store->commit(1, "m"), Contains("is committed already"));
        store->discard(1);
        store->mark(1, "it diverged");
        CHECK(store->mark_of(1) == "it diverged");
        if (std::string(manifest) == "second") CHECK(store->set_aside(1) == second.string() + ".aside-1");
    }
    store->remove(1);
    CHECK(store->steps().empty());
    CHECK(fs::exists(first / "a"));
}

TEST_CASE("what can be changed in no way is hidden by the step that is saved in the next place") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_frozen");
    const auto store = stores.open(scratch.path);
    commit(*store, 1);
    hooks.rename_code = [](const std::string& name) {
        return name == "step-00000001" || name == "manifest.json" ? EPERM : 0;
    };
    CHECK_THAT(store->set_aside(1), Contains("it is left as it is, and a later copy of the step has precedence"));
    store->put(1, "a", bytes_of_text("saved"));
    store->commit(1, "again");
    CHECK(store->steps() == std::vector<int64_t>{1});
    CHECK(stores.open(scratch.path)->manifest(1) == "again");
    CHECK(text_at(*store, 1, "a", 0, 5) == "saved");
}

TEST_CASE("removing a step of a later place shows no older copy again, or names it") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_shown_again");
    const auto store = stores.open(scratch.path);
    const bool frozen = GENERATE(false, true);
    commit(*store, 1);
    hooks.rename_code = [](const std::string& name) {
        return name == "step-00000001" || name == "manifest.json" ? EPERM : 0;
    };
    store->set_aside(1);
    commit(*store, 1);
    REQUIRE(fs::exists(scratch.path / "step-00000001.2"));
    if (!frozen) put_below(scratch.path);
    store->remove(1);
    CHECK_FALSE(fs::exists(scratch.path / "step-00000001.2"));
    CHECK(store->steps() == (frozen ? std::vector<int64_t>{1} : std::vector<int64_t>{}));
    CHECK(fs::exists(scratch.path / "step-00000001" / "manifest.json.aside-1") != frozen);
    CHECK(store->set_aside(2) ==
          (frozen ? (scratch.path / "step-00000001").string() +
                        " (an older copy of step 1, visible again: it can be neither moved nor changed)"
                  : ""));
}

TEST_CASE("a step is found though nothing stands in the places before its own") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_gap");
    const auto store = stores.open(scratch.path);
    for (const int64_t step : {1, 2}) commit(*store, step);
    fs::rename(scratch.path / "step-00000001", scratch.path / "step-00000001.3");
    fs::rename(scratch.path / "step-00000002", scratch.path / "step-00000002.12");
    CHECK(store->steps() == std::vector<int64_t>{2, 1});
    CHECK(store->strays().empty());
    CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
    CHECK_THROWS_WITH(commit(*store, 2), Contains("is committed already"));
    store->discard(2);
    put_below(scratch.path);
    CHECK_THAT(store->set_aside(2), Contains("its manifest is manifest.json.aside-1 now"));
    commit(*store, 2);
    CHECK(names_in(scratch.path) == Names{"step-00000001.3", "step-00000002.12", "step-00000002.13"});
    CHECK(store->steps() == std::vector<int64_t>{2, 1});
}

TEST_CASE("a copy of a step needs no set_aside where removed and set aside ones alone stand") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_copied_below");
    const auto store = stores.open(scratch.path);
    const bool goes = GENERATE(false, true);
    for (const int64_t step : {1, 2}) commit(*store, step);
    put_below(scratch.path);
    store->set_aside(1);
    hooks.unlink_code = [](const std::string& name) { return name == "a" ? EPERM : 0; };
    store->remove(2);
    REQUIRE(fs::exists(scratch.path / "step-00000002" / "manifest.json.removed"));
    if (goes) hooks.unlink_code = {};
    const auto copies = stores.open(scratch.path);
    for (const int64_t step : {2, 1}) commit(*copies, step);
    CHECK(copies->steps() == std::vector<int64_t>{2, 1});
    CHECK(fs::exists(scratch.path / "step-00000001.2" / "manifest.json"));
    CHECK(fs::exists(scratch.path / "step-00000002.2") != goes);
    CHECK_THROWS_WITH(commit(*copies, 1), Contains("is committed already"));
}

TEST_CASE("a removal that fails says why and leaves the step whole", "[retention]") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_unremoved");
    const auto store = stores.open(scratch.path);
    for (const int64_t step : {1, 2}) commit(*store, step);
    for (const int code : {EPERM, EACCES, EROFS, EBUSY, ESTALE, EIO}) {
        hooks.rename_code = [&](const std::string&) { return code; };
        CHECK_THROWS_WITH(store->remove(1), Contains("step-00000001") && Contains(std::strerror(code)));
        CHECK(store->steps() == std::vector<int64_t>{2, 1});
        CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
    }
    hooks.rename_code = {};
    hooks.unlink_code = [](const std::string& name) { return name == "step-00000001.removed" ? ENOTEMPTY : 0; };
    store->remove(1);  // a file that NFS keeps, as it is open elsewhere: it costs space alone
    CHECK(store->steps() == std::vector<int64_t>{2});
}

TEST_CASE("unfinished steps that cannot be renamed hold up no generation and no save") {
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch("posix_partial_below");
    const auto store = stores.open(scratch.path), older = stores.open(scratch.path);
    const int code = GENERATE(EXDEV, EPERM, EROFS);
    REQUIRE(older->claim(1));
    older->act_for(1);
    older->put(5, "a", bytes_of_text("half"));
    const fs::path partial = scratch.path / "step-00000005.g1.partial";
    put_below(scratch.path, code);
    hooks.unlink_code = [=](const std::string& name) { return name.starts_with("generation-") ? code : 0; };
    REQUIRE(store->claim(2));
    CHECK(fs::exists(partial) == (code != EXDEV));  // another reason may end, and the older generation commit it
    store->act_for(2);
    CHECK_THROWS_WITH(older->commit(5, "late"), Contains("belongs to generation 2"));
    hooks.unlink_code = {};
    commit(*store, 5);
    CHECK(text_at(*store, 5, "a", 0, 7) == "weights");
    // A file in it that cannot go: the folder makes way.
    store->put(6, "a", bytes_of_text("half"));
    hooks.unlink_code = [](const std::string& name) { return name == "a" ? EPERM : 0; };
    store->discard(6);
    commit(*store, 6);
    hooks.unlink_code = {};
    commit(*store, 7);
    CHECK(store->steps() == std::vector<int64_t>{7, 6, 5});
    if (code == EXDEV) CHECK(std::distance(fs::directory_iterator(scratch.path), {}) == 5);
}

TEST_CASE("a generation is not taken while another user can commit what an older one writes") {
    if (::geteuid() != 0) return;  // root alone can act as two users
    const Unhooked unhooked;
    const TestStore stores("posix");
    const Scratch scratch(fs::temp_directory_path() / ("orrery_two_users." + std::to_string(::getpid())));
    fs::create_directories(scratch.path);
    fs::permissions(scratch.path, fs::perms::all | fs::perms::sticky_bit);
    const fs::path partial = scratch.path / "step-00000005.g1.partial";
    const auto older = stores.open(scratch.path), store = stores.open(scratch.path);
    REQUIRE(older->claim(1));
    older->act_for(1);
    older->put(5, "a", bytes_of_text("half"));
    constexpr uid_t other = 65534;
    struct Other {
        int done = ::seteuid(other);
        ~Other() { done = ::seteuid(0); }
    };
    {
        const Other user;
        REQUIRE(user.done == 0);
        CHECK_THROWS_WITH(store->claim(2), Contains(partial.string()) && Contains(std::strerror(EPERM)) &&
                                               Contains("or start again as the owner of the folder"));
    }
    // What stops a folder's owner, or root, stops every user, but for a mount.
    int code = EBUSY;
    hooks.rename_code = [&](const std::string& name) { return name.ends_with(".partial") ? code : 0; };
    CHECK_THROWS_WITH(store->claim(3), Contains(std::strerror(EBUSY)));
    code = EPERM;
    CHECK(store->claim(4));
    REQUIRE(::chown(partial.c_str(), other, other) == 0);
    const Other user;
    CHECK(store->claim(5));
}
