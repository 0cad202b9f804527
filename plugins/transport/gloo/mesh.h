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

/// The device's thread, which reads and writes what is under way. Gloo's loop tries a connection's lock and, where a
/// rank holds it that is just handing over a message, comes back at once: where it has interrupted that very rank, it
/// spins until the next tick, 4 ms. So it may interrupt a rank that computes, but none that hands over or waits
/// (SCHED_BATCH, which needs no privilege). Two system calls a message, two a wait.
class LoopThread {
public:
    LoopThread() = default;
    /// 0: not known, nothing is done.
    explicit LoopThread(int id) : id_(id) {}
    void may_interrupt(bool yes) const;

private:
    int id_ = 0;
};

struct OpenDevice {
    std::shared_ptr<::gloo::transport::Device> device;
    LoopThread loop;
};

/// A TCP device on an interface ("veth0") or an address or host name; exactly one is not empty. Throws Error, also
/// where the name does not resolve to an address of this host.
OpenDevice open_device(const std::string& interface, const std::string& host);

struct Connected {
    std::shared_ptr<::gloo::Context> mesh;
    std::vector<std::string> places;  ///< by member, for messages: "rank 3 on host n2 at 10.0.0.2:4242"
};

/// The name of this host.
std::string host_name();

/// All members, connected to each other through addresses exchanged over the rendezvous, within `timeout` once all have
/// come. Throws Fault::peer, naming both ends of the first pair that does not connect, or the rank that is lost.
Connected connect(const Group& group, Rendezvous& rendezvous, std::shared_ptr<::gloo::transport::Device> device,
                  const std::string& name, std::chrono::milliseconds timeout);

/// One message at a time, from or to any memory; kept for the next one when it is over. Throws ::gloo::Exception when
/// its connection fails.
class Transfer {
public:
    Transfer(::gloo::Context& context, LoopThread loop);
    void start(void* data, int64_t bytes, int peer, bool sends, uint64_t slot);
    /// Waits for the end. False when cancelled; a timeout throws, and closes the connection.
    bool wait(std::chrono::milliseconds timeout);
    /// True when it has ended; throws as wait() does. Gloo can only be waited for, so the first call starts a waiter.
    bool done(std::chrono::milliseconds timeout);
    /// Ends a wait of another thread, or the next one.
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
