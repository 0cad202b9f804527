// Processes (or threads) of one host that map each other's arenas. A large collective is two meetings: at the first all
// have posted the places of their tensors, at the second all have done their part, directly in the arenas. A small one
// is a single meeting: the payload is next to the post.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "control.h"
#include "lane.h"
#include "orrery/plugin.h"

namespace orrery::shm {
namespace {

using Milliseconds = std::chrono::milliseconds;

enum class Call : uint8_t { none, all_reduce, all_gather, reduce_scatter, all_to_all, broadcast };
constexpr const char* call_names[] = {"nothing",        "all_reduce", "all_gather",
                                      "reduce_scatter", "all_to_all", "broadcast"};

/// From this size on outputs bypass the cache, which could not hold them until they are read.
constexpr int64_t stream_bytes = 16 << 20;

void copy(void* to, const void* from, int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void swap_bytes(char* a, char* b, int64_t bytes) {
    char part[16 << 10];
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof part)) {
        const auto n = static_cast<size_t>(std::min<int64_t>(sizeof part, bytes - at));
        std::memcpy(part, a + at, n);
        std::memcpy(a + at, b + at, n);
        std::memcpy(b + at, part, n);
    }
}

class ShmCommunicator : public Communicator {
public:
    ShmCommunicator(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas, Mappings& mappings,
                    const std::vector<int64_t>& pids, const std::string& name, Milliseconds timeout)
        : group_(group),
          arenas_(group_, rendezvous, arenas, pids, mappings, name, timeout),
          control_(group_, rendezvous, pids, name, timeout),
          pids_(pids),
          sent_(static_cast<size_t>(group.size())),
          received_(static_cast<size_t>(group.size())),
          ins_(static_cast<size_t>(group.size())),
          outs_(static_cast<size_t>(group.size())) {
        for (int i = 0; i < group.size(); ++i) {
            outgoing_.emplace_back(control_.lane(me(), i));
            incoming_.emplace_back(control_.lane(i, me()));
        }
    }

    const Group& group() const override { return group_; }

    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        require_match(group_, "all_reduce", in, out);
        const int64_t element = size_of(in.dtype), bytes = in.bytes();
        const Part mine = part_of(in.count(), size(), me());
        const bool small_one = size() == 2 && bytes <= small_bytes;
        count((small_one ? 1 : 2) * (size() - 1), bytes + (size() - 2) * mine.count * element);
        if (small_one) {
            meet_small(Call::all_reduce, in, static_cast<int>(op), after);
            for (int i = 0; i < 2; ++i) ins_[static_cast<size_t>(i)] = i == me() ? in.data : small(i);
            reduce(in.dtype, op, ins_, std::span(&out.data, 1), in.count());
            return {};
        }
        meet(Call::all_reduce, in, out, static_cast<int>(op), after);
        bool in_place = true;
        for (int i = 0; i < size(); ++i) {
            ins_[static_cast<size_t>(i)] = in_of(i) + mine.begin * element;
            outs_[static_cast<size_t>(i)] = out_of(i) + mine.begin * element;
            in_place = in_place && in_of(i) == out_of(i);
        }
        reduce(in.dtype, op, ins_, outs_, mine.count, !in_place && bytes >= stream_bytes);
        return part();
    }

    Event all_gather(const Tensor& in, const Tensor& out, const Event& after) override {
        require_match(group_, "all_gather", in, out, 1, size());
        count(size() - 1, (size() - 1) * in.bytes());
        const bool small_one = in.bytes() <= small_bytes;
        if (small_one)
            meet_small(Call::all_gather, in, 0, after);
        else
            meet(Call::all_gather, in, out, 0, after);
        // Each member starts at another one, so that no memory is read by all at once.
        for (int k = 0; k < size(); ++k) {
            const int i = (me() + k) % size();
            const char* from = i == me() ? static_cast<const char*>(in.data) : small_one ? small(i) : in_of(i);
            copy(static_cast<char*>(out.data) + i * in.bytes(), from, in.bytes());
        }
        return small_one ? Event{} : part();
    }

    Event reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) override {
        require_match(group_, "reduce_scatter", in, out, size(), 1);
        count(size() - 1, in.bytes() - out.bytes());
        const bool small_one = in.bytes() <= small_bytes;
        if (small_one)
            meet_small(Call::reduce_scatter, in, static_cast<int>(op), after);
        else
            meet(Call::reduce_scatter, in, out, static_cast<int>(op), after);
        for (int i = 0; i < size(); ++i) {
            const char* from = i == me() ? static_cast<const char*>(in.data) : small_one ? small(i) : in_of(i);
            ins_[static_cast<size_t>(i)] = from + me() * out.bytes();
        }
        const bool in_place = ins_[static_cast<size_t>(me())] == out.data;
        reduce(in.dtype, op, ins_, std::span(&out.data, 1), out.count(), !in_place && in.bytes() >= stream_bytes);
        return small_one ? Event{} : part();
    }

    Event all_to_all(const Tensor& in, const Tensor& out, const Event& after) override {
        require_match(group_, "all_to_all", in, out);
        require_split(group_, "all_to_all", in);
        const int64_t block = in.bytes() / size();
        count(size() - 1, in.bytes() - block);
        const bool small_one = in.bytes() <= small_bytes;
        if (small_one)
            meet_small(Call::all_to_all, in, 0, after);
        else
            meet(Call::all_to_all, in, out, in.data == out.data, after);
        char* to = static_cast<char*>(out.data);
        for (int k = 0; k < size(); ++k) {
            const int i = (me() + k) % size();
            if (i == me())
                copy(to + i * block, static_cast<const char*>(in.data) + i * block, block);
            else if (small_one)
                copy(to + i * block, small(i) + me() * block, block);
            else if (in.data != out.data)
                copy(to + i * block, in_of(i) + me() * block, block);
            else
                swap_half(i, block);
        }
        return small_one ? Event{} : part();
    }

    Event broadcast(const Tensor& tensor, int root, const Event& after) override {
        require_member(group_, "broadcast", root);
        count(me() == root ? size() - 1 : 0, me() == root ? (size() - 1) * tensor.bytes() : 0);
        const bool small_one = tensor.bytes() <= small_bytes;
        if (small_one)
            meet_small(Call::broadcast, tensor, root, after);
        else
            meet(Call::broadcast, tensor, tensor, root, after);
        if (me() != root) copy(tensor.data, small_one ? small(root) : in_of(root), tensor.bytes());
        return small_one ? Event{} : part();
    }

    Event send(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        require_member(group_, "send", peer);
        const Place place = arenas_.place(tensor, "send");
        after.wait();
        Lane& lane = control_.lane(me(), peer);
        const uint32_t number = ++sent_[static_cast<size_t>(peer)];
        control_.enter("send", number);
        const uint32_t delivered = lane.delivered.value.load(std::memory_order_acquire);
        outgoing_[static_cast<size_t>(peer)].free(number, delivered) = {tag, tensor.bytes(), place.offset, place.arena};
        control_.publish(lane.posted, number);
        ++traffic_.messages;
        traffic_.bytes_sent += tensor.bytes();
        return {this, static_cast<uint64_t>(peer) << 32 | number};
    }

    Event receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) override {
        require_member(group_, "receive", peer);
        after.wait();
        Lane& lane = control_.lane(peer, me());
        const uint32_t number = ++received_[static_cast<size_t>(peer)];
        control_.enter("receive", number);
        control_.wait(lane.posted, number, peer, "receive", number);
        const auto from = static_cast<size_t>(peer);
        const Message& message = incoming_[from].posted(number, pids_[from], group_.ranks[from]);
        if (message.tag != tag || message.bytes != tensor.bytes())
            throw Error("receive #" + std::to_string(number) + " of " + group_.name + ": expected tag " +
                            std::to_string(tag) + " of " + std::to_string(tensor.bytes()) + " bytes, " + rank(peer) +
                            " sent tag " + std::to_string(message.tag) + " of " + std::to_string(message.bytes) +
                            " bytes",
                        Fault::peer);
        copy(tensor.data, arenas_.at(peer, {message.arena, message.offset}), message.bytes);
        control_.publish(lane.delivered, number);
        return {};
    }

    bool done(uint64_t ticket) override {
        const auto& lane = control_.lane(me(), static_cast<int>(ticket >> 32));
        return static_cast<int32_t>(lane.delivered.value.load(std::memory_order_acquire) -
                                    static_cast<uint32_t>(ticket)) >= 0;
    }

    void wait(uint64_t ticket) override {
        const int peer = static_cast<int>(ticket >> 32);
        const auto number = static_cast<uint32_t>(ticket);
        control_.wait(control_.lane(me(), peer).delivered, number, peer, "send", number);
    }

    void abort(std::string_view reason) override { control_.abort(reason); }
    Traffic traffic() const override { return traffic_; }

private:
    int size() const { return group_.size(); }
    int me() const { return group_.me; }
    uint32_t number() const { return static_cast<uint32_t>(sequence_); }
    std::string rank(int member) const { return "rank " + std::to_string(group_.ranks[static_cast<size_t>(member)]); }
    const Post& post_of(int member) const { return control_.member(member).post[sequence_ & 1]; }
    char* in_of(int i) const { return arenas_.at(i, {post_of(i).in_arena, post_of(i).in_offset}); }
    char* out_of(int i) const { return arenas_.at(i, {post_of(i).out_arena, post_of(i).out_offset}); }
    const char* small(int member) const {
        return small_ ? post_of(member).payload : control_.small(member, sequence_ & 1);
    }

    void count(int64_t messages, int64_t bytes) {
        ++traffic_.collectives;
        traffic_.messages += messages;
        traffic_.bytes_sent += bytes;
    }

    void meet(Call call, const Tensor& in, const Tensor& out, int detail, const Event& after) {
        const Place from = arenas_.place(in, call_names[static_cast<int>(call)]);
        const Place to = arenas_.place(out, call_names[static_cast<int>(call)]);
        after.wait();
        ++sequence_;
        post(call, in, detail, &from, &to);
    }

    void meet_small(Call call, const Tensor& in, int detail, const Event& after) {
        after.wait();
        ++sequence_;
        const bool inside = in.bytes() <= inline_bytes;
        copy(inside ? control_.member(me()).post[sequence_ & 1].payload : control_.small(me(), sequence_ & 1), in.data,
             in.bytes());
        small_ = inside;
        post(call, in, detail, nullptr, nullptr);
        // The others have read the previous payload: fetch its cache lines back while no member waits for them.
        if (!inside) own(control_.small(me(), ~sequence_ & 1), in.bytes());
    }

    static void own([[maybe_unused]] char* data, [[maybe_unused]] int64_t bytes) {
#if defined(__x86_64__)
        for (int64_t at = 0; at < bytes; at += 64) asm volatile("prefetchw %0" : : "m"(data[at]));
#endif
    }

    /// Posts this member's call and waits for the others'. Throws when they differ.
    void post(Call call, const Tensor& in, int detail, const Place* from, const Place* to) {
        control_.enter(call_names[static_cast<int>(call)], sequence_);
        Post& mine = control_.member(me()).post[sequence_ & 1];
        mine.op = static_cast<uint8_t>(call);
        mine.dtype = static_cast<uint8_t>(in.dtype);
        mine.detail = static_cast<int16_t>(detail);
        if (from) {
            mine.in_arena = from->arena;
            mine.in_offset = from->offset;
            mine.out_arena = to->arena;
            mine.out_offset = to->offset;
        }
        mine.count = in.count();
        control_.publish(mine.arrived, number());
        for (int i = 0; i < size(); ++i) {
            if (i == me()) continue;
            const Post& other = post_of(i);
            control_.wait(other.arrived, number(), i, call_names[static_cast<int>(call)], sequence_);
            if (other.op != mine.op || other.dtype != mine.dtype || other.detail != mine.detail ||
                other.count != mine.count)
                disagree(i, mine, other);
        }
        call_ = call;
    }

    [[noreturn]] void disagree(int member, const Post& mine, const Post& other) const {
        const auto text = [](const Post& p) {
            return std::string(call_names[p.op]) + " of " + std::string(name_of(static_cast<DType>(p.dtype))) + "[" +
                   std::to_string(p.count) + "] (" + std::to_string(p.detail) + ")";
        };
        throw Error("collective #" + std::to_string(sequence_) + " of " + group_.name + ": this rank is at " +
                        text(mine) + ", " + rank(member) + " at " + text(other),
                    Fault::peer);
    }

    /// Ends a large collective when all have done their part: inputs may change, outputs are complete.
    Event part() {
        control_.publish(control_.member(me()).finished, number());
        for (int i = 0; i < size(); ++i)
            control_.wait(control_.member(i).finished, number(), i, call_names[static_cast<int>(call_)], sequence_);
        return {};
    }

    /// In place, exchanges half of this member's block i with member i's block `me`; member i exchanges the other half.
    void swap_half(int i, int64_t block) const {
        char* mine = in_of(me()) + i * block;
        char* theirs = in_of(i) + me() * block;
        const int64_t half = block / 2, begin = me() < i ? 0 : half;
        swap_bytes(mine + begin, theirs + begin, me() < i ? half : block - half);
    }

    const Group group_;
    const Arenas arenas_;
    Control control_;
    const std::vector<int64_t> pids_;
    std::vector<Slots> outgoing_, incoming_;  ///< by peer
    std::vector<uint32_t> sent_, received_;   ///< by peer
    std::vector<const void*> ins_;            ///< by member, so that no call allocates
    std::vector<void*> outs_;
    int64_t sequence_ = 0;
    Call call_ = Call::none;
    bool small_ = false;  ///< the small collective's payload is in the posts themselves
    Traffic traffic_;
};

/// A text that is the same in processes that can map each other's memory.
std::string host_id() {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    struct stat pids {};
    ::stat("/proc/self/ns/pid", &pids);
    return boot + "/" + std::to_string(pids.st_ino);
}

/// The axis as [transport.axis] names it: "rep and dp" for "rep+dp".
std::string parts_of(std::string axis) {
    for (size_t at; (at = axis.find('+')) != std::string::npos;) axis.replace(at, 1, " and ");
    return axis;
}

class ShmTransport : public Transport {
public:
    TransportContract contract() const override {
        TransportContract c;
        c.send = TransportContract::Send::rendezvous;
        c.lanes = TransportContract::Lanes::peer_and_direction;
        c.memory = {MemoryKind::shared};
        c.needs_arena = true;
        c.same_host = true;
        c.authenticates = true;  // the kernel lets only processes of its user open a rank's memory
        c.dtypes = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32,
                    DType::i64, DType::u32,  DType::u16, DType::u8};
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       Milliseconds timeout) override {
        const std::string name = fresh_name(group, rendezvous), here = host_id();
        const auto told = exchange(group, rendezvous, name + "/pid", std::to_string(::getpid()) + " " + here, timeout);
        std::vector<int64_t> pids;
        for (size_t i = 0; i < told.size(); ++i) {
            const size_t space = told[i].find(' ');
            if (told[i].substr(space + 1) != here)
                throw Error("transport shm: rank " + std::to_string(group.ranks[i]) + " of " + group.name +
                            " runs on another host or in another container; use transport gloo for axis " +
                            parts_of(group.axis));
            pids.push_back(std::stoll(told[i].substr(0, space)));
        }
        return std::make_unique<ShmCommunicator>(group, rendezvous, arenas, mappings_, pids, name, timeout);
    }

private:
    Mappings mappings_;
};

void add(Registry& registry) {
    registry.add_transport("shm", [](Config&) { return std::make_unique<ShmTransport>(); });
}

}  // namespace
}  // namespace orrery::shm

ORRERY_FACTS("devices=cpu pins_ranks");
ORRERY_PLUGIN("transport.shm", "0.1", orrery::shm::add);
