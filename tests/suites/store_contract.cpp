// The promises that a store makes beyond those of all: each clause of StoreContract.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <thread>

#include "store.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Suite : suites::OpenedStore {
    Suite() : OpenedStore(GENERATE(from_range(suites::usable("store")))) { UNSCOPED_INFO(name); }
    StoreContract contract = store->contract();
};

void commit(CheckpointStore& store, int64_t step, const std::string& text) {
    store.put(step, "a", bytes_of_text(text));
    store.flush(step);
    store.commit(step, "manifest of " + text);
}

/// Runs `work` in a process of its own, which SIGKILL ends then.
void killed_after(const std::function<void()>& work) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            work();
        } catch (...) {
            ::_exit(1);
        }
        ::raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

/// How many of eight threads, each with a store of its own, are granted it.
int granted(const Suite& suite, const std::function<bool(CheckpointStore&)>& ask) {
    std::atomic<int> count{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            const auto mine = suite.open();
            try {
                count += ask(*mine) ? 1 : 0;
            } catch (const Error&) {
            }
        });
    for (std::thread& thread : threads) thread.join();
    return count;
}

}  // namespace

TEST_CASE("a store makes nothing when it is asked for its promises") {
    const Suite suite;
    INFO(suite.contract.text());
    CHECK(suite.contract.survives <= StoreContract::Survives::power_cut);
    CHECK(suite.contract.shared <= StoreContract::Shared::hosts);
    CHECK_FALSE(fs::exists(suite.scratch.path));
}

TEST_CASE("the place of a store of folders is a folder once a step is there") {
    const Suite suite;
    commit(*suite.store, 1, "one");
    CHECK(fs::is_directory(suite.store->place()) == suite.store->is_folder());
}

TEST_CASE("a committed step survives what the store says, and is seen by whom it says") {
    const Suite suite;
    const bool survives = suite.contract.survives != StoreContract::Survives::nothing;
    CHECK(survives == (suite.contract.shared != StoreContract::Shared::process));
    killed_after([&] { commit(*suite.open(), 1, "one"); });
    killed_after([&] { suite.open()->put(2, "a", bytes_of_text("two")); });
    CHECK(suite.reader->steps() == (survives ? std::vector<int64_t>{1} : std::vector<int64_t>{}));
    if (survives) CHECK(text_at(*suite.reader, 1, "a", 0, 3) == "one");
    if (survives) CHECK(suite.reader->manifest(1) == "manifest of one");
    suite.store->discard(2);
    commit(*suite.store, 2, "again");  // the killed one left nothing that blocks it
    CHECK(text_at(*suite.reader, 2, "a", 0, 5) == "again");
}

TEST_CASE("objects and steps appear whole, and one of many wins") {
    const Suite suite;
    std::atomic<bool> done{false};
    std::string problem;
    std::atomic<int64_t> seen{0};
    std::thread looks([&] {
        while (!done)
            for (const int64_t step : suite.reader->steps()) {
                ++seen;
                const std::string text(20000, char('a' + step));
                try {
                    if (suite.reader->manifest(step) != "manifest of " + text ||
                        text_at(*suite.reader, step, "a", 0, text.size()) != text)
                        problem = "step " + std::to_string(step) + " is half there";
                } catch (const std::exception& found) {
                    problem = found.what();
                }
            }
    });
    for (int64_t step = 0; step < 12; ++step) commit(*suite.store, step, std::string(20000, char('a' + step)));
    while (seen == 0) std::this_thread::yield();
    done = true;
    looks.join();
    CHECK(problem == "");
    const auto put = [](CheckpointStore& store) { return store.put(50, "a", bytes_of_text("one")), true; };
    CHECK(granted(suite, put) == 1);
}

TEST_CASE("a linked object is that of the step it comes from, and outlives it") {
    const Suite suite;
    commit(*suite.store, 1, "one");
    suite.store->link(2, "b", 1, "a");
    CHECK_THROWS_AS(suite.store->link(2, "b", 1, "a"), Error);  // exclusively
    CHECK_THROWS_AS(suite.store->put(2, "b", {}), Error);
    CHECK_THROWS_AS(suite.store->link(2, "c", 1, "none"), Error);
    CHECK_THROWS_AS(suite.store->link(2, "c", 7, "a"), Error);
    CHECK_THROWS_AS(suite.store->link(3, "c", 2, "b"), Error);  // not committed yet
    suite.store->flush(2);
    CHECK(suite.reader->size(2, "b") == -1);
    suite.store->commit(2, "two");
    CHECK(text_at(*suite.reader, 2, "b", 0, 3) == "one");
    suite.store->remove(1);
    CHECK(text_at(*suite.reader, 2, "b", 0, 3) == "one");
    suite.store->link(3, "c", 2, "b");
    suite.store->discard(3);  // which takes nothing from the step it was linked from
    CHECK(text_at(*suite.reader, 2, "b", 0, 3) == "one");
}

TEST_CASE("a pin stays with a step until it is removed") {
    const Suite suite;
    commit(*suite.store, 1, "one");
    CHECK(suite.reader->pin_of(1) == "");
    suite.store->pin(1, "the paper's");
    CHECK_THROWS_AS(suite.store->pin(2, "x"), Error);
    CHECK(suite.reader->pin_of(1) == "the paper's");
    suite.store->pin(1, "the talk's");
    CHECK(suite.reader->pin_of(1) == "the talk's");
    CHECK(suite.reader->manifest(1) == "manifest of one");
    CHECK(suite.reader->mark_of(1) == "");
    suite.store->unpin(1);
    suite.store->unpin(1);
    CHECK(suite.reader->pin_of(1) == "");
    suite.store->pin(1, "");
    CHECK(suite.reader->pin_of(1) != "");
}

TEST_CASE("what a claimed generation has superseded can change nothing more") {
    const Suite suite;
    if (!suite.contract.fences) {
        CHECK(suite.store->claim(1));
        CHECK(suite.store->claim(1));
        CHECK(suite.store->generation() == 0);
        return;
    }
    CHECK(suite.reader->generation() == 0);
    CHECK(granted(suite, [](CheckpointStore& store) { return store.claim(2); }) == 1);
    CHECK_FALSE(suite.store->claim(2));
    CHECK_FALSE(suite.store->claim(1));
    CHECK(suite.reader->generation() == 2);
    const auto old = suite.open(), idle = suite.open();
    old->act_for(2);
    commit(*old, 1, "one");
    old->put(2, "a", bytes_of_text("half"));
    old->flush(2);
    idle->put(3, "a", bytes_of_text("of no generation"));
    CHECK(suite.reader->steps() == std::vector<int64_t>{1});

    CHECK(suite.store->claim(5));
    suite.store->act_for(5);
    CHECK_THROWS_WITH(old->put(2, "b", {}), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->link(2, "b", 1, "a"), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->flush(2), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->commit(2, "two"), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->discard(2), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->mark(1, "x"), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->unmark(1), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->pin(1, "x"), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->unpin(1), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->remove(1), Contains("generation 5") && Contains("generation 2"));
    CHECK_THROWS_WITH(old->set_aside(1), Contains("generation 5") && Contains("generation 2"));
    CHECK(old->manifest(1) == "manifest of one");  // reading is for all
    CHECK(suite.reader->steps() == std::vector<int64_t>{1});

    commit(*suite.store, 2, "two");  // nothing of the old one's half is in it
    CHECK(text_at(*suite.reader, 2, "a", 0, 3) == "two");
    idle->commit(3, "three");  // acts for none, and is not fenced
    CHECK(suite.reader->steps() == std::vector<int64_t>{3, 2, 1});
    CHECK(suite.reader->strays().empty());
}
