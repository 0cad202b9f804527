#include "cli/supervise/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "control/loss.h"

namespace orrery {
namespace {

constexpr int told_done = 1, told_loss = 2;
constexpr const char* name = "ORRERY_BOARD";

static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(RankTells) == 1024);

void* map(int file, size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        throw Error(fmt::format("cannot map the launcher's progress table: {}", std::strerror(errno)), Fault::failed);
    return memory;
}

}  // namespace

int64_t monotonic_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Board::Board(int64_t ranks) : bytes_(static_cast<size_t>(ranks) * sizeof(RankTells)) {
    file_ = ::memfd_create("orrery-board", 0);  // ranks inherit this shared memory
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0)
        throw Error(fmt::format("cannot create the launcher's progress table: {}", std::strerror(errno)),
                    Fault::failed);
    tells_ = static_cast<RankTells*>(map(file_, bytes_));
}

Board::~Board() {
    ::munmap(tells_, bytes_);
    ::close(file_);
}

std::string Board::variable(int64_t local, int64_t best) const {
    return fmt::format("{}={}:{}:{}", name, file_, local, best);
}

std::unique_ptr<OwnPlace> OwnPlace::of_environment() {
    const char* text = std::getenv(name);
    if (!text) return nullptr;
    int file = -1;
    long long local = -1, best = 0;
    struct stat found {};
    const bool said = std::sscanf(text, "%d:%lld:%lld", &file, &local, &best) == 3 && file >= 0 && local >= 0;
    const auto room = static_cast<int64_t>(sizeof(RankTells));
    if (!said || ::fstat(file, &found) != 0 || found.st_size < (local + 1) * room)
        throw Error(fmt::format(
            "environment: {}={} is not a progress table of a running launcher\n  unset the variable", name, text));
    const auto bytes = static_cast<size_t>(found.st_size);
    void* memory = map(file, bytes);
    ::close(file);  // programs started by a script must not inherit the shared memory
    ::unsetenv(name);
    return std::unique_ptr<OwnPlace>(new OwnPlace(memory, bytes, static_cast<RankTells*>(memory)[local], best));
}

OwnPlace::~OwnPlace() { ::munmap(memory_, bytes_); }

void OwnPlace::resumed(int64_t step) {
    tells_.step = step;
    if (tells_.began_ns != 0) return;
    tells_.resumed = step;
    tells_.began_ns = monotonic_ns();
}

void OwnPlace::finished(int64_t step) {
    const int64_t now = monotonic_ns();
    if (step <= best_) tells_.repeated_ns = now;
    tells_.last_ns = now;
    tells_.step = step;
}

void OwnPlace::failed(const Loss& how) {
    const std::string text = encode(how);
    tells_.loss[text.copy(tells_.loss, sizeof tells_.loss - 1)] = 0;
    tells_.end = told_loss;
}

void OwnPlace::done() { tells_.end = told_done; }

}  // namespace orrery
