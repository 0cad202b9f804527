#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "orrery/communicator.h"

/// The part of Gloo that is used: TCP connections between all pairs of a group, and messages on them.
namespace orrery::gloo_transport {

/// A TCP device on an interface ("veth0") or an address or host name; exactly one is not empty. Throws Error, also
/// where the name does not resolve to an address of this host.
std::shared_ptr<::gloo::transport::Device> open_device(const std::string& interface, const std::string& host);

/// All members, connected to each other through addresses exchanged over the rendezvous.
std::shared_ptr<::gloo::Context> connect(const Group& group, Rendezvous& rendezvous,
                                         std::shared_ptr<::gloo::transport::Device> device, const std::string& name,
                                         std::chrono::milliseconds timeout);

/// One message at a time, from or to any memory; kept for the next one when it is over. Throws ::gloo::Exception when
/// its connection fails.
class Transfer {
public:
    explicit Transfer(::gloo::Context& context);
    void start(void* data, int64_t bytes, int peer, bool sends, uint64_t slot);
    /// Waits for the end. False when cancelled; a timeout throws, and closes the connection.
    bool wait(std::chrono::milliseconds timeout);
    /// True when it has ended; throws as wait() does. Gloo can only be waited for, so the first call starts a waiter.
    bool done(std::chrono::milliseconds timeout);
    /// Ends a wait of another thread, or the next one.
    void cancel();
    int peer() const { return peer_; }

private:
    bool wait_here(std::chrono::milliseconds timeout);
    int peer_ = 0;
    bool sends_ = false;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
    std::future<bool> waiter_;
};

}  // namespace orrery::gloo_transport
