#include "base/env.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/files/atomic_file.h"
#include "orrery/error.h"

namespace orrery {

Env::~Env() = default;

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, const std::string& path, int code) {
    throw Error("cannot " + what + " " + path + ": " + std::generic_category().message(code), Fault::failed);
}

struct File {
    int number;
    File(const std::string& path, int flags, const char* what) : number(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
        if (number < 0) fail(what, path, errno);
    }
    ~File() { ::close(number); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
};

class SystemEnv final : public Env {
public:
    Nanoseconds now() override { return std::chrono::steady_clock::now().time_since_epoch(); }
    Nanoseconds wall_clock() override {
        return std::chrono::duration_cast<Nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
    }
    void sleep(Nanoseconds duration) override { std::this_thread::sleep_for(duration); }

    std::string random_bytes(size_t count) override {
        std::string bytes(count, '\0');
        for (size_t at = 0; at < count;) {
            const ssize_t got = ::getrandom(bytes.data() + at, count - at, 0);
            if (got < 0 && errno != EINTR) fail("read", "random bytes", errno);
            if (got > 0) at += static_cast<size_t>(got);
        }
        return bytes;
    }

    std::string read_file(const std::string& path) override {
        const File file(path, O_RDONLY, "read");
        std::string contents;
        char piece[1 << 16];
        for (;;) {
            const ssize_t got = ::read(file.number, piece, sizeof piece);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail("read", path, errno);
            if (got == 0) return contents;
            contents.append(piece, static_cast<size_t>(got));
        }
    }

    void replace_file(const std::string& path, std::string_view contents) override {
        // pids are not unique across hosts and containers.
        uint32_t other = 0;
        std::memcpy(&other, random_bytes(sizeof other).data(), sizeof other);
        AtomicFile file(path, ".new." + std::to_string(::getpid()) + "." + std::to_string(other), 0644);
        file.open();
        file.write(contents);
        file.close(true);
        file.name(true);
    }

    void append_file(const std::string& path, std::string_view contents) override {
        const File file(path, O_WRONLY | O_CREAT | O_APPEND, "write");
        if (const int code = write_all(file.number, contents)) fail("write", path, code);
    }

    bool exists(const std::string& path) override {
        std::error_code ignored;
        return fs::exists(path, ignored);
    }

    void make_folders(const std::string& path) override {
        std::error_code problem;
        fs::create_directories(path, problem);
        if (problem) fail("make", path, problem.value());
    }

    std::vector<std::string> list(const std::string& path) override {
        std::error_code problem;
        std::vector<std::string> names;
        for (fs::directory_iterator at(path, problem), end; !problem && at != end; at.increment(problem)) {
            names.push_back(at->path().filename());
        }
        if (problem) fail("list", path, problem.value());
        std::sort(names.begin(), names.end());
        return names;
    }
};

}  // namespace

std::unique_ptr<Env> system_env() { return std::make_unique<SystemEnv>(); }

}  // namespace orrery
