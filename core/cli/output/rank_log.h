#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery {

/// Returns the file with the output of a rank: logs/g2-rank3.txt in the run's folder. Generation 0: the start ended
/// before it had claimed a generation.
std::string rank_log_path(const std::string& folder, int64_t generation, int64_t rank);

/// Removes the logs of generations that are `kept_logs` or more older than `generation`.
constexpr int64_t kept_logs = 10;
void remove_old_logs(const std::string& folder, int64_t generation);

/// A file with the output of a rank, of `limit` bytes at most. Output beyond that overwrites the second half of the
/// file as a ring, in which a line separates the newest output from the oldest that is still there:
///     "\n[orrery: 00000000000001234567 bytes of output are left out here]\n"
/// Nothing throws or ends the process: output that cannot be written is counted, and a line says so once the file can
/// be written again.
class RankLog {
public:
    static constexpr int64_t largest = 16 << 20;

    /// Replaces a file of this name. `limit`: even, and larger than four of those lines.
    explicit RankLog(std::string path, int64_t limit = largest) : path_(std::move(path)), limit_(limit) {}
    ~RankLog();
    RankLog(const RankLog&) = delete;

    /// Creates the file if it is not open; false: it cannot be.
    bool open();
    void write(std::string_view bytes);
    /// Puts the second half in order: the line first, then the last output. Call it when no output is expected.
    void finish();
    const std::string& path() const { return path_; }
    /// Why output is missing since the last successful write, "No space left on device"; "": nothing is missing.
    const std::string& problem() const { return problem_; }

private:
    bool store(std::string_view bytes);
    bool put(std::string_view bytes, int64_t at);
    bool ring(std::string_view bytes, int64_t at);
    bool failed(int code);
    std::string line(int64_t total) const;

    const std::string path_;
    const int64_t limit_;
    int file_ = -1;
    int64_t total_ = 0;  ///< bytes of output in the file or left out
    int64_t lost_ = 0;   ///< bytes that could not be written since the last successful write
    bool finished_ = false;
    std::string problem_;
};

/// Reads the log of a rank while the rank writes it: returns its output in order, and what is new at each later call.
class RankLogReader {
public:
    explicit RankLogReader(std::string path, int64_t limit = RankLog::largest)
        : path_(std::move(path)), limit_(limit) {}
    /// Returns the output since the last call, with the line where output is left out. Throws Error, Fault::failed, if
    /// the file cannot be read.
    std::string next();

private:
    const std::string path_;
    const int64_t limit_;
    int64_t told_ = 0;  ///< bytes of output that earlier calls returned or left out
};

}  // namespace orrery
