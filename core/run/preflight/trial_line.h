#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/communicator.h"
#include "run/control/exchange.h"

namespace orrery {

/// A communicator with memory to send from and to receive into. Ranks that measure the communicator also exchange
/// numbers and texts over it.
class TrialLine {
public:
    static constexpr int64_t tag = 1;  ///< one tag is enough: messages of a pair arrive in order

    /// `arena`: memory of at least arena_bytes() that the communicator was made with.
    TrialLine(Device& device, Communicator& communicator, const Memory& arena);

    /// Bytes of arena needed for messages of up to `most` bytes.
    static int64_t arena_bytes(int64_t most);

    Device& device() const { return device_; }
    Communicator& communicator() const { return communicator_; }
    int ranks() const { return communicator_.group().size(); }
    int me() const { return communicator_.group().me; }
    int64_t most_bytes() const { return half_; }

    /// Memory to send from, filled with this rank's pattern(), and memory to receive into.
    void* out() const { return static_cast<char*>(arena_.data) + control_bytes; }
    void* in() const { return static_cast<char*>(out()) + half_; }
    void fill_pattern();
    /// Number of received bytes that differ from rank `from`'s pattern; compares at most the first 4 MiB of `bytes`.
    int64_t wrong_bytes(int64_t bytes, int from);
    void forget_received(int64_t bytes);

    /// Copies between host and device memory; returns when done.
    void copy(void* to, const void* from, int64_t bytes);

    /// tell() sends a few numbers to rank `peer`; hear() receives numbers from rank `peer`.
    void tell(int peer, std::span<const int64_t> words);
    std::vector<int64_t> hear(int peer, size_t count);
    /// Returns the max of all ranks' numbers, once all ranks have called it.
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

/// Returns all ranks' numbers, concatenated in rank order. Collective. All ranks must pass equally many.
std::vector<double> numbers_of_all(Exchange& ranks, std::span<const double> mine);

}  // namespace orrery
