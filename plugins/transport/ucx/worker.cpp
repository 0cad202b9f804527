#include "worker.h"

#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace orrery::ucx {

using Clock = std::chrono::steady_clock;

namespace {

constexpr unsigned abort_id = 1;
constexpr int look_every = 64;      // calls of UCX between two checks for aborts
constexpr int spin_rounds = 40;     // number of such checks before the core is yielded
constexpr int yield_rounds = 4000;  // number of such checks before the thread sleeps

void require(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw Error(std::string("transport ucx: ") + what + ": " + ucs_status_string(status), Fault::failed);
}

ucp_context_h open_context(const Reach& reach) {
    ucp_config_t* config = nullptr;
    require(ucp_config_read(nullptr, nullptr, &config), "cannot read UCX's environment");
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> keep(config, ucp_config_release);
    const auto set = [&](const char* key, const std::string& value) {
        if (!value.empty()) require(ucp_config_modify(config, key, value.c_str()), key);
    };
    set("TLS", reach.transports);
    set("NET_DEVICES", reach.devices);
    // Without it UCX falls back from shared memory to TCP when dead peers are to be reported.
    set("MM_ERROR_HANDLING", "y");
    if (!std::getenv("UCX_RNDV_SEND_NBR_THRESH"))
        set("RNDV_SEND_NBR_THRESH", "inf");  // applies only to sends with UCP_OP_ATTR_FLAG_FAST_CMPL
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM;
    ucp_context_h context = nullptr;
    require(ucp_init(&params, config, &context), "cannot initialize UCX");
    return context;
}

/// Explains UCX's error "no resources" when the shared memory of its workers does not fit.
std::string shared_memory_text() {
    constexpr uint64_t worker_bytes = 5 << 20;  // what a worker of UCX 1.13 takes
    struct statvfs space {};
    if (::statvfs("/dev/shm", &space) != 0) return "";
    const uint64_t free = space.f_bavail * space.f_frsize;
    if (free >= worker_bytes) return "";
    return " (/dev/shm has " + std::to_string(free >> 10) + " KiB free, a worker of each rank and axis takes about " +
           std::to_string(worker_bytes >> 10) +
           ": make it larger, as containers do with --shm-size, or set transport.ucx.transports = \"tcp\")";
}

ucp_worker_h open_worker(ucp_context_h context) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucp_worker_h worker = nullptr;
    const ucs_status_t status = ucp_worker_create(context, &params, &worker);
    require(status, ("cannot create a UCX worker" + (status == UCS_OK ? "" : shared_memory_text())).c_str());
    return worker;
}

}  // namespace

Worker::Worker(const Group& group, const Rendezvous& rendezvous, const Reach& reach, Milliseconds timeout)
    : group_(group), rendezvous_(rendezvous), reach_(reach), timeout_(timeout), context_(open_context(reach)) {
    try {
        worker_ = open_worker(context_);
    } catch (const Error&) {
        ucp_cleanup(context_);
        throw;
    }
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = abort_id;
    handler.cb = aborted;
    handler.arg = this;
    ucp_worker_set_am_recv_handler(worker_, &handler);
    progress_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

Worker::~Worker() {
    progress_.request_stop();
    progress_.join();
    // UCX ends the process when a worker is destroyed before its endpoints: leak it instead.
    if (!close()) return;
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
}

/// Waits for copied sends, which no caller waits for, until they are received, or their peer or the group is lost. A
/// peer that has timed out before is not waited for again.
void Worker::flush_copies() {
    const auto deadline = Clock::now() + timeout_;
    const auto under_way = [&] {
        return std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& t) {
            const Peer& peer = *peers_[static_cast<size_t>(t.peer)];
            return !t.free && t.copied && peer.broken.empty() && !peer.late;
        });
    };
    for (int round = 0; under_way() && !over() && Clock::now() < deadline; ++round) {
        for (int i = 0; i < look_every && ucp_worker_progress(worker_) > 0; ++i) {
        }
        reap();
        if (round % look_every == 0 && !rendezvous_.lost().empty()) return;
        if (round > spin_rounds) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

/// Waits until sends have arrived, unless the group is broken or a transfer was given up, then closes endpoints with
/// all that is in flight. Returns false when they do not close.
bool Worker::close() {
    flush_copies();
    const bool given_up = std::any_of(transfers_.begin(), transfers_.end(), [](const Transfer& t) { return !t.free; });
    std::vector<ucs_status_ptr_t> closing;
    for (const auto& peer : peers_) {
        if (!peer || !peer->endpoint) continue;
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        if (over() || given_up || !peer->broken.empty()) param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        const ucs_status_ptr_t request = ucp_ep_close_nbx(peer->endpoint, &param);
        if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    }
    const auto deadline = Clock::now() + Milliseconds(1000);
    const auto under_way = [](ucs_status_ptr_t r) { return ucp_request_check_status(r) == UCS_INPROGRESS; };
    while (std::any_of(closing.begin(), closing.end(), under_way) && Clock::now() < deadline)
        if (ucp_worker_progress(worker_) == 0) ::sched_yield();
    const bool closed = std::none_of(closing.begin(), closing.end(), under_way);
    for (const ucs_status_ptr_t request : closing) ucp_request_free(request);
    for (Transfer& transfer : transfers_) {
        if (transfer.free || !UCS_PTR_IS_PTR(transfer.request)) continue;
        ucp_request_cancel(worker_, transfer.request);
        for (int i = 0; i < 1000 && under_way(transfer.request); ++i) ucp_worker_progress(worker_);
        ucp_request_free(transfer.request);
    }
    return closed;
}

std::string Worker::address() const {
    ucp_address_t* address = nullptr;
    size_t bytes = 0;
    require(ucp_worker_get_address(worker_, &address, &bytes), "no address");
    std::string text(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_, address);
    return text;
}

void Worker::connect(std::vector<Place> places) {
    const std::lock_guard lock(mutex_);
    const std::string host = places[static_cast<size_t>(group_.me)].host;
    for (size_t i = 0; i < places.size(); ++i) {
        peers_.push_back(std::make_unique<Peer>());
        Peer& peer = *peers_.back();
        peer.worker = this;
        peer.place = std::move(places[i]);
        peer.eager = reach_.over_tcp(peer.place.host == host);
        if (static_cast<int>(i) == group_.me) continue;
        ucp_ep_params_t params{};
        params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = reinterpret_cast<const ucp_address_t*>(peer.place.address.data());
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {broke, &peer};
        if (const ucs_status_t status = ucp_ep_create(worker_, &params, &peer.endpoint); status != UCS_OK)
            throw Error("transport ucx: " + group_.name + ": " + unreachable(i, status), Fault::failed);
    }
}

uint64_t Worker::send(int peer, const void* data, int64_t bytes, uint64_t tag, bool until_received, int copies) {
    const std::lock_guard lock(mutex_);
    Peer& to = *peers_[static_cast<size_t>(peer)];
    ucp_request_param_t param{};
    if (copies > 0) reap();
    const uint32_t at = place();
    // The caller must learn of a broken peer, so it has to wait for this send.
    const bool copied = to.copies < copies && to.broken.empty();
    if (copied) {
        std::vector<char>& copy = transfers_[at].copy;
        copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
        data = copy.data();
    }
    // README.md says why sends of collectives are eager and others are not.
    if (to.eager && !until_received) param.op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL;
    const auto count = static_cast<size_t>(bytes);
    const ucs_status_ptr_t request = until_received ? ucp_tag_send_sync_nbx(to.endpoint, data, count, tag, &param)
                                                    : ucp_tag_send_nbx(to.endpoint, data, count, tag, &param);
    return keep(at, request, peer, bytes, copied);
}

uint64_t Worker::receive(int peer, void* data, int64_t bytes, uint64_t tag) {
    const std::lock_guard lock(mutex_);
    ucp_request_param_t param{};
    const uint32_t at = place();
    return keep(at, ucp_tag_recv_nbx(worker_, data, static_cast<size_t>(bytes), tag, ~uint64_t{0}, &param), peer, bytes,
                false);
}

/// A free slot, until keep() takes it.
uint32_t Worker::place() {
    if (free_.empty()) {
        const size_t more =
            std::max<size_t>(64, transfers_.size());  // rare: only when more transfers are in flight than ever before
        free_.reserve(transfers_.size() + more);
        for (size_t i = 0; i < more; ++i) free_.push_back(static_cast<uint32_t>(transfers_.size() + i));
        transfers_.resize(transfers_.size() + more);
    }
    return free_.back();
}

uint64_t Worker::keep(uint32_t place, ucs_status_ptr_t request, int peer, int64_t bytes, bool copied) {
    if (request == nullptr) return 0;
    if (UCS_PTR_IS_ERR(request) && copied) {
        break_off(peer, UCS_PTR_STATUS(request));
        return 0;
    }
    free_.pop_back();
    Transfer& transfer = transfers_[place];
    transfer.request = request;
    transfer.peer = peer;
    transfer.bytes = bytes;
    transfer.free = false;
    transfer.copied = copied;
    ++transfer.uses;
    under_way_.fetch_add(1, std::memory_order_relaxed);
    if (!copied) return uint64_t{transfer.uses} << 32 | place;
    ++peers_[static_cast<size_t>(peer)]->copies;
    return 0;
}

Worker::Transfer* Worker::find(uint64_t ticket) {
    const auto slot = static_cast<uint32_t>(ticket);
    if (ticket == 0 || slot >= transfers_.size()) return nullptr;
    Transfer& transfer = transfers_[slot];
    return transfer.free || transfer.uses != ticket >> 32 ? nullptr : &transfer;
}

void Worker::release(Transfer& transfer) {
    if (UCS_PTR_IS_PTR(transfer.request)) ucp_request_free(transfer.request);
    if (transfer.copied) --peers_[static_cast<size_t>(transfer.peer)]->copies;
    transfer.request = nullptr;
    transfer.copied = false;
    transfer.free = true;
    free_.push_back(static_cast<uint32_t>(&transfer - transfers_.data()));
    under_way_.fetch_sub(1, std::memory_order_relaxed);
}

namespace {
ucs_status_t status_of(ucs_status_ptr_t request) {
    return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : ucp_request_check_status(request);
}
}  // namespace

bool Worker::ended(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    const Transfer* transfer = find(ticket);
    if (!transfer) return true;
    ucp_worker_progress(worker_);
    return status_of(transfer->request) != UCS_INPROGRESS || over() ||
           !peers_[static_cast<size_t>(transfer->peer)]->broken.empty();
}

std::string Worker::finish(uint64_t ticket) {
    if (ticket == 0) return {};
    Clock::time_point start{};
    for (int round = 0;; ++round) {
        int peer = 0;
        int64_t bytes = 0;
        std::string how;
        {
            const std::lock_guard lock(mutex_);
            Transfer* const transfer = find(ticket);
            if (!transfer) return {};
            peer = transfer->peer;
            bytes = transfer->bytes;
            for (int i = 0; i < look_every; ++i) {
                const ucs_status_t status = status_of(transfer->request);
                if (status == UCS_OK) {
                    release(*transfer);
                    return {};
                }
                if (status != UCS_INPROGRESS) {
                    how = ucs_status_string(status);
                    release(*transfer);
                    break;
                }
                ucp_worker_progress(worker_);
            }
            if (how.empty()) how = peers_[static_cast<size_t>(peer)]->broken;
        }
        if (over()) return reason() + waited(peer, bytes);
        if (!how.empty()) return failure(peer, how);
        if (round == spin_rounds) start = Clock::now();
        if (round > spin_rounds && Clock::now() - start > timeout_) return late(peer) + waited(peer, bytes);
        if (wanted_.load(std::memory_order_relaxed) > 0 || round > yield_rounds)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        else if (round > spin_rounds)
            ::sched_yield();
    }
}

/// Says what this rank waited for, because no other rank knows where a message is stuck.
std::string Worker::waited(int peer, int64_t bytes) const {
    const auto p = static_cast<size_t>(peer);
    return "; over ucx it waited for a message of " + std::to_string(bytes) + " bytes with rank " +
           std::to_string(group_.ranks[p]) + " on " + peers_[p]->place.name;
}

std::string Worker::late(int peer) {
    const auto p = static_cast<size_t>(peer);
    {
        const std::lock_guard lock(mutex_);
        peers_[p]->late = true;
    }
    std::string text = "rank " + std::to_string(group_.ranks[p]);
    const bool here = peers_[p]->place.host == peers_[static_cast<size_t>(group_.me)]->place.host;
    if (here) text += " (pid " + std::to_string(peers_[p]->place.pid) + ")";
    text += " timed out: no answer within " + std::to_string(timeout_.count()) +
            " ms (raise it by run.timeout_s, or transport.ucx's own)";
    return here ? text + "; its process " + process_state(peers_[p]->place.pid) : text;
}

std::string Worker::unreachable(size_t peer, ucs_status_t status) const {
    return "rank " + std::to_string(group_.ranks[static_cast<size_t>(group_.me)]) + " cannot reach rank " +
           std::to_string(group_.ranks[peer]) + " on " + peers_[peer]->place.name + " " + reach_.text() + ": " +
           ucs_status_string(status) +
           "; set transport.ucx.transports (UCX_TLS) and transport.ucx.devices (UCX_NET_DEVICES) to what joins their "
           "hosts, or leave them out; ucx_info -d lists what a host has";
}

std::string Worker::failure(int peer, const std::string& how) {
    // A broken connection is often a dead process: the rendezvous soon reports which one.
    for (int i = 0; !over() && i < 30; ++i) std::this_thread::sleep_for(Milliseconds(10));
    if (over()) return reason();
    const auto p = static_cast<size_t>(peer);
    return "rank " + std::to_string(group_.ranks[p]) + " on " + peers_[p]->place.name + ": " + how;
}

void Worker::give_up(const std::string& why) {
    const std::lock_guard lock(reason_mutex_);
    if (why_.empty()) why_ = why;
    over_.store(true, std::memory_order_release);
}

std::string Worker::reason() const {
    const std::lock_guard lock(reason_mutex_);
    return why_;
}

void Worker::abort(const std::string& why) {
    if (over()) return;
    give_up(why);
    ++wanted_;
    {
        const std::lock_guard lock(mutex_);
        std::vector<ucs_status_ptr_t> sends;
        for (const auto& peer : peers_) {
            if (!peer->endpoint || !peer->broken.empty()) continue;
            ucp_request_param_t param{};
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_AM_SEND_FLAG_EAGER;
            sends.push_back(ucp_am_send_nbx(peer->endpoint, abort_id, why.data(), std::min<size_t>(why.size(), 512),
                                            nullptr, 0, &param));
        }
        const auto deadline = Clock::now() + Milliseconds(300);
        for (const ucs_status_ptr_t send : sends) {
            if (!UCS_PTR_IS_PTR(send)) continue;
            while (ucp_request_check_status(send) == UCS_INPROGRESS && Clock::now() < deadline)
                ucp_worker_progress(worker_);
            ucp_request_free(send);
        }
        for (int i = 0; i < 100; ++i) ucp_worker_progress(worker_);
    }
    --wanted_;
}

ucs_status_t Worker::aborted(void* self, const void* header, size_t header_bytes, void*, size_t,
                             const ucp_am_recv_param_t*) {
    static_cast<Worker*>(self)->give_up(std::string(static_cast<const char*>(header), header_bytes));
    return UCS_OK;
}

void Worker::broke(void* peer, ucp_ep_h, ucs_status_t status) {
    Peer& lost = *static_cast<Peer*>(peer);
    lost.broken = ucs_status_string(status);
    if (status != UCS_ERR_UNREACHABLE) return;
    const auto& all = lost.worker->peers_;
    const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.get() == &lost; });
    lost.broken = lost.worker->unreachable(static_cast<size_t>(at - all.begin()), status);
}

void Worker::reap() {
    for (Transfer& transfer : transfers_) {
        if (transfer.free || !transfer.copied) continue;
        const ucs_status_t status = status_of(transfer.request);
        if (status == UCS_INPROGRESS) continue;
        if (status != UCS_OK) break_off(transfer.peer, status);
        release(transfer);
    }
}

/// Called when a copied send has failed: later calls for this peer fail with its reason.
void Worker::break_off(int peer, ucs_status_t status) {
    std::string& broken = peers_[static_cast<size_t>(peer)]->broken;
    if (broken.empty()) broken = std::string("a buffered send failed: ") + ucs_status_string(status);
}

void Worker::run(std::stop_token stop) {
    auto looked = Clock::now();
    while (!stop.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::microseconds(under_way_.load() > 0 ? 500 : 5000));
        if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
            for (int i = 0; i < 16 && ucp_worker_progress(worker_) > 0; ++i) {
            }
            reap();
        }
        if (Clock::now() - looked < Milliseconds(10)) continue;
        looked = Clock::now();
        if (const orrery::Message lost = over() ? "" : rendezvous_.lost(); !lost.empty()) give_up(lost.shown());
    }
}

}  // namespace orrery::ucx
