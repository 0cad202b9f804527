#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/seconds.h"
#include "base/text.h"
#include "run/preflight/outliers.h"
#include "run/preflight/rank_checks.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view trial_prefix = ".preflight-";
constexpr int64_t block = 1 << 20;
constexpr double long_enough_s = 0.15;  ///< min seconds of a timed write, which limits the bytes written to a slow disk
constexpr int pieces = 3, syncs = 5;

/// Thrown when the file system refuses an operation; one line of text.
struct Refusal {
    std::string text;
};

[[noreturn]] void refuse(const std::string& what, const std::string& path, int code) {
    throw Refusal{fmt::format("cannot {} {}: {}", what, path, std::strerror(code))};
}

/// Opens a file without a name, so that an interrupted check leaves nothing and checks cannot collide.
int open_nameless(const std::string& folder) {
    const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)) return file;
    // Some file systems, such as NFS, do not support files without a name. The name is random, since processes in two
    // containers may have the same pid.
    std::random_device random;
    const std::string path = fmt::format("{}/{}{:08x}{:08x}", folder, trial_prefix, random(), random());
    const int named = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (named >= 0) ::unlink(path.c_str());
    return named;
}

class TrialFile {
public:
    explicit TrialFile(const std::string& folder) : path_("a file in " + folder) {
        constexpr int tries = 10;
        for (int i = 0; i < tries && file_ < 0; ++i) {
            std::error_code problem;
            std::filesystem::create_directories(folder, problem);
            if (problem) refuse("make", folder, problem.value());
            file_ = open_nameless(folder);
            // Another check that created the folder may have removed it while it was empty.
            if (file_ < 0 && errno != ENOENT) break;
        }
        if (file_ < 0) refuse("make", path_, errno);
    }
    ~TrialFile() { ::close(file_); }
    TrialFile(const TrialFile&) = delete;

    /// Time of the last write, on the file system's clock, which may differ from the host's.
    time_t last_written() const {
        struct stat info {};
        return ::fstat(file_, &info) == 0 ? info.st_mtime : 0;
    }

    /// Appends `bytes` bytes to the file. Returns the seconds, including fsync.
    double write(int64_t bytes) {
        const auto begin = Clock::now();
        for (int64_t left = bytes; left > 0;) {
            const std::vector<char>& data = contents(size_ / block);
            const int64_t within = size_ % block, most = std::min(left, block - within);
            if (const int code = write_all(file_, {data.data() + within, static_cast<size_t>(most)}))
                refuse(fmt::format("write {} to", bytes_text(bytes)), path_, code);
            size_ += most;
            left -= most;
        }
        if (::fsync(file_) != 0) refuse("fsync", path_, errno);
        return seconds_since(begin);
    }

    /// Reads the whole file and compares its contents. Returns the seconds of reading.
    double read() {
        ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);  // if ignored, the read measures the page cache
        if (::lseek(file_, 0, SEEK_SET) != 0) refuse("read", path_, errno);
        std::vector<char> found(block);
        double seconds = 0;
        for (int64_t at = 0; at < size_;) {
            const auto begin = Clock::now();
            const ssize_t got = ::read(file_, found.data(), static_cast<size_t>(block - at % block));
            seconds += seconds_since(begin);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) refuse("read", path_, errno);
            if (got == 0) throw Refusal{fmt::format("{} ends after {} of {} bytes", path_, at, size_)};
            if (std::memcmp(found.data(), contents(at / block).data() + at % block, static_cast<size_t>(got)) != 0)
                throw Refusal{fmt::format("{}: data read back differs from what was written, near byte {}", path_, at)};
            at += got;
        }
        return seconds;
    }

    int64_t size() const { return size_; }

private:
    /// Returns the contents of block `number`; each page differs, so that no file system deduplicates them.
    const std::vector<char>& contents(int64_t number) {
        if (data_.empty()) {
            data_.resize(block);
            uint64_t state = 0x9e3779b97f4a7c15u;  // random bits, so that the file system cannot compress them
            for (size_t i = 0; i < data_.size(); i += 8) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                std::memcpy(data_.data() + i, &state, 8);
            }
        }
        for (int64_t page = 0; page < block; page += 4096) {
            const int64_t place = number * block + page;
            std::memcpy(data_.data() + page, &place, 8);
        }
        return data_;
    }

    const std::string path_;
    int file_ = -1;
    int64_t size_ = 0;
    std::vector<char> data_;
};

/// Removes files that interrupted checks of versions with named files left, up to 32 MiB each. Keeps files written
/// within the last hour, since a running check on any host may use them.
void remove_left(const std::string& folder, time_t now) {
    constexpr time_t old_s = 3600;
    std::error_code problem;
    for (std::filesystem::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        if (!at->path().filename().string().starts_with(trial_prefix)) continue;
        struct stat info {};
        if (::lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_mtime < now - old_s)
            ::unlink(at->path().c_str());
    }
}

void use(const RankCheckOptions& options, RankFigures& figures) {
    TrialFile file(options.folder);
    std::vector<double> seconds;
    for (int i = 0; i < syncs; ++i) seconds.push_back(file.write(4096));
    remove_left(options.folder, file.last_written());
    figures.sync_s = median(std::exchange(seconds, {}));
    int64_t piece = std::min(block, options.storage_bytes);
    while (file.write(piece) < long_enough_s && piece < options.storage_bytes)
        piece = std::min(2 * piece, options.storage_bytes);
    for (int i = 0; i < pieces; ++i) seconds.push_back(static_cast<double>(piece) / file.write(piece));
    figures.write_bytes = median(std::move(seconds));
    figures.read_bytes = static_cast<double>(file.size()) / std::max(file.read(), 1e-9);
}

}  // namespace

void check_storage(const RankCheckOptions& options, RankFigures& figures) {
    try {
        use(options, figures);
    } catch (const Refusal& refusal) {
        figures.storage_problem = refusal.text;
    }
}

}  // namespace orrery
