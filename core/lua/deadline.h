#pragma once
#include <condition_variable>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "orrery/error.h"

namespace orrery::lua {

/// The end of a script that the count of instructions does not see: a hostile pattern is one instruction that can last
/// for years. Watches the processor time of the thread that made it, from a thread of its own.
class Deadline {
public:
    /// `late` gets the line seen last, on the watching thread, once; it is to end the process, as nothing can
    /// interrupt Lua there.
    Deadline(double seconds, std::function<void(const Origin&)> late);
    ~Deadline();
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

    /// The script is at this line.
    void see(Origin place);

    /// While one lives, time stands still: what the host does is not the script's. `deadline` may be null.
    class [[nodiscard]] Pause {
    public:
        explicit Pause(Deadline* deadline);
        ~Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

    private:
        Deadline* deadline_;
        double began_ = 0;
    };

private:
    double used_s() const;
    void watch();

    clockid_t clock_{};
    double end_s_ = 0;  ///< on that clock
    int paused_ = 0;
    bool over_ = false;
    Origin seen_;
    std::function<void(const Origin&)> late_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
};

}  // namespace orrery::lua
