// What the members of a communicator of the stand-in share, threads of one process or processes of one host: a file in
// memory with a channel for each pair and direction. A message is done when its receiver has it, as NCCL promises no
// more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace orrery::standin {

constexpr int most_members = 16;

/// Bytes in order from one member to another.
struct Channel {
    static constexpr uint64_t room = 64 << 10;
    std::atomic<uint64_t> written, read;  ///< bytes since the beginning
    char bytes[room];
};

/// Messages and collectives do not mix.
enum class Kind : uint8_t { message, collective };

/// All zeros at first.
struct Shared {
    struct Member {
        std::atomic<bool> here;
        char gpu[96];
    } member[most_members];
    /// Which sides of a connection have come to use it, by kind, sender and receiver: bit 0 the sender, bit 1 the
    /// other.
    std::atomic<int> connection[2][most_members][most_members];
    Channel channel[2][most_members][most_members];
};

class World {
public:
    /// A new one. Its name is good until this process ends or forgets it, when all members have come.
    static std::string create();
    static void forget(const std::string& name);
    /// Throws std::runtime_error when there is none of this name.
    explicit World(const std::string& name);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    Shared* operator->() const { return shared_; }
    Channel& channel(Kind kind, int from, int to) const { return shared_->channel[static_cast<int>(kind)][from][to]; }

private:
    Shared* shared_;
};

/// Messages under way at the same time. Those of one channel and direction go in the order in which they are added.
class Transfers {
public:
    Transfers(const World& world, Kind kind, int me) : world_(world), kind_(kind), me_(me) {}
    void send(int to, const void* data, size_t bytes);
    /// `then` is called when the bytes are there; false ends the run.
    void receive(int from, void* data, size_t bytes, std::function<bool()> then = {});
    /// Returns when all are done; false: `over` became true before, or a `then` said so.
    bool run(const std::function<bool()>& over);

private:
    struct Transfer {
        Channel* channel;
        bool sends;
        char* data;
        uint64_t bytes, at, end;  ///< end: what the receiver has read of the channel then
        bool started;
        std::function<bool()> then;
    };
    bool advance(Transfer& t);
    bool first_of_its_kind(size_t index) const;

    const World& world_;
    Kind kind_;
    int me_;
    std::vector<Transfer> all_;
};

}  // namespace orrery::standin
