#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ucp/api/ucp.h>

#include "orrery/p2p.h"
#include "reach.h"

/// The part of UCX that is used: tagged messages between the members of a group, and an active message that aborts.
namespace orrery::ucx {

using Milliseconds = std::chrono::milliseconds;

/// One member's UCX worker, with an endpoint to each other member. Thread-safe.
class Worker {
public:
    Worker(const Group& group, const Rendezvous& rendezvous, const Reach& reach, Milliseconds timeout);
    ~Worker();
    Worker(const Worker&) = delete;

    std::string address() const;
    void connect(std::vector<Place> places);

    /// Starts a transfer and returns its ticket; 0 means done. `until_received`: the send completes when it is
    /// received, not before. `copies`: data is copied and may change at once, for up to this many sends per peer; other
    /// sends use the caller's memory.
    uint64_t send(int peer, const void* data, int64_t bytes, uint64_t tag, bool until_received, int copies = 0);
    uint64_t receive(int peer, void* data, int64_t bytes, uint64_t tag);
    /// Waits for the transfer. Returns "" when it is done, otherwise why it never will be.
    std::string finish(uint64_t ticket);
    /// False while the transfer is in flight.
    bool ended(uint64_t ticket);
    /// Why the group's transfers have ended; "" if they have not.
    std::string given_up() const { return over() ? reason() : ""; }
    /// Ends every wait here and, by an active message, at the other members.
    void abort(const std::string& why);

private:
    struct Peer {
        Worker* worker = nullptr;
        ucp_ep_h endpoint = nullptr;
        Place place;
        std::string broken;  ///< UCX's error of the connection
        int copies = 0;      ///< copied sends in flight
        bool late = false;   ///< a wait for it has timed out
        bool eager = false;  ///< collectives' sends do not wait for the receive to be posted
    };
    struct Transfer {
        ucs_status_ptr_t request = nullptr;
        int peer = 0;
        int64_t bytes = 0;
        uint32_t uses = 0;  ///< distinguishes a ticket from later ones of this slot
        bool free = true;
        bool copied = false;     ///< no caller waits for this send
        std::vector<char> copy;  ///< its data; the memory is reused
    };
    Transfer* find(uint64_t ticket);
    uint32_t place();
    uint64_t keep(uint32_t place, ucs_status_ptr_t request, int peer, int64_t bytes, bool copied);
    void release(Transfer& transfer);
    bool over() const { return over_.load(std::memory_order_acquire); }
    void give_up(const std::string& why);
    std::string reason() const;
    /// Describes a transfer that failed or whose peer broke. Takes no lock.
    std::string failure(int peer, const std::string& how);
    std::string late(int peer);
    std::string waited(int peer, int64_t bytes) const;
    std::string unreachable(size_t peer, ucs_status_t status) const;
    /// Calls UCX, which moves data only when it is called: so a send to a slow receiver progresses while this member
    /// computes.
    void run(std::stop_token stop);
    void reap();
    void break_off(int peer, ucs_status_t status);
    void flush_copies();
    bool close();
    static ucs_status_t aborted(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);
    static void broke(void* peer, ucp_ep_h endpoint, ucs_status_t status);

    const Group& group_;
    const Rendezvous& rendezvous_;
    const Reach reach_;
    const Milliseconds timeout_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::atomic<bool> over_{false};
    std::atomic<int> under_way_{0}, wanted_{0};
    std::mutex mutex_;  // guards UCX and what follows
    std::vector<Transfer> transfers_;
    std::vector<uint32_t> free_;
    mutable std::mutex reason_mutex_;  // guards why_
    std::string why_;
    std::jthread progress_;
};

}  // namespace orrery::ucx
