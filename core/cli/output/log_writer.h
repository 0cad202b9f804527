#pragma once
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/output/rank_log.h"

namespace orrery {

/// Writes the logs of ranks on a thread of its own, so that a disk that hangs blocks no output of ranks. Output waits
/// in memory until its file is known; what does not fit there is left out of its middle, and the log says so.
class LogWriter {
public:
    LogWriter();
    ~LogWriter();
    LogWriter(const LogWriter&) = delete;

    void write(int64_t source, std::string_view bytes);
    /// Sets the file of a source, unless it has one. `folder`: the run's folder.
    void begin(int64_t source, const std::string& folder, int64_t generation, int64_t rank);
    /// Finishes the log of a source, which gets no more output. A source without a file is forgotten.
    void finish(int64_t source);
    /// Waits until all is written, at most for `limit`.
    void flush(std::chrono::milliseconds limit);
    /// Returns new problems, one line each: "cannot write logs/g1-rank0.txt: No space left on device".
    std::string problems();

private:
    struct Log {
        std::unique_ptr<RankLog> file = {};
        std::string folder = {};
        int64_t generation = 0;
        bool opened = false;
        std::string waiting = {};
        size_t left_out = 0;  ///< bytes that were removed from the middle of `waiting`
        bool finished = false, told = false;
    };
    void run();
    /// Returns the next log with something to do, in turn, or the end.
    std::map<int64_t, Log>::iterator due();

    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    std::map<int64_t, Log> logs_;
    std::string problems_;
    std::pair<std::string, int64_t> cleaned_;  ///< folder and generation in which old logs were removed last
    int64_t served_ = -1;                      ///< source that was written last
    bool writing_ = false, ending_ = false;
    std::thread thread_;
};

}  // namespace orrery
