#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "folders.h"
#include "orrery/error.h"
#include "run/control/folder_meeting.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("tasks meet through files in a folder, of which none is left") {
    const std::string folder = in_build("tests/folder_meeting");
    std::filesystem::remove_all(folder);
    const auto meeting = [&](int64_t rank, const std::string& job = "p:7") {
        return FolderMeeting{folder, job, rank, 3, std::chrono::milliseconds(20'000)};
    };
    const MeetingPlace place{"p:7.ab", "192.0.2.7", 29500, "secret"};
    for (int round = 0; round < 3; ++round) {
        std::filesystem::create_directories(folder);
        if (round == 1)  // an earlier job of the same id was killed
            for (const char* name : {".meeting-p_7", ".meeting-p_7.1"}) {
                std::ofstream(folder + "/" + name) << R"({"job":"p:7","host":"x","text":"x","texts":["","x","x"]})";
                std::filesystem::permissions(folder + "/" + name, std::filesystem::perms(0600));
            }
        MeetingPlace heard[2];
        std::thread first([&] { heard[0] = ask_place(meeting(1)); });
        std::thread second([&] { heard[1] = ask_place(meeting(2)); });
        tell_place(meeting(0), place);
        first.join();
        second.join();
        for (const MeetingPlace& one : heard) {
            CHECK(one.id == place.id);
            CHECK(one.host == place.host);
            CHECK(one.port == place.port);
            CHECK(one.secret == place.secret);
        }
        CHECK(std::filesystem::is_empty(folder));
    }
}

TEST_CASE("tasks do not read what another job, another user or nobody has written") {
    const std::string folder = in_build("tests/folder_meeting_of_others");
    std::filesystem::remove_all(folder);
    const FolderMeeting mine{folder, "7", 1, 2, std::chrono::milliseconds(60)};
    const auto not_told = [&] {
        CHECK_THROWS_WITH(ask_place(mine), Contains("task 0 did not write its address within 0.06 s") &&
                                               Contains(folder) && Contains("run.folder"));
    };
    not_told();
    FolderMeeting other = mine;
    other.job = "8";
    other.rank = 0;
    CHECK_THROWS_WITH(tell_place(other, {"8.ab", "192.0.2.7", 29500, "secret"}), Contains("task 1 did not ask"));
    not_told();
    // Others can read the file of the first answer.
    for (const int mode : {0644, 0600}) {
        std::atomic<bool> stop{false};
        std::atomic<int> asked_by{0};
        std::thread answer([&] {
            const std::string ask = folder + "/.meeting-7.1", told = folder + "/.meeting-7", key = "\"text\":\"";
            while (!stop) {
                std::ifstream in(ask);
                const std::string text{std::istreambuf_iterator<char>(in), {}};
                const size_t at = text.find(key);
                struct stat info {};
                if (at == std::string::npos || ::stat(ask.c_str(), &info) != 0) continue;
                asked_by = info.st_mode & 0777;
                std::ofstream(told + ".new")
                    << R"({"job":"7","host":"x","texts":["",")" << text.substr(at + key.size(), 32) << "\"]}";
                ::chmod((told + ".new").c_str(), static_cast<mode_t>(mode));
                ::rename((told + ".new").c_str(), told.c_str());
            }
        });
        if (mode == 0600)
            CHECK(ask_place({folder, "7", 1, 2, std::chrono::milliseconds(20'000)}).host == "x");
        else
            not_told();
        stop = true;
        answer.join();
        CHECK(asked_by == 0600);
    }
    not_told();  // the answer to an earlier question
}

TEST_CASE("tasks do not meet where another user has made their files") {
    if (::geteuid() != 0) return;  // only root can be two users
    const std::string folder = "/tmp/orrery_meeting_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    ::chmod(folder.c_str(), 01777);
    const auto refused = [&](const std::string& name, const auto& meet) {
        std::ofstream(folder + "/" + name) << "{}";
        REQUIRE(::seteuid(65534) == 0);
        std::string why;
        try {
            meet();
        } catch (const Error& error) {
            why = error.what();
        }
        REQUIRE(::seteuid(0) == 0);
        std::filesystem::remove(folder + "/" + name);
        CHECK_THAT(why, Contains(folder + "/" + name + " belongs to user 0") && Contains("another run.folder"));
    };
    const auto meeting = [&](int64_t rank) {
        return FolderMeeting{folder, "7", rank, 2, std::chrono::milliseconds(60)};
    };
    const auto tell = [&] { tell_place(meeting(0), {"7.ab", "192.0.2.7", 29500, "secret"}); };
    refused(".meeting-7", tell);
    refused(".meeting-7.1", tell);
    refused(".meeting-7.1", [&] { ask_place(meeting(1)); });
    std::filesystem::remove_all(folder);
}
