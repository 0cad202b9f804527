// The output of ranks: the log of a rank is bounded, in order, and never an error; lines of a terminal are not torn.
#include "cli/output/rank_log.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/process.h"
#include "cli/output/log_writer.h"
#include "cli/output/message.h"
#include "cli/output/terminal.h"
#include "cli/submit/logs.h"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

struct Folder {
    explicit Folder(const char* name)
        : path((fs::temp_directory_path() / (std::string("orrery-") + name + std::to_string(::getpid()))).string()) {
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }

    const std::string path;
};

constexpr int64_t limit = 1 << 12, half = limit / 2;
const std::string left_out = " bytes of output are left out here]\n";

std::string numbered(int from, int count) {
    std::string text;
    for (int i = from; i < from + count; ++i) text += "line " + std::to_string(i) + "\n";
    return text;
}

/// What the file has after `all` was written: the first half, the line, and as much of the end as fits.
std::string bounded(const std::string& all) {
    if (static_cast<int64_t>(all.size()) <= limit) return all;
    std::string line = "\n[orrery: 00000000000000000000" + left_out;
    const std::string count = std::to_string(all.size() - limit + line.size());
    line.replace(line.find(']') - left_out.size() + 2 - count.size(), count.size(), count);
    return all.substr(0, half) + line + all.substr(all.size() - (half - line.size()));
}

}  // namespace

TEST_CASE("the log of a rank has the first and the last part of its output, in order", "[output]") {
    const Folder folder("rank_log");
    const std::string path = folder.path + "/logs/g1-rank0.txt";
    std::mt19937 random(3);
    for (const int total : {1, 200, 399, 400, 401, 450, 500, 700, 777, 1000, 5000}) {
        CAPTURE(total);
        std::string all;
        RankLog log(path, limit);
        RankLogReader reader(path, limit);
        std::string read;
        for (int i = 0; i < total;) {
            const int count = std::min<int>(total - i, 1 + static_cast<int>(random() % 300));
            const std::string text = numbered(i, count);
            log.write(text);
            all += text;
            i += count;
            REQUIRE(static_cast<int64_t>(fs::file_size(path)) <= limit);
            const std::string now = reader.next();
            if (now.find(left_out) == std::string::npos) {
                CHECK(now == text);
            } else {
                const std::string end = now.substr(now.find(left_out) + left_out.size());
                CHECK(text.ends_with(end));
                CHECK(static_cast<int64_t>(end.size()) > half - 100);
            }
            REQUIRE(RankLogReader(path, limit).next() == bounded(all));
        }
        CHECK(reader.next().empty());
        log.finish();
        CHECK(system_env()->read_file(path) == bounded(all));
        CHECK(RankLogReader(path, limit).next() == bounded(all));
        CHECK(log.problem().empty());
    }
}

TEST_CASE("the log of a rank survives a file that cannot grow, and says what is missing", "[output]") {
    const Folder folder("rank_log");
    const std::string path = folder.path + "/logs/g1-rank0.txt";
    RankLog log(path, limit);
    log.write(numbered(0, 10));
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = 100;
    ::setrlimit(RLIMIT_FSIZE, &small);
    log.write(numbered(10, 100));
    log.write(numbered(110, 1));
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(log.problem() == "File too large");
    log.write(numbered(111, 1));
    CHECK(log.problem().empty());
    const auto lost = std::to_string(numbered(10, 101).size());
    CHECK(system_env()->read_file(path) == numbered(0, 10) + "\n[orrery: " + lost +
                                               " bytes of output could not be written here: File too large]\n" +
                                               numbered(111, 1));
}

TEST_CASE("the log of a rank replaces nothing but a file", "[output]") {
    const Folder folder("rank_log");
    fs::create_directory(folder.path + "/logs");
    const std::string pipe = folder.path + "/logs/pipe", link = folder.path + "/logs/link";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink(folder.path + "/other", link);
    for (const std::string& path : {pipe, link, folder.path + "/none/logs/g1-rank0.txt"}) {
        RankLog log(path, limit);
        log.write("text");
        log.finish();
        CHECK_FALSE(log.problem().empty());
    }
    CHECK_FALSE(fs::exists(folder.path + "/other"));
    CHECK_FALSE(fs::exists(folder.path + "/none"));
}

TEST_CASE("logs of old generations are removed, and nothing else", "[output]") {
    const Folder folder("rank_log");
    fs::create_directory(folder.path + "/logs");
    for (int64_t generation = 0; generation <= 15; ++generation)
        for (const int64_t rank : {0, 11}) RankLog(rank_log_path(folder.path, generation, rank)).write("text");
    const std::string own = folder.path + "/logs/g1-rank0.txt.gz";
    system_env()->replace_file(own, "mine");
    remove_old_logs(folder.path, 15);
    for (int64_t generation = 0; generation <= 15; ++generation)
        CHECK(fs::exists(rank_log_path(folder.path, generation, 11)) == (generation > 15 - kept_logs));
    CHECK(fs::exists(own));
}

TEST_CASE("a line of one source does not continue the line of another", "[output]") {
    Pipe both, other;
    const auto written = [](const Pipe& pipe) {
        std::string text(4096, '\0');
        text.resize(static_cast<size_t>(::read(pipe.read, text.data(), text.size())));
        return text;
    };
    const auto speak = [](Terminal& terminal) {
        terminal.write(Terminal::output, 0, "a");
        terminal.write(Terminal::output, 0, "b");
        terminal.write(Terminal::errors, 1, "c\n");
        terminal.write(Terminal::output, 0, "d\n");
        terminal.write(Terminal::errors, 1, "e");
        terminal.write(Terminal::errors, 2, "f\n");
        terminal.progress("step 1 of 2");
    };
    Terminal one(both.write, both.write, false);
    CHECK_FALSE(one.shows_progress());
    speak(one);
    CHECK(written(both) == "ab\nc\nd\ne\nf\n");
    Terminal two(both.write, other.write, false);
    speak(two);
    CHECK(written(both) == "abd\n");
    CHECK(written(other) == "c\ne\nf\n");
    Terminal closed(-1, -1, false);
    speak(closed);
}

TEST_CASE("a terminal tells how long its reader did not read", "[output]") {
    Pipe pipe;
    Terminal terminal(pipe.write, -1, false);
    const std::string text = numbered(0, 100'000);
    std::string read;
    std::thread reader([&] {
        for (pollfd space{pipe.write, POLLOUT, 0}; ::poll(&space, 1, 0) != 0;)  // until the pipe is full
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        char bytes[4096];
        while (read.size() < text.size())
            read.append(bytes, static_cast<size_t>(::read(pipe.read, bytes, sizeof bytes)));
    });
    terminal.write(Terminal::output, 0, text);
    reader.join();
    CHECK(read == text);
    CHECK(terminal.blocked_s() > 2);
    CHECK(terminal.blocked_s() == 0);
}

TEST_CASE("output waits for its log; of too much the first and the last part stay", "[output]") {
    const Folder folder("log_writer");
    const std::string path = rank_log_path(folder.path, 3, 1);
    std::string all;
    LogWriter logs;
    for (int i = 0; i < 40; ++i) {
        all += numbered(i * 100'000, 100'000);
        logs.write(7, numbered(i * 100'000, 100'000));
    }
    REQUIRE(all.size() > (32U << 20));
    logs.write(8, "of a source without a log\n");
    logs.begin(7, folder.path, 3, 1);
    logs.begin(7, folder.path, 4, 1);  // only the first counts
    logs.finish(7);
    logs.finish(8);
    logs.flush(std::chrono::hours(1));
    CHECK(logs.problems().empty());
    const std::string text = system_env()->read_file(path);
    const size_t part = 8 << 20;
    CHECK(text.size() == 2 * part);
    CHECK(text.substr(0, part) == all.substr(0, part));
    CHECK(text.substr(text.size() - part + 200) == all.substr(all.size() - part + 200));
    CHECK(std::distance(fs::directory_iterator(folder.path + "/logs"), fs::directory_iterator()) == 1);
    logs.begin(9, folder.path + "/none", 1, 0);
    logs.write(9, "text\n");
    logs.finish(9);
    logs.flush(std::chrono::hours(1));
    CHECK(logs.problems() ==
          "cannot write " + rank_log_path(folder.path + "/none", 1, 0) + ": No such file or directory\n");
}

TEST_CASE("logs whose sources never pause do not delay another", "[output]") {
    const Folder folder("log_writer");
    LogWriter logs;
    std::atomic<bool> ends{false};
    std::vector<std::thread> chatty;
    for (int64_t rank = 1; rank <= 4; ++rank) {
        logs.begin(rank, folder.path, 1, rank);
        chatty.emplace_back([&, rank, text = numbered(0, 10'000)] {
            while (!ends) logs.write(rank, text);
        });
    }
    while (!fs::exists(rank_log_path(folder.path, 1, 1))) std::this_thread::yield();
    logs.write(9, "text\n");
    logs.begin(9, folder.path, 1, 9);
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    const std::string other = rank_log_path(folder.path, 1, 9);
    while (!fs::exists(other) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK(fs::exists(other));
    ends = true;
    for (std::thread& thread : chatty) thread.join();
}

TEST_CASE("a message tells that its descriptors did not fit", "[output]") {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    for (const bool full : {false, true}) {
        CHECK(send_message(sockets[0], {{"do", "rank"}}, {sockets[0], sockets[1]}));
        rlimit now = before;
        if (full) now.rlim_cur = 1;
        ::setrlimit(RLIMIT_NOFILE, &now);
        OutputMessage message;
        const Received received = receive(sockets[1], message);
        ::setrlimit(RLIMIT_NOFILE, &before);
        CHECK(received == Received::message);
        CHECK(message.cut == full);
        CHECK((message.files[1] < 0) == full);
        for (const int file : message.files)
            if (file >= 0) ::close(file);
    }
    CHECK_FALSE(send_message(sockets[0], {{"text", std::string(1 << 24, 'x')}}));
    ::close(sockets[1]);
    CHECK(send_message(sockets[0], {{"do", "rank"}}));
    ::close(sockets[0]);
}

TEST_CASE("the newest log is that of a start which failed before it had a generation", "[output]") {
    const Folder folder("newest_log");
    CHECK(newest_log(folder.path, 1).empty());
    fs::create_directory(folder.path + "/logs");
    const auto written = [&](int64_t generation, int64_t rank, int minute) {
        const std::string path = rank_log_path(folder.path, generation, rank);
        system_env()->replace_file(path, "text");
        fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::minutes(minute));
    };
    written(2, 1, 1);
    written(10, 1, 0);
    written(0, 2, 9);
    CHECK(newest_log(folder.path, 1) == rank_log_path(folder.path, 10, 1));
    CHECK(newest_log(folder.path, 2) == rank_log_path(folder.path, 0, 2));
    written(0, 1, 2);
    CHECK(newest_log(folder.path, 1) == rank_log_path(folder.path, 0, 1));
    written(11, 1, 3);
    CHECK(newest_log(folder.path, 1) == rank_log_path(folder.path, 11, 1));
}
