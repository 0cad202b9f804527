// The promises of every CheckpointStore.
#include <catch2/catch.hpp>
#include <thread>

#include "store.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("stores keep their promises") {
    const suites::OpenedStore suite(GENERATE(from_range(suites::usable("store"))));
    INFO(suite.name);
    const auto &store = suite.store, &reader = suite.reader;

    SECTION("an untouched place holds nothing and is not created by reading") {
        CHECK(reader->steps().empty());
        CHECK(reader->size(1, "a") == -1);
        CHECK_THROWS_WITH(reader->manifest(1), Contains("1 is not committed"));
        CHECK_THAT(reader->place(), Catch::Matchers::EndsWith(suite.scratch.path.string()));
        CHECK_FALSE(std::filesystem::exists(suite.scratch.path));
    }
    SECTION("a step becomes visible as a whole") {
        store->put(300, "rank-0.safetensors", bytes_of_text("hello world"));
        store->put(300, "rank-1.safetensors", {});
        store->flush(300);
        CHECK(reader->steps().empty());
        CHECK(reader->size(300, "rank-0.safetensors") == -1);
        CHECK_THROWS_AS(text_at(*reader, 300, "rank-0.safetensors", 0, 5), Error);
        store->commit(300, "{\"x\":1}");
        CHECK(reader->steps() == std::vector<int64_t>{300});
        CHECK(reader->manifest(300) == "{\"x\":1}");
        CHECK(reader->size(300, "rank-0.safetensors") == 11);
        CHECK(reader->size(300, "rank-1.safetensors") == 0);
        CHECK(reader->size(300, "rank-2.safetensors") == -1);
        CHECK(text_at(*reader, 300, "rank-0.safetensors", 6, 5) == "world");
        CHECK(text_at(*reader, 300, "rank-0.safetensors", 11, 0).empty());
        CHECK_THROWS_AS(text_at(*reader, 300, "rank-0.safetensors", 7, 5), Error);
        CHECK_THROWS_AS(text_at(*reader, 300, "rank-0.safetensors", -1, 5), Error);
        CHECK_THROWS_AS(text_at(*reader, 300, "rank-2.safetensors", 0, 1), Error);
    }
    SECTION("an object in parts is their bytes one after the other") {
        const std::string parts[] = {"hello ", "", "world"};
        const std::span<const std::byte> spans[] = {bytes_of_text(parts[0]), bytes_of_text(parts[1]),
                                                    bytes_of_text(parts[2])};
        store->put_parts(1, "a", spans);
        CHECK_THROWS_AS(store->put_parts(1, "a", spans), Error);
        store->commit(1, "m");
        CHECK(reader->size(1, "a") == 11);
        CHECK(text_at(*reader, 1, "a", 0, 11) == "hello world");
        CHECK(store->free_bytes() >= -1);
    }
    SECTION("nothing is ever replaced") {
        store->put(1, "a", bytes_of_text("one"));
        CHECK_THROWS_AS(store->put(1, "a", bytes_of_text("two")), Error);
        store->commit(1, "first");
        CHECK_THROWS_AS(
            [&] {
                store->put(1, "a", bytes_of_text("two"));
                store->commit(1, "second");
            }(),
            Error);
        CHECK(reader->manifest(1) == "first");
        CHECK(text_at(*reader, 1, "a", 0, 3) == "one");
    }
    SECTION("steps are listed newest first and removed one by one") {
        for (const int64_t step : {5, 1000, 20}) {
            store->put(step, "a", bytes_of_text(std::to_string(step)));
            store->commit(step, "m" + std::to_string(step));
        }
        CHECK(reader->steps() == std::vector<int64_t>{1000, 20, 5});
        store->remove(20);
        CHECK(reader->steps() == std::vector<int64_t>{1000, 5});
        CHECK(text_at(*reader, 5, "a", 0, 1) == "5");
        CHECK_THROWS_AS(store->remove(20), Error);
        store->put(20, "a", bytes_of_text("again"));
        store->commit(20, "again");
        CHECK(reader->manifest(20) == "again");
    }
    SECTION("a discarded step can be written again, a committed one is not discarded") {
        store->put(7, "a", bytes_of_text("half"));
        store->discard(7);
        store->discard(8);
        store->put(7, "a", bytes_of_text("whole"));
        store->commit(7, "m");
        store->discard(7);
        CHECK(text_at(*reader, 7, "a", 0, 5) == "whole");
    }
    SECTION("a mark stays with a step until it is removed") {
        CHECK_THROWS_AS(store->mark(3, "x"), Error);
        store->put(3, "a", bytes_of_text("three"));
        store->commit(3, "m");
        CHECK(reader->mark_of(3) == "");
        store->mark(3, "the loss is inf");
        store->mark(3, "another word");
        CHECK(reader->mark_of(3) == "the loss is inf");
        CHECK(reader->steps() == std::vector<int64_t>{3});
        CHECK(reader->manifest(3) == "m");
        CHECK(text_at(*reader, 3, "a", 0, 5) == "three");
        store->unmark(3);
        store->unmark(3);
        CHECK(reader->mark_of(3) == "");
        CHECK(reader->manifest(3) == "m");
        store->mark(3, "after all");
        CHECK(reader->mark_of(3) == "after all");
        CHECK_THROWS_AS(store->unmark(4), Error);
        store->remove(3);
        store->put(3, "a", {});
        store->commit(3, "n");
        CHECK(reader->mark_of(3) == "");
    }
    SECTION("what is set aside makes way and is no step") {
        CHECK(store->set_aside(3) == "");
        for (const int64_t step : {3, 4}) {
            store->put(step, "a", bytes_of_text("old"));
            store->commit(step, "m");
        }
        store->mark(3, "suspect");
        CHECK_FALSE(store->set_aside(3).empty());
        CHECK(reader->steps() == std::vector<int64_t>{4});
        store->put(3, "a", bytes_of_text("new"));
        store->commit(3, "n");
        CHECK(reader->mark_of(3) == "");
        CHECK(text_at(*reader, 3, "a", 0, 3) == "new");
        for (const Stray& stray : reader->strays()) CHECK(stray.step == -1);  // it takes no step's place
    }
    SECTION("ranks put into one step at the same time") {
        std::vector<std::thread> ranks;
        std::vector<std::string> problems(8);
        for (int rank = 0; rank < 8; ++rank) {
            ranks.emplace_back([&, rank] {
                try {
                    const auto mine = suite.open();
                    mine->put(9, "rank-" + std::to_string(rank), bytes_of_text(std::string(1000, char('a' + rank))));
                    mine->flush(9);
                } catch (const std::exception& problem) {
                    problems[static_cast<size_t>(rank)] = problem.what();
                }
            });
        }
        for (std::thread& rank : ranks) rank.join();
        CHECK(problems == std::vector<std::string>(8));
        store->commit(9, "m");
        for (int rank = 0; rank < 8; ++rank)
            CHECK(text_at(*reader, 9, "rank-" + std::to_string(rank), 999, 1) == std::string(1, char('a' + rank)));
    }
}
