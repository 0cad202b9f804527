#pragma once
#include <condition_variable>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "orrery/error.h"

namespace orrery::lua {

/// Ends scripts that the instruction limit cannot stop: one string match with a hostile pattern is a single instruction
/// and can last for years. A thread of its own watches the processor time of the thread that made this object.
class Deadline {
public:
    /// `late` is called once, on the watching thread, with the line recorded last. `late` must end the process, because
    /// nothing can interrupt Lua.
    Deadline(double seconds, std::function<void(const Origin&)> late);
    ~Deadline();
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

    /// Records the line that the script has reached, for `late`.
    void see(Origin place);

    /// Stops a deadline's clock while this object exists, during work of the host. `deadline` may be null.
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
    double end_s_ = 0;  ///< deadline in processor time of the watched thread
    int paused_ = 0;
    bool over_ = false;
    Origin seen_;
    std::function<void(const Origin&)> late_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
};

}  // namespace orrery::lua
