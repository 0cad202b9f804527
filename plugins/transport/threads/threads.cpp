// Ranks that are threads of one process, for tests and as the reference implementation of a transport. Members post
// their tensors in shared state; each reduces its own block of all inputs, in rank order, to all outputs.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "orrery/p2p.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// A member's data for a collective.
struct Posted {
    std::string_view op;
    const char* in = nullptr;
    char* out = nullptr;
    int64_t count = 0;  ///< elements of `in`
    DType dtype = DType::f32;
    int detail = 0;  ///< reduce op or root
};

struct InFlight {
    const void* data;
    int64_t bytes;
    int64_t tag;
};

/// Sends from one member to another, in order; slots are reused.
class Lane {
public:
    bool empty() const { return posted_ == delivered; }
    const InFlight& front() const { return slots_[delivered % slots_.size()]; }
    void post(const InFlight& message) {
        if (posted_ - delivered == slots_.size()) grow();
        slots_[posted_++ % slots_.size()] = message;
    }
    uint64_t delivered = 0;

private:
    void grow() {
        std::vector<InFlight> more(2 * slots_.size());
        for (uint64_t i = delivered; i < posted_; ++i) more[i % more.size()] = slots_[i % slots_.size()];
        slots_ = std::move(more);
    }

    std::vector<InFlight> slots_ = std::vector<InFlight>(16);  ///< more are rarely in flight
    uint64_t posted_ = 0;
};

struct State {
    explicit State(size_t members)
        : posted(members),
          arrived(members),
          finished(members),
          lanes(members * members),
          at_work(members),
          left(members) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Posted> posted;
    std::vector<int64_t> arrived, finished;  ///< sequence number that each member has reached
    std::vector<Lane> lanes;                 ///< [from * P + to]
    std::string aborted;
    std::vector<int> at_work;       ///< by member: number of members that read or write its memory without the lock
    std::vector<std::string> left;  ///< by member: why it withdraws its memory, so that no member starts to use it
};

/// The states that member 0 offers to the others until they have come.
class Shown {
public:
    explicit Shown(const std::shared_ptr<State>& state) {
        const std::lock_guard lock(mutex_);
        key_ = std::to_string(++made_);
        states_[key_] = state;
    }
    ~Shown() {
        const std::lock_guard lock(mutex_);
        states_.erase(key_);
    }
    Shown(const Shown&) = delete;

    const std::string& key() const { return key_; }
    /// nullptr: member 0 has stopped waiting.
    static std::shared_ptr<State> find(const std::string& key) {
        const std::lock_guard lock(mutex_);
        const auto found = states_.find(key);
        return found == states_.end() ? nullptr : found->second;
    }

private:
    // Threads of this process share only the rendezvous, which carries texts, so a static map holds the states.
    inline static std::mutex mutex_;
    inline static uint64_t made_ = 0;
    inline static std::map<std::string, std::shared_ptr<State>> states_;
    std::string key_;
};

class ThreadsCommunicator : public Communicator {
public:
    ThreadsCommunicator(Group group, std::shared_ptr<State> state, const Rendezvous& rendezvous, Milliseconds timeout)
        : group_(std::move(group)),
          state_(std::move(state)),
          rendezvous_(rendezvous),
          timeout_(timeout),
          sent_(static_cast<size_t>(group_.size())),
          all_(static_cast<size_t>(group_.size())),
          ins_(static_cast<size_t>(group_.size())),
          outs_(static_cast<size_t>(group_.size())),
          members_(static_cast<size_t>(group_.size())) {
        std::iota(members_.begin(), members_.end(), 0);
    }
    ~ThreadsCommunicator() override {
        std::unique_lock lock(state_->mutex);
        leave(lock, "has ended");
    }
    ThreadsCommunicator(const ThreadsCommunicator&) = delete;

    const Group& group() const override { return group_; }

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        require_match(group_, "all_reduce", in, out);
        meet("all_reduce", in, out, static_cast<int>(op), after);
        const Part mine = part_of(in.count(), size(), group_.me);
        for (size_t i = 0; i < all_.size(); ++i) outs_[i] = all_[i].out + mine.begin * size_of(in.dtype);
        reduce_block(in.dtype, op, mine, outs_);
        const int64_t bytes = mine.count * size_of(in.dtype);
        count(2 * (size() - 1), in.bytes() - bytes + (size() - 1) * bytes);
        return part();
    }

    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        require_match(group_, "all_gather", in, out, 1, size());
        meet("all_gather", in, out, 0, after);
        for (int i = 0; i < size(); ++i) copy(static_cast<char*>(out.data) + i * in.bytes(), in_of(i), in.bytes());
        count(size() - 1, (size() - 1) * in.bytes());
        return part();
    }

    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        require_match(group_, "reduce_scatter", in, out, size(), 1);
        meet("reduce_scatter", in, out, static_cast<int>(op), after);
        reduce_block(in.dtype, op, {group_.me * out.count(), out.count()}, std::span(&out.data, 1));
        count(size() - 1, in.bytes() - out.bytes());
        return part();
    }

    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        require_match(group_, "all_to_all", in, out);
        require_split(group_, "all_to_all", in);
        const int64_t block = in.bytes() / size();
        // In place a member's block is read by its peer and written by itself, so the input is copied.
        after.wait();
        copied_.resize(std::max(copied_.size(), static_cast<size_t>(in.bytes())));
        copy(copied_.data(), in.data, in.bytes());
        source_.data = copied_.data();
        source_.dtype = in.dtype;
        source_.shape = in.shape;
        meet("all_to_all", source_, out, 0, {});
        for (int i = 0; i < size(); ++i)
            copy(static_cast<char*>(out.data) + i * block, in_of(i) + group_.me * block, block);
        count(size() - 1, in.bytes() - block);
        return part();
    }

    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        require_member(group_, "broadcast", root);
        meet("broadcast", tensor, tensor, root, after);
        if (group_.me != root) copy(tensor.data, in_of(root), tensor.bytes());
        if (group_.me == root)
            count(size() - 1, (size() - 1) * tensor.bytes());
        else
            count(0, 0);
        return part();
    }

    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        require_member(group_, "send", peer);
        after.wait();
        const std::lock_guard lock(state_->mutex);
        lane(group_.me, peer).post({tensor.data, tensor.bytes(), tag});
        state_->changed.notify_all();
        ++traffic_.messages;
        traffic_.bytes_sent += tensor.bytes();
        return {this, static_cast<uint64_t>(peer) << 48 | ++sent_[static_cast<size_t>(peer)]};
    }

    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        require_member(group_, "receive", peer);
        after.wait();
        std::unique_lock lock(state_->mutex);
        Lane& from = lane(peer, group_.me);
        until(
            lock, "receive", [&] { return from.empty() ? peer : -1; }, tag);
        const InFlight message = from.front();
        if (message.tag != tag || message.bytes != tensor.bytes())
            give_up(lock, "receive",
                    "expected tag " + std::to_string(tag) + " of " + std::to_string(tensor.bytes()) + " bytes, rank " +
                        rank(peer) + " sent tag " + std::to_string(message.tag) + " of " +
                        std::to_string(message.bytes) + " bytes");
        begin_work(lock, "receive", std::span(&peer, 1));
        lock.unlock();
        copy(tensor.data, message.data, message.bytes);
        lock.lock();
        end_work();
        ++from.delivered;
        state_->changed.notify_all();
        return {};
    }

    bool done(uint64_t ticket) override {
        const std::lock_guard lock(state_->mutex);
        return lane(group_.me, static_cast<int>(ticket >> 48)).delivered >= (ticket & ((1ull << 48) - 1));
    }

    void wait(uint64_t ticket) override {
        const int peer = static_cast<int>(ticket >> 48);
        std::unique_lock lock(state_->mutex);
        until(lock, "send",
              [&] { return lane(group_.me, peer).delivered >= (ticket & ((1ull << 48) - 1)) ? -1 : peer; });
    }

    void abort(std::string_view reason) override {
        const std::lock_guard lock(state_->mutex);
        if (state_->aborted.empty()) state_->aborted = "rank " + rank(group_.me) + " gave up: " + std::string(reason);
        state_->changed.notify_all();
    }

    Traffic traffic() const override { return traffic_; }

private:
    int size() const { return group_.size(); }
    std::string rank(int member) const { return std::to_string(group_.ranks[static_cast<size_t>(member)]); }
    Lane& lane(int from, int to) { return state_->lanes[static_cast<size_t>(from * size() + to)]; }
    std::string text(std::string_view op, int64_t sequence) const {
        return std::string(op) + " #" + std::to_string(sequence) + " of " + group_.name;
    }

    static void copy(void* to, const void* from, int64_t bytes) {
        if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    }

    void count(int64_t messages, int64_t bytes) {
        ++traffic_.collectives;
        traffic_.messages += messages;
        traffic_.bytes_sent += bytes;
    }

    /// Waits until `missing()` is -1; otherwise it returns the member that is waited for.
    template <class Missing>
    void until(std::unique_lock<std::mutex>& lock, std::string_view op, Missing missing, int64_t tag = -1) {
        const auto deadline = Clock::now() + timeout_;
        for (int member; (member = missing()) >= 0 || !state_->aborted.empty();) {
            Message why = state_->aborted.empty() ? rendezvous_.lost() : Message(state_->aborted);
            if (why.empty() && Clock::now() >= deadline)
                why =
                    "rank " + rank(member) + " timed out: no answer within " + std::to_string(timeout_.count()) + " ms";
            if (!why.empty())
                give_up(lock, std::string(op) + (tag < 0 ? "" : " of tag " + std::to_string(tag)), why.shown());
            state_->changed.wait_until(lock, std::min(deadline, Clock::now() + Milliseconds(50)));
        }
    }

    int behind(const std::vector<int64_t>& reached) const {
        for (int i = 0; i < size(); ++i)
            if (reached[static_cast<size_t>(i)] < sequence_) return i;
        return -1;
    }

    const char* in_of(int member) const { return all_[static_cast<size_t>(member)].in; }

    /// Posts this member's tensors and copies all members' posts.
    void meet(std::string_view op, const Tensor& in, const Tensor& out, int detail, const Event& after) {
        after.wait();
        std::unique_lock lock(state_->mutex);
        ++sequence_;
        op_ = op;
        until(lock, op, [] { return -1; });  // throws once aborted
        const auto me = static_cast<size_t>(group_.me);
        const Posted mine{op,    static_cast<const char*>(in.data), static_cast<char*>(out.data), in.count(), in.dtype,
                          detail};
        state_->posted[me] = mine;
        state_->arrived[me] = sequence_;
        state_->changed.notify_all();
        until(lock, op, [&] { return behind(state_->arrived); });
        for (size_t i = 0; i < state_->posted.size(); ++i) {
            const Posted& other = state_->posted[i];
            if (other.op == op && other.count == mine.count && other.dtype == mine.dtype && other.detail == detail)
                continue;
            give_up(lock, op,
                    "rank " + rank(static_cast<int>(i)) + " is at " + std::string(other.op) + " of " +
                        std::string(name_of(other.dtype)) + "[" + std::to_string(other.count) + "], this rank at " +
                        std::string(name_of(in.dtype)) + "[" + std::to_string(in.count()) + "]");
        }
        all_ = state_->posted;
        begin_work(lock, op, members_);
    }

    /// Needs the lock. From now on memory of these members is read and written without it.
    void begin_work(std::unique_lock<std::mutex>& lock, std::string_view op, std::span<const int> members) {
        for (const int member : members)
            if (const std::string& why = state_->left[static_cast<size_t>(member)]; !why.empty())
                give_up(lock, op, "rank " + rank(member) + " " + why);
        for (const int member : members) ++state_->at_work[static_cast<size_t>(member)];
        works_on_ = members;
    }
    void end_work() {
        for (const int member : std::exchange(works_on_, {})) --state_->at_work[static_cast<size_t>(member)];
    }

    /// Waits for copies and sums; afterwards no member uses this member's memory.
    void leave(std::unique_lock<std::mutex>& lock, const std::string& why) {
        const auto me = static_cast<size_t>(group_.me);
        if (state_->left[me].empty()) state_->left[me] = why;
        end_work();
        state_->changed.notify_all();
        state_->changed.wait(lock, [&] { return state_->at_work[me] == 0; });
    }

    [[noreturn]] void give_up(std::unique_lock<std::mutex>& lock, std::string_view op, const std::string& why) {
        leave(lock, "has given up: " + why);
        throw Error(text(op, sequence_) + ": " + why, Fault::peer);
    }

    /// Ends the collective when all members have done their part: inputs may change, outputs are complete.
    Event part() {
        std::unique_lock lock(state_->mutex);
        end_work();
        state_->finished[static_cast<size_t>(group_.me)] = sequence_;
        state_->changed.notify_all();
        until(lock, op_, [&] { return behind(state_->finished); });
        return {};
    }

    void reduce_block(DType dtype, ReduceOp op, Part block, std::span<void* const> outs) {
        for (size_t i = 0; i < all_.size(); ++i) ins_[i] = all_[i].in + block.begin * size_of(dtype);
        reduce(dtype, op, ins_, outs, block.count);
    }

    const Group group_;
    const std::shared_ptr<State> state_;
    const Rendezvous& rendezvous_;
    const Milliseconds timeout_;
    std::vector<uint64_t> sent_;
    // Reused from call to call, so that none allocates.
    std::vector<Posted> all_;       ///< all members' posts of the current collective
    std::vector<const void*> ins_;  ///< by member
    std::vector<void*> outs_;
    std::vector<char> copied_;  ///< all_to_all's input
    Tensor source_;
    std::vector<int> members_;
    std::span<const int> works_on_;  ///< members whose State::at_work counts this one
    int64_t sequence_ = 0;
    std::string_view op_;
    Traffic traffic_;
};

/// The pid and a nonce, because processes of two containers may have the same pid.
std::string process_id() {
    static const std::string nonce = [] {
        std::random_device random;
        return std::to_string(random()) + "-" + std::to_string(random());
    }();
    return std::to_string(::getpid()) + " " + nonce;
}
std::string pid_of(const std::string& process) { return process.substr(0, process.find(' ')); }

class ThreadsTransport : public Transport {
public:
    TransportContract contract() const override {
        TransportContract c;
        c.send = TransportContract::Send::rendezvous;
        c.lanes = TransportContract::Lanes::peer_and_direction;
        c.memory = {MemoryKind::device, MemoryKind::pinned, MemoryKind::shared};
        c.same_host = true;
        c.authenticates = true;  // one address space
        c.dtypes = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32,
                    DType::i64, DType::u32,  DType::u16, DType::u8};
        c.staging = true;
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory>,
                                       Milliseconds timeout) override {
        const std::string name = fresh_name(group, rendezvous);
        const auto processes = exchange(group, rendezvous, name + "/process", process_id(), timeout);
        for (const std::string& process : processes)
            if (process != processes[0])
                throw Error("transport threads: the members of " + group.name + " are processes " +
                            pid_of(processes[0]) + " and " + pid_of(process) +
                            ", not threads of one process; use transport shm");
        // All members are here: member 0 offers its state until all have taken it.
        std::optional<Shown> mine;
        if (group.me == 0) mine.emplace(std::make_shared<State>(static_cast<size_t>(group.size())));
        const auto keys = exchange(group, rendezvous, name + "/state", mine ? mine->key() : "", timeout);
        std::shared_ptr<State> state = Shown::find(keys[0]);
        if (!state)
            throw Error("transport threads: " + group.name + ": rank " + std::to_string(group.ranks[0]) +
                            " gave up while other ranks joined",
                        Fault::peer);
        exchange(group, rendezvous, name + "/ready", "", timeout);
        return std::make_unique<ThreadsCommunicator>(group, std::move(state), rendezvous, timeout);
    }
};

void add(Registry& registry) {
    registry.add_transport("threads", [](Config&) { return std::make_unique<ThreadsTransport>(); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("devices=cpu same_process");
ORRERY_PLUGIN("transport.threads", "0.1", orrery::add);
