#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "run/control/exchange.h"

namespace orrery {

/// A communicator with memory to send from and to receive in, and what ranks that measure it tell each other by it.
class TrialLine {
public:
    static constexpr int64_t tag = 1;  ///< of all messages: those of a pair come in order

    /// `arena`: one of those that the communicator was made with, of arena_bytes() at least.
    TrialLine(Device& device, Communicator& communicator, const Memory& arena);

    /// For messages of up to `most` bytes.
    static int64_t arena_bytes(int64_t most);

    Device& device() const { return device_; }
    Communicator& communicator() const { return communicator_; }
    int ranks() const { return communicator_.group().size(); }
    int me() const { return communicator_.group().me; }
    int64_t most_bytes() const { return half_; }

    /// The memory to send from, filled with pattern() of this rank, and to receive in.
    void* out() const { return static_cast<char*>(arena_.data) + control_bytes; }
    void* in() const { return static_cast<char*>(out()) + half_; }
    void fill_pattern();
    /// Of the first bytes received, up to 4 MiB: how many differ from what that rank's pattern has.
    int64_t wrong_bytes(int64_t bytes, int from);
    void forget_received(int64_t bytes);

    /// Between the host and the device's memory; done when it returns.
    void copy(void* to, const void* from, int64_t bytes);

    /// A few numbers to and from one rank.
    void tell(int peer, std::span<const int64_t> words);
    std::vector<int64_t> hear(int peer, size_t count);
    /// The greatest of all ranks' numbers; returns when all have come.
    double greatest(double mine) { return reduced(mine, ReduceOp::max); }
    double sum(double mine) { return reduced(mine, ReduceOp::sum); }
    void meet() { greatest(0); }

private:
    static constexpr int64_t control_bytes = 4096;
    static constexpr size_t most_words = 64;
    double reduced(double mine, ReduceOp op);

    Device& device_;
    Communicator& communicator_;
    Memory arena_;
    int64_t half_;
};

/// Equally many numbers of each rank, one rank's behind the other's.
std::vector<double> numbers_of_all(Exchange& ranks, std::span<const double> mine);

}  // namespace orrery
