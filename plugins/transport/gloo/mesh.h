#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "orrery/communicator.h"

/// The part of Gloo that is used: TCP connections between all pairs of a group, and messages on them.
namespace orrery::gloo_transport {

/// The thread of Gloo's device, which reads and writes all messages in flight. Its loop tries a connection's lock, and
/// returns at once when a rank holds it to start a message: if it has preempted that very rank, it spins until the next
/// scheduler tick, 4 ms. So it may preempt a rank that computes, but not one that starts or waits for a message
/// (SCHED_BATCH, which needs no privilege). Costs two system calls a message, two a wait.
class LoopThread {
public:
    LoopThread() = default;
    /// 0: the thread is unknown, and nothing is done.
    explicit LoopThread(int id) : id_(id) {}
    void may_interrupt(bool yes) const;

private:
    int id_ = 0;
};

/// The ports at which pairs may listen (run.ports); zeros: any.
struct Ports {
    int first = 0, last = 0;
    int count() const { return last == 0 ? 0 : last - first + 1; }
    std::string text() const { return std::to_string(first) + "-" + std::to_string(last); }
};

struct OpenDevice {
    std::shared_ptr<::gloo::transport::Device> device;
    LoopThread loop;
};

/// Opens a TCP device on an interface ("veth0") or on an address or host name; exactly one of the two is not empty.
/// Throws Error, also when the name does not resolve to an address of this host. `ports`: where its pairs may listen.
OpenDevice open_device(const std::string& interface, const std::string& host, const Ports& ports);

struct Connected {
    std::shared_ptr<::gloo::Context> mesh;
    std::vector<std::string> places;  ///< by member, for messages: "rank 3 on host n2 at 10.0.0.2:4242"
};

std::string host_name();

/// Connects all members with each other through addresses exchanged over the rendezvous, within `timeout` after all
/// have come. Throws Fault::peer, naming both ends of the first pair that does not connect, or the rank that is lost,
/// and Fault::failed if other processes use the device's ports for that long.
Connected connect(const Group& group, Rendezvous& rendezvous, std::shared_ptr<::gloo::transport::Device> device,
                  const std::string& name, std::chrono::milliseconds timeout);

/// A message in flight, from or to any memory; reused for later messages. Throws ::gloo::Exception when its connection
/// fails.
class Transfer {
public:
    Transfer(::gloo::Context& context, LoopThread loop);
    void start(void* data, int64_t bytes, int peer, bool sends, uint64_t slot);
    /// Blocks until the message is done. Returns false when cancelled; a timeout throws, and closes the connection.
    bool wait(std::chrono::milliseconds timeout);
    /// Whether the message is done; throws like wait(). Gloo can only be waited for, so the first call starts a thread
    /// that waits.
    bool done(std::chrono::milliseconds timeout);
    /// Cancels a wait of another thread, or the next one.
    void cancel();
    int peer() const { return peer_; }
    /// "it waited for a message of 4096 bytes from", for messages; the peer follows.
    std::string text() const;

private:
    bool wait_here(std::chrono::milliseconds timeout);
    const LoopThread loop_;
    int peer_ = 0;
    int64_t bytes_ = 0;
    bool sends_ = false;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
    std::future<bool> waiter_;
};

}  // namespace orrery::gloo_transport
