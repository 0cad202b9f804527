// What the posix store does with a file system that is not as it left it.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "stores.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {
void commit(CheckpointStore& store, int64_t step) {
    store.put(step, "a", bytes_of_text("weights"));
    store.flush(step);
    store.commit(step, "m");
}
}  // namespace

TEST_CASE("stores of this project promise what their manuals say") {
    using Contract = StoreContract;
    const auto promised = [](const char* name, const fs::path& place) {
        return TestStore(name).open(place)->contract().text();
    };
    const Scratch scratch("promises");
    CHECK(promised("memory", scratch.path) == "survives nothing, of one process, links, fences");
    CHECK(promised("tape", scratch.path) == "survives nothing, of one process, copies, fences nobody");
    const TestStore stores("posix");
    const auto store = stores.open(scratch.path);
    CHECK(store->contract().survives != Contract::Survives::nothing);
    CHECK(store->contract().shared != Contract::Shared::process);
    CHECK(store->contract().fences);
    CHECK(store->is_folder());
    commit(*store, 1);
    store->link(2, "b", 1, "a");
    store->commit(2, "m");
    if (store->contract().links) CHECK(fs::hard_link_count(scratch.path / "step-00000002" / "b") == 2);
}

TEST_CASE("the posix store refuses names that leave its folder") {
    const TestStore stores("posix");
    const Scratch scratch("posix_names");
    const auto store = stores.open(scratch.path);
    for (const char* key : {"../a", "a/b", "", ".orrery-checkpoint", "manifest.json", "suspect.txt", "a b"}) {
        CHECK_THROWS_WITH(store->put(1, key, {}), Contains("cannot be the name of an object"));
        CHECK_THROWS_WITH(store->size(1, key), Contains("cannot be the name of an object"));
    }
    CHECK_FALSE(fs::exists(scratch.path));
    Config config;
    CHECK_THROWS_WITH(stores.registry.store("posix", {})(config, ""), Contains("needs a folder"));
}

TEST_CASE("the posix store follows no symbolic link") {
    const TestStore stores("posix");
    const Scratch scratch("posix_links");
    const auto store = stores.open(scratch.path / "ckpt");
    commit(*store, 1);
    std::ofstream(scratch.path / "secret") << "secret!";
    const fs::path step = scratch.path / "ckpt" / "step-00000001";
    fs::create_symlink(scratch.path / "secret", step / "b");
    CHECK(store->size(1, "b") == -1);
    CHECK_THROWS_WITH(text_at(*store, 1, "b", 0, 6), Contains("cannot read"));
    fs::create_directory_symlink(step, scratch.path / "ckpt" / "step-00000002");
    CHECK(store->steps() == std::vector<int64_t>{1});
    CHECK_THROWS_WITH(store->manifest(2), Contains("cannot open the folder") && Contains("step-00000002"));
    fs::create_directory_symlink(scratch.path, scratch.path / "ckpt" / "step-00000003.partial");
    CHECK_THROWS_WITH(store->put(3, "a", {}), Contains("cannot open the folder"));
    store->discard(3);
    CHECK(fs::is_symlink(scratch.path / "ckpt" / "step-00000003.partial.aside-1"));
    store->remove(1);  // the link b goes, what it names stays
    CHECK(fs::exists(scratch.path / "secret"));
}

TEST_CASE("the posix store deletes only folders with its marker") {
    const TestStore stores("posix");
    const Scratch scratch("posix_marker");
    const auto store = stores.open(scratch.path);
    const fs::path mine = scratch.path / "step-00000004.partial";
    fs::create_directories(mine);
    std::ofstream(mine / "thesis.txt") << "years of work";
    CHECK_THROWS_WITH(store->put(4, "a", {}), Contains("has no file .orrery-checkpoint, so it is left alone"));
    commit(*store, 5);  // which cleans up older leftovers
    CHECK(fs::exists(mine / "thesis.txt"));
    fs::remove(scratch.path / "step-00000005" / ".orrery-checkpoint");
    CHECK_THROWS_WITH(store->remove(5), Contains("left alone"));
    CHECK(store->steps() == std::vector<int64_t>{5});
    store->discard(4);  // makes way for another try
    CHECK(fs::exists(scratch.path / "step-00000004.partial.aside-1" / "thesis.txt"));
    commit(*store, 4);
    fs::create_directories(scratch.path / "step-00000004" / "mine");
    CHECK_THROWS_WITH(store->remove(4), Contains("holds the folder mine, so it is left alone"));
    CHECK(store->steps() == std::vector<int64_t>{5, 4});
}

TEST_CASE("the posix store names what is no step of its own, and moves it aside where it stands in the way") {
    const TestStore stores("posix");
    const Scratch scratch("posix_strays");
    const auto store = stores.open(scratch.path);
    CHECK(store->strays().empty());
    for (const int64_t step : {1, 2, 3}) commit(*store, step);
    const auto in = [&](const char* name) { return scratch.path / name; };
    fs::remove(in("step-00000001") / ".orrery-checkpoint");
    fs::remove(in("step-00000002") / "manifest.json");
    fs::create_directory_symlink("step-00000003", in("step-00000004"));
    std::ofstream(in("step-00000005")) << "notes";
    std::ofstream(in("step-6")) << "notes";
    std::ofstream(in("notes.txt")) << "notes";
    CHECK(store->steps() == std::vector<int64_t>{3, 1});
    std::vector<std::string> said;
    for (const Stray& stray : store->strays()) said.push_back(std::to_string(stray.step) + ": " + stray.what);
    CHECK(said == std::vector<std::string>{
                      "1: step-00000001 has no file .orrery-checkpoint, so it is read but never removed",
                      "2: step-00000002 has no manifest.json",
                      "4: step-00000004 is a symbolic link, which is not followed",
                      "5: step-00000005 is no folder",
                      "-1: step-6 is not the name of a step",
                  });
    for (const int64_t step : {2, 4, 5}) {
        CHECK_THROWS_WITH(commit(*store, step), Contains("is committed already") || Contains("rename"));
        const std::string kept = store->set_aside(step);
        CHECK_THAT(kept, Catch::Matchers::EndsWith(".aside-1"));
        CHECK(fs::symlink_status(kept).type() != fs::file_type::not_found);
        store->discard(step);
        commit(*store, step);
    }
    CHECK(store->steps() == std::vector<int64_t>{5, 4, 3, 2, 1});
    said.clear();
    for (const Stray& stray : store->strays()) said.push_back(std::to_string(stray.step) + ": " + stray.what);
    CHECK(said == std::vector<std::string>{
                      "1: step-00000001 has no file .orrery-checkpoint, so it is read but never removed",
                      "-1: step-00000002.aside-1 was set aside: 7 bytes",
                      "-1: step-00000004.aside-1 was set aside: 0 bytes",
                      "-1: step-00000005.aside-1 was set aside: 5 bytes",
                      "-1: step-6 is not the name of a step",
                  });
    CHECK(store->set_aside(2) == (scratch.path / "step-00000002.aside-2").string());
    CHECK(store->set_aside(2) == "");
}

TEST_CASE("of a step's own copies set aside the newest stays, of others' all") {
    const TestStore stores("posix");
    const Scratch scratch("posix_copies");
    const auto store = stores.open(scratch.path);
    const auto in = [&](const std::string& name) { return scratch.path / name; };
    fs::create_directories(in("step-00000003"));
    std::ofstream(in("step-00000003") / "thesis.txt") << "years of work";
    CHECK(store->set_aside(3) == in("step-00000003.aside-1").string());
    for (int start = 0; start < 5; ++start) {  // it diverges each time
        commit(*store, 3);
        store->mark(3, std::to_string(start));
        const std::string kept = store->set_aside(3);
        const std::string now = "step-00000003.aside-" + std::to_string(start % 2 + 2);
        const std::string older = "step-00000003.aside-" + std::to_string(3 - start % 2);
        CHECK(kept == in(now).string() + (start == 0 ? "" : " (the older " + older + " is removed)"));
        CHECK(fs::exists(in(now) / "suspect.txt"));
        CHECK_FALSE(fs::exists(in(older)));
    }
    CHECK(fs::exists(in("step-00000003.aside-1") / "thesis.txt"));
    commit(*store, 3);
    fs::remove(in("step-00000003") / "manifest.json");  // a part of it is gone: not a copy like the other
    CHECK(store->set_aside(3) == in("step-00000003.aside-3").string());
    CHECK(fs::exists(in("step-00000003.aside-2") / "suspect.txt"));
    CHECK(std::distance(fs::directory_iterator(scratch.path), {}) == 3);
}

TEST_CASE("of a step's own copies set aside those that are pinned stay") {
    const TestStore stores("posix");
    const Scratch scratch("posix_pinned_copies");
    const auto store = stores.open(scratch.path);
    const std::string aside = (scratch.path / "step-00000003.aside-").string();
    for (const char* pin : {"a", "b", ""}) {
        commit(*store, 3);
        if (*pin) store->pin(3, pin);
        store->set_aside(3);
    }
    for (const char* number : {"1", "2", "3"}) CHECK(fs::exists(aside + number));
    commit(*store, 3);
    store->pin(3, "c");
    CHECK(store->set_aside(3) == aside + "4 (pinned) (the older step-00000003.aside-3 is removed)");
    CHECK(fs::exists(aside + "4/pinned.txt"));
}

TEST_CASE("a stranger's folder that an unfinished step finds in its way is told") {
    const TestStore stores("posix");
    const Scratch scratch("posix_told");
    const auto store = stores.open(scratch.path);
    const fs::path theirs = scratch.path / "step-00000004.partial";
    fs::create_directories(theirs);
    std::ofstream(theirs / "thesis.txt") << "years of work";
    store->discard(4);
    CHECK(store->set_aside(4) == theirs.string() + ".aside-1");
    CHECK(store->set_aside(4) == "");
}

TEST_CASE("a manifest of more than 1 GiB makes no step") {
    const TestStore stores("posix");
    const Scratch scratch("posix_longest");
    const auto store = stores.open(scratch.path);
    commit(*store, 1);
    fs::resize_file(scratch.path / "step-00000001" / "manifest.json", (uintmax_t{1} << 30) + 1);
    CHECK(store->steps().empty());
    REQUIRE(store->strays().size() == 1);
    CHECK(store->strays()[0].what == "step-00000001 has a manifest.json of 1073741825 bytes, more than one ever has");
    CHECK_THROWS_WITH(store->manifest(1), Contains("more than one ever has"));
}

TEST_CASE("the posix store cleans up what an earlier process left unfinished") {
    const TestStore stores("posix");
    const Scratch scratch("posix_leftovers");
    const auto store = stores.open(scratch.path);
    store->put(1, "a", {});
    store->put(9, "a", {});
    commit(*store, 2);
    fs::rename(scratch.path / "step-00000002", scratch.path / "step-00000002.removed");
    // Killed while it tried whether links can be made; a file that holds something is not of that.
    for (const char* trial : {".orrery-link-7-0", ".orrery-link-7-0-2"}) std::ofstream(scratch.path / trial).flush();
    std::ofstream(scratch.path / ".orrery-link-notes") << "mine";
    commit(*store, 3);
    CHECK_FALSE(fs::exists(scratch.path / ".orrery-link-7-0"));
    CHECK_FALSE(fs::exists(scratch.path / ".orrery-link-7-0-2"));
    CHECK(fs::exists(scratch.path / ".orrery-link-notes"));
    CHECK_FALSE(fs::exists(scratch.path / "step-00000001.partial"));
    CHECK_FALSE(fs::exists(scratch.path / "step-00000002.removed"));
    CHECK(fs::exists(scratch.path / "step-00000009.partial"));
    CHECK(store->steps() == std::vector<int64_t>{3});
}

TEST_CASE("an interrupted removal is finished without a save") {
    const TestStore stores("posix");
    const Scratch scratch("posix_finish_removals");
    const auto store = stores.open(scratch.path / "checkpoints");
    CHECK(store->finish_removals(false) == 0);  // nothing was saved yet
    const fs::path place = scratch.path / "checkpoints", killed = place / "step-00000001.removed",
                   in_place = place / "step-00000002", foreign = place / "step-00000004.removed";
    for (const int64_t step : {1, 2, 3}) commit(*store, step);
    store->put(9, "a", {});  // another job may be writing it
    fs::rename(place / "step-00000001", killed);
    fs::rename(in_place / "manifest.json", in_place / "manifest.json.removed");
    fs::create_directories(foreign);
    std::ofstream(foreign / "thesis.txt") << "years of work";
    CHECK(store->finish_removals(true) == 2);
    CHECK(fs::exists(killed));
    CHECK(store->finish_removals(false) == 2);
    CHECK_FALSE(fs::exists(killed));
    CHECK_FALSE(fs::exists(in_place));
    CHECK(fs::exists(foreign / "thesis.txt"));
    CHECK(fs::exists(place / "step-00000009.partial"));
    CHECK(store->steps() == std::vector<int64_t>{3});
    CHECK(store->finish_removals(false) == 0);
}

TEST_CASE("a disk that is full is reported and leaves no half file") {
    const TestStore stores("posix");
    const Scratch scratch("posix_full");
    const auto store = stores.open(scratch.path);
    commit(*store, 1);
    // A limit on the size of files acts like a full disk in the middle of a write.
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    struct rlimit old {};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const struct rlimit small { 65536, old.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &small);
    std::string message;
    try {
        store->put(2, "big", bytes_of_text(std::string(200000, 'x')));
    } catch (const Error& problem) {
        message = problem.what();
        CHECK(problem.fault() == Fault::failed);
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, before);
    CHECK_THAT(message, Contains("cannot write the 200000 bytes of") && Contains("big: File too large"));
    CHECK_FALSE(fs::exists(scratch.path / "step-00000002.partial" / "big"));
    CHECK(store->steps() == std::vector<int64_t>{1});
    CHECK(text_at(*store, 1, "a", 0, 7) == "weights");
}

namespace {
/// Folders of steps that are no steps any more.
int removed_in(const fs::path& place) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(place))
        count += entry.path().filename().string().find(".removed") != std::string::npos;
    return count;
}
}  // namespace

TEST_CASE("what is left of a removal and cannot be erased makes nobody fail") {
    const TestStore stores("posix");
    const Scratch scratch("posix_unerased");
    const auto store = stores.open(scratch.path);
    const fs::path rubbish = scratch.path / "step-00000001.removed";
    commit(*store, 1);
    fs::rename(scratch.path / "step-00000001", rubbish);
    SECTION("a folder, which nobody erases: another name is taken") {
        fs::create_directories(rubbish / "theirs");
        store->act_for(2);
        REQUIRE(store->claim(2));
        commit(*store, 1);
        store->remove(1);
        CHECK(store->steps().empty());
        const auto older = stores.open(scratch.path);
        older->act_for(2);
        older->put(1, "a", bytes_of_text("unfinished"));
        CHECK(store->claim(3));
        CHECK_FALSE(fs::exists(scratch.path / "step-00000001.g2.partial"));
        CHECK(removed_in(scratch.path) == 1);
        CHECK(fs::exists(rubbish / "theirs"));
    }
    SECTION("what appeared while it was erased, the marker is gone") {
        for (const auto& file : fs::directory_iterator(rubbish)) fs::remove(file);
        std::ofstream(rubbish / ".pinned.txt.new") << "for the paper";
        std::ofstream(rubbish / ".nfs0000123400000001") << "open elsewhere";
        commit(*store, 2);
        CHECK(removed_in(scratch.path) == 0);
    }
    SECTION("what others put under that name stays") {
        fs::remove(rubbish / ".orrery-checkpoint");
        std::ofstream(rubbish / "thesis.txt") << "years of work";
        commit(*store, 1);
        store->remove(1);
        commit(*store, 2);
        CHECK(fs::exists(rubbish / "thesis.txt"));
        CHECK(removed_in(scratch.path) == 1);
    }
}

TEST_CASE("another folder under that name is not the job's") {
    const TestStore stores("posix");
    const Scratch scratch("posix_moved");
    const fs::path away = scratch.path / "away", run = scratch.path / "run";
    const auto store = stores.open(run / "checkpoints");
    REQUIRE(store->claim(1));
    store->act_for(1);
    commit(*store, 1);
    store->put(2, "a", bytes_of_text("half"));
    fs::rename(run, away);
    const auto gone = Contains("has no generation 1 of the job any more");
    CHECK_THROWS_WITH(store->put(2, "b", bytes_of_text("b")), gone);
    CHECK_THROWS_WITH(store->commit(2, "two"), gone);
    CHECK_THROWS_WITH(store->put(3, "a", bytes_of_text("a")), gone);
    CHECK(store->steps().empty());
    REQUIRE_FALSE(fs::exists(run));  // or what is put back would come to lie in it
    fs::create_directories(run / "checkpoints");
    CHECK_THROWS_WITH(store->put(3, "a", bytes_of_text("a")), gone);
    fs::remove_all(run);
    fs::rename(away, run);
    store->put(2, "b", bytes_of_text("b"));
    store->flush(2);
    store->commit(2, "two");
    CHECK(store->steps() == std::vector<int64_t>{2, 1});
}
