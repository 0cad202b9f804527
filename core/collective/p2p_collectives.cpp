#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "collective/p2p_algorithms.h"
#include "orrery/p2p.h"

namespace orrery {
namespace {

constexpr size_t receives_ahead = 2;          ///< number of segments that a member receives at a time
constexpr size_t sends_behind = 4;            ///< max number of sends of a member in flight
constexpr uint64_t gather_part = 1ull << 60;  ///< first part number of messages in the second half of an all_reduce

/// Returns a hash. A call's number, kind and size are hashed to its channel, so that calls' messages do not mix.
uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9e3779b97f4a7c15ull + b;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

struct Piece {
    int64_t offset;
    int64_t bytes;
};

class Tickets {
public:
    bool empty() const { return first_ == behind_; }
    size_t size() const { return behind_ - first_; }
    void push(uint64_t ticket) { tickets_[behind_++ % most] = ticket; }
    uint64_t pop() { return tickets_[first_++ % most]; }

private:
    static constexpr size_t most = 8;
    static_assert(most > sends_behind && most > receives_ahead);
    std::array<uint64_t, most> tickets_{};
    size_t first_ = 0, behind_ = 0;
};

}  // namespace

/// The blocks of a tensor in a ring collective, one per member, and how they are cut into segments.
struct P2pCommunicator::Ring {
    DType dtype;
    ReduceOp op;
    int64_t count;  ///< number of elements in all blocks together
    int members;
    int64_t segment;  ///< bytes of a segment, a multiple of every element's size

    Piece block(int i) const {
        const Part b = part_of(count, members, i);
        return {b.begin * size_of(dtype), b.count * size_of(dtype)};
    }
    /// Returns the number of the message with segment g of step s, which sender and receiver have in common.
    static uint64_t part(int s, int64_t g) { return static_cast<uint64_t>(s) << 40 | static_cast<uint64_t>(g); }
    int64_t segments(int i) const { return (block(i).bytes + segment - 1) / segment; }
    Piece piece(int i, int64_t g) const {
        const Piece b = block(i);
        return {b.offset + g * segment, std::min(segment, b.bytes - g * segment)};
    }
};

class P2pCommunicator::Pieces {
public:
    struct At {
        int step;
        int64_t g;
        Piece piece;
        uint64_t part;  ///< part number of the message that carries the segment
    };
    /// `first`: index of the block received in step 0. In each later step the block before it in the ring is received.
    Pieces(const Ring& ring, int steps, int first) : ring_(&ring), steps_(steps), first_(first) { skip(); }
    bool more() const { return step_ < steps_; }
    At next() {
        const At at{step_, g_, ring_->piece(block(), g_), Ring::part(step_, g_)};
        ++g_;
        skip();
        return at;
    }

private:
    int block() const { return ((first_ - step_) % ring_->members + ring_->members) % ring_->members; }
    void skip() {
        for (; more() && g_ == ring_->segments(block()); ++step_) g_ = 0;
    }

    const Ring* ring_;
    int steps_, first_;
    int step_ = 0;
    int64_t g_ = 0;
};

/// Limits the number of sends in flight: adding one more waits for the oldest.
class P2pCommunicator::Window {
public:
    explicit Window(P2pCommunicator& owner) : owner_(owner) {}
    void add(uint64_t ticket) {
        tickets_.push(ticket);
        if (tickets_.size() > sends_behind) owner_.finish(tickets_.pop());
    }
    void drain() {
        while (!tickets_.empty()) owner_.finish(tickets_.pop());
    }

private:
    P2pCommunicator& owner_;
    Tickets tickets_;
};

P2pCommunicator::P2pCommunicator(Group group, int64_t segment_bytes)
    : P2pCommunicator(std::move(group), P2pOptions{segment_bytes, "auto", "auto", {}}) {}

P2pCommunicator::P2pCommunicator(Group group, P2pOptions options)
    : group_(std::move(group)),
      segment_bytes_(std::max<int64_t>(options.segment_bytes / 64 * 64, whole_bytes)),
      algorithms_(std::make_unique<Algorithms>(*this, std::move(options))),
      scratch_(static_cast<size_t>(segment_bytes_) * receives_ahead) {}

P2pCommunicator::~P2pCommunicator() = default;

void P2pCommunicator::greet(std::string_view transport) {
    constexpr std::array<int64_t, 7> sizes{64, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10};
    constexpr uint64_t greeting = 0x6f7272657279;
    constexpr int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    // Greeting messages only have to arrive; their bytes are not checked. They are in scratch_, not on the stack, since
    // transfers remain in flight after an error.
    static_assert(sizes.back() <= whole_bytes && receives_ahead >= 2);
    char *const out = scratch_.data(), *const in = out + sizes.back();
    op_ = "the connection check";
    // Starts all transfers before waiting, so that a member that waits for one peer has sent to the others already.
    std::vector<std::array<uint64_t, 2 * sizes.size()>> tickets(static_cast<size_t>(group_.size()));
    for (size_t i = 0; i < sizes.size(); ++i)
        for (int offset = 1; offset < group_.size(); ++offset) {
            const int peer = around(offset);
            auto& with = tickets[static_cast<size_t>(peer)];
            with[2 * i] = start_receive(peer, in, sizes[i], greeting);
            with[2 * i + 1] = start_send(peer, out, sizes[i], greeting);
        }
    for (int offset = 1; offset < group_.size(); ++offset) {
        const int peer = around(offset);
        int64_t had = 0;
        for (size_t i = 0; i < sizes.size(); had += sizes[i++]) try {
                for (const size_t part : {2 * i, 2 * i + 1}) finish(tickets[static_cast<size_t>(peer)][part]);
            } catch (const Error& error) {
                const std::string what =
                    i == 0 ? "the connection carries no messages"
                           : fmt::format(
                                 "messages of {} bytes arrive, one of {} bytes does not; the path MTU may be smaller "
                                 "than the MTU of both hosts",
                                 sizes[i - 1], sizes[i]);
                throw Error(fmt::format("transport {}: {}; between {} and {}, {} of {} test bytes arrived: {}",
                                        transport, error.what(), rank_text(group_.me), rank_text(peer), had, all, what),
                            error.fault());
            }
    }
    op_ = "nothing";
}

std::string P2pCommunicator::what() const { return fmt::format("{} #{} of {}", op_, sequence_, group_.name); }
std::string P2pCommunicator::rank_text(int member) const {
    return fmt::format("rank {}", group_.ranks[static_cast<size_t>(member)]);
}
int P2pCommunicator::around(int offset) const {
    const int size = group_.size();
    return ((group_.me + offset) % size + size) % size;
}

void P2pCommunicator::begin(const char* op, const Event& after, uint64_t detail) {
    after.wait();
    op_ = op;
    ++sequence_;
    ++traffic_.collectives;
    channel_ = mixed(mixed(static_cast<uint64_t>(sequence_), static_cast<uint64_t>(op[0]) << 8 | op[4]), detail);
}

/// `part`: a number for each of those messages of a collective that have equal sizes and may overtake each other.
uint64_t P2pCommunicator::send_part(int peer, const void* data, int64_t bytes, uint64_t part) {
    ++traffic_.messages;
    traffic_.bytes_sent += bytes;
    return start_send(peer, data, bytes, mixed(channel_, part));
}

uint64_t P2pCommunicator::receive_part(int peer, void* data, int64_t bytes, uint64_t part) {
    return start_receive(peer, data, bytes, mixed(channel_, part));
}

Event P2pCommunicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    require_match(group_, "all_reduce", in, out);
    begin("all_reduce", after, static_cast<uint64_t>(in.dtype) << 8 | static_cast<uint64_t>(op));
    const int size = group_.size();
    if (size == 1) copy(out.data, in.data, in.bytes());
    if (size == 1 || in.count() == 0) return {};
    if (size == 2 && algorithms_->whole(in.bytes())) {
        exchange_whole(in, out, op);
        return {};
    }
    if (ChunkRunner* const runner = algorithms_->all_reduce(in.bytes())) {
        copy(out.data, in.data, in.bytes());
        runner->run(algorithms_->wire(), in.dtype, op, out.data, out.count());
        return {};
    }
    const Ring ring{in.dtype, op, in.count(), size, segment_bytes_};
    ring_reduce(ring, static_cast<const char*>(in.data), static_cast<char*>(out.data), false);
    ring_gather(ring, static_cast<char*>(out.data));
    return {};
}

Event P2pCommunicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op, const Event& after) {
    const int size = group_.size();
    require_match(group_, "reduce_scatter", in, out, size, 1);
    begin("reduce_scatter", after, static_cast<uint64_t>(in.dtype) << 8 | static_cast<uint64_t>(op));
    if (size == 1) copy(out.data, in.data, in.bytes());
    if (size == 1) return {};
    const Ring ring{in.dtype, op, in.count(), size, segment_bytes_};
    ring_reduce(ring, static_cast<const char*>(in.data), static_cast<char*>(out.data), true);
    return {};
}

Event P2pCommunicator::all_gather(const Tensor& in, const Tensor& out, const Event& after) {
    const int size = group_.size();
    require_match(group_, "all_gather", in, out, 1, size);
    begin("all_gather", after, static_cast<uint64_t>(in.dtype));
    copy(static_cast<char*>(out.data) + group_.me * in.bytes(), in.data, in.bytes());
    if (size == 1) return {};
    ring_gather({in.dtype, ReduceOp::sum, out.count(), size, segment_bytes_}, static_cast<char*>(out.data));
    return {};
}

/// All-reduce of two members: each sends its whole tensor and adds the received one. That is one message each way
/// instead of the ring's two, with the same bytes.
void P2pCommunicator::exchange_whole(const Tensor& in, const Tensor& out, ReduceOp op) {
    const int peer = 1 - group_.me;
    char* const theirs = scratch_.data();
    const uint64_t receive = receive_part(peer, theirs, in.bytes());
    const uint64_t send = send_part(peer, in.data, in.bytes());
    finish(receive);
    finish(send);
    const void* ins[] = {group_.me == 0 ? in.data : theirs, group_.me == 0 ? theirs : in.data};
    reduce(in.dtype, op, ins, std::span(&out.data, 1), in.count());
}

/// Ring reduce-scatter over P members in P-1 steps. In step s a member sends block me-s-1 and adds its own part to
/// block me-s-2, which it sends in step s+1. After the last step it holds the sum of its own block:
///
///     P = 3    step 0               step 1
///     rank 0   sends 2, adds to 1   sends 1, adds to 0: the sum
///     rank 1   sends 0, adds to 2   sends 2, adds to 1: the sum
///     rank 2   sends 1, adds to 0   sends 0, adds to 2: the sum
///
/// With `scatter` only the own block is stored, in `out`; otherwise `out` has all blocks. Segments of step s+1 are sent
/// during step s, long before their receiver needs them, so a send is only awaited before its memory is written again,
/// and at the end.
void P2pCommunicator::ring_reduce(const Ring& ring, const char* in, char* out, bool scatter) {
    const int to = around(1), from = around(-1), steps = ring.members - 1;
    constexpr int64_t ahead = receives_ahead;
    const int64_t most = ring.segments(0);
    if (scatter && steps > 1)  // memory for partial sums in flight, which later calls reuse
        scratch_.resize(std::max(scratch_.size(), static_cast<size_t>((ahead + most) * ring.segment)));
    char* const incoming = scratch_.data();
    char* const passing = incoming + ahead * ring.segment;
    passed_.assign(scatter ? static_cast<size_t>(most) : 0, 0);
    sends_.clear();
    Pieces receives(ring, steps, around(-2));
    Tickets posted;
    int64_t number = 0;
    const auto post = [&](const Pieces::At& p) {
        posted.push(receive_part(from, incoming + number++ % ahead * ring.segment, p.piece.bytes, p.part));
    };
    Pieces upcoming = receives;
    for (int64_t i = 0; i < ahead && upcoming.more(); ++i) post(upcoming.next());
    const int first = around(-1);
    int64_t sent = 0;
    const auto send_first = [&](int64_t until) {
        for (; sent < std::min(until, ring.segments(first)); ++sent) {
            const Piece p = ring.piece(first, sent);
            sends_.push_back(send_part(to, in + p.offset, p.bytes, Ring::part(0, sent)));
        }
    };
    for (int64_t done = 0; receives.more(); ++done) {
        const Pieces::At at = receives.next();
        // Sends one segment of the first block for each segment that arrives, to keep sends and receives balanced.
        send_first(at.step == 0 ? at.g + 1 : ring.segments(first));
        finish(posted.pop());
        const bool last = at.step == steps - 1;
        char* sum = out + at.piece.offset;
        if (scatter && last) sum = out + at.g * ring.segment;
        if (scatter && !last) {
            sum = passing + at.g * ring.segment;
            finish(passed_[static_cast<size_t>(at.g)]);
        }
        const void* ins[] = {incoming + done % ahead * ring.segment, in + at.piece.offset};
        void* const outs[] = {sum};
        reduce(ring.dtype, ring.op, ins, outs, at.piece.bytes / size_of(ring.dtype));
        if (upcoming.more()) post(upcoming.next());
        if (last) continue;
        sends_.push_back(send_part(to, sum, at.piece.bytes, Ring::part(at.step + 1, at.g)));
        if (scatter) passed_[static_cast<size_t>(at.g)] = sends_.back();
    }
    send_first(ring.segments(first));
    for (const uint64_t ticket : sends_) finish(ticket);
}

/// Ring all-gather: in step s a member sends block me-s, and receives block me-s-1 at its final place.
void P2pCommunicator::ring_gather(const Ring& ring, char* out) {
    const int to = around(1), from = around(-1), steps = ring.members - 1;
    Pieces receives(ring, steps, from);
    Tickets posted;
    Pieces upcoming = receives;
    const auto post = [&](const Pieces::At& p) {
        posted.push(receive_part(from, out + p.piece.offset, p.piece.bytes, gather_part + p.part));
    };
    for (size_t i = 0; i < sends_behind && upcoming.more(); ++i) post(upcoming.next());
    sends_.clear();
    int64_t sent = 0;
    const auto send_own = [&](int64_t until) {
        for (; sent < std::min(until, ring.segments(group_.me)); ++sent) {
            const Piece p = ring.piece(group_.me, sent);
            sends_.push_back(send_part(to, out + p.offset, p.bytes, gather_part + Ring::part(0, sent)));
        }
    };
    while (receives.more()) {
        const Pieces::At at = receives.next();
        send_own(at.step == 0 ? at.g + 1 : ring.segments(group_.me));
        finish(posted.pop());
        if (upcoming.more()) post(upcoming.next());
        if (at.step == steps - 1) continue;
        sends_.push_back(
            send_part(to, out + at.piece.offset, at.piece.bytes, gather_part + Ring::part(at.step + 1, at.g)));
    }
    send_own(ring.segments(group_.me));
    for (const uint64_t ticket : sends_) finish(ticket);
}

Event P2pCommunicator::all_to_all(const Tensor& in, const Tensor& out, const Event& after) {
    const int size = group_.size();
    require_match(group_, "all_to_all", in, out);
    require_split(group_, "all_to_all", in);
    begin("all_to_all", after, static_cast<uint64_t>(in.dtype));
    const int64_t block = in.bytes() / size;
    const auto* from = static_cast<const char*>(in.data);
    auto* to = static_cast<char*>(out.data);
    copy(to + group_.me * block, from + group_.me * block, block);
    // In round k members i and j with i + j = k (mod P) swap blocks; in place, no unsent block is overwritten this way.
    const bool in_place = in.data == out.data;
    for (int k = 0; k < size; ++k) {
        const int peer = ((k - group_.me) % size + size) % size;
        if (peer == group_.me) continue;
        const int64_t step = in_place ? segment_bytes_ : std::max<int64_t>(block, 1);
        for (int64_t at = 0; at < block; at += step) {
            const int64_t bytes = std::min(step, block - at);
            char* const place = to + peer * block + at;
            const uint64_t receive = receive_part(peer, in_place ? scratch_.data() : place, bytes);
            const uint64_t send = send_part(peer, from + peer * block + at, bytes);
            finish(receive);
            finish(send);
            if (in_place) copy(place, scratch_.data(), bytes);
        }
    }
    return {};
}

Event P2pCommunicator::broadcast(const Tensor& tensor, int root, const Event& after) {
    require_member(group_, "broadcast", root);
    begin("broadcast", after, static_cast<uint64_t>(tensor.dtype) << 16 | static_cast<uint64_t>(root));
    const int size = group_.size(), place = around(-root);  // distance of this member from the root along the ring
    const auto member = [&](int p) { return (p + root) % size; };
    int parent = place - 1;
    std::array<int, 32> children{};
    int passes_to = 0;
    if (algorithms_->tree_broadcast(tensor.bytes())) {
        int bit = 1;
        while (bit < size && !(place & bit)) bit <<= 1;
        parent = place - bit;
        for (int b = bit >> 1; b > 0; b >>= 1)
            if (place + b < size) children[static_cast<size_t>(passes_to++)] = member(place + b);
    } else if (place + 1 < size) {
        children[static_cast<size_t>(passes_to++)] = member(place + 1);
    }
    auto* data = static_cast<char*>(tensor.data);
    Window sends(*this);
    Tickets receives;
    // In a chain, a member forwards a piece only after it has received the whole piece.
    const int64_t piece = size == 2 ? segment_bytes_ : std::min(segment_bytes_, chain_bytes);
    const auto pieces = (tensor.bytes() + piece - 1) / piece;
    const auto bytes_of = [&](int64_t g) { return std::min(piece, tensor.bytes() - g * piece); };
    int64_t posted = 0;
    for (int64_t g = 0; g < pieces; ++g) {
        for (; place != 0 && posted < std::min<int64_t>(g + sends_behind, pieces); ++posted)
            receives.push(receive_part(member(parent), data + posted * piece, bytes_of(posted)));
        if (place != 0) finish(receives.pop());
        for (int i = 0; i < passes_to; ++i)
            sends.add(send_part(children[static_cast<size_t>(i)], data + g * piece, bytes_of(g)));
    }
    sends.drain();
    return {};
}

Event P2pCommunicator::send(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    require_member(group_, "send", peer);
    after.wait();
    op_ = "send";
    ++traffic_.messages;
    traffic_.bytes_sent += tensor.bytes();
    return {this, start_message(peer, tensor.data, tensor.bytes(), mixed(1, static_cast<uint64_t>(tag)))};
}

Event P2pCommunicator::receive(const Tensor& tensor, int peer, int64_t tag, const Event& after) {
    require_member(group_, "receive", peer);
    after.wait();
    op_ = "receive";
    finish(start_receive(peer, tensor.data, tensor.bytes(), mixed(1, static_cast<uint64_t>(tag))));
    return {};
}

}  // namespace orrery
