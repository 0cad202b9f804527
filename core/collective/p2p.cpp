#include "orrery/p2p.h"

#include <fmt/format.h>

#include <fstream>

namespace orrery {

namespace {
std::string described(const Tensor& t) { return fmt::format("{}[{}]", name_of(t.dtype), t.count()); }
}  // namespace

void require_match(const Group& group, std::string_view op, const Tensor& in, const Tensor& out, int64_t in_factor,
                   int64_t out_factor) {
    if (in.dtype == out.dtype && in.count() * out_factor == out.count() * in_factor) return;
    throw Error(fmt::format("{} over {} of {} members: input {} does not match output {}; expected the same dtype and "
                            "element counts in the ratio {}:{}",
                            op, group.name, group.size(), described(in), described(out), in_factor, out_factor),
                Fault::failed);
}

void require_split(const Group& group, std::string_view op, const Tensor& in) {
    if (in.count() % group.size() == 0) return;
    throw Error(fmt::format("{} over {}: {} elements are not divisible by {} members", op, group.name, in.count(),
                            group.size()),
                Fault::failed);
}

void require_member(const Group& group, std::string_view op, int peer) {
    if (peer >= 0 && peer < group.size()) return;
    throw Error(fmt::format("{} over {}: member {} is out of range, the group has {} members", op, group.name, peer,
                            group.size()),
                Fault::failed);
}

std::vector<std::string> exchange(const Group& group, Rendezvous& rendezvous, std::string_view what,
                                  std::string_view value, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    rendezvous.set(fmt::format("{}/{}", what, group.me), value);
    std::vector<std::string> all;
    for (int i = 0; i < group.size(); ++i) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        try {
            all.push_back(i == group.me ? std::string(value)
                                        : rendezvous.get(fmt::format("{}/{}", what, i),
                                                         std::max(left, std::chrono::milliseconds(0))));
        } catch (const Error& error) {
            throw Error(fmt::format("rank {} did not join the group {}: {}", group.ranks[static_cast<size_t>(i)],
                                    group.name, error.what()),
                        error.fault());
        }
    }
    return all;
}

TransportContract accelerator_contract() {
    TransportContract c;
    c.send = TransportContract::Send::grouped;
    // True even though the first call over a connection blocks: NCCL then makes the connection and waits for the other
    // side.
    c.queued = true;
    c.lanes = TransportContract::Lanes::communicator;
    c.matching = TransportContract::Matching::order;
    c.checks_tags = false;
    c.deterministic = true;
    c.reduction = TransportContract::Reduction::by_algorithm;
    c.memory = {MemoryKind::device, MemoryKind::pinned};
    c.dtypes = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u32, DType::u8};
    c.devices = {"cuda"};
    return c;
}

std::string own_address(const Group& group, Rendezvous& rendezvous) {
    return rendezvous.get(fmt::format("address/{}", group.ranks[static_cast<size_t>(group.me)]),
                          std::chrono::milliseconds(1000));
}

std::string fresh_name(const Group& group, Rendezvous& rendezvous) {
    return fmt::format("{}#{}", group.name, rendezvous.add(fmt::format("{}/made/{}", group.name, group.me), 1));
}

std::string process_state(int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string stat;
    std::getline(file, stat);
    const size_t at = stat.rfind(')');  // the last bracket, since the process name before it may contain brackets
    if (at == std::string::npos || at + 2 >= stat.size()) return "has ended";
    switch (stat[at + 2]) {
        case 'R': return "is running";
        case 'S': return "is sleeping";
        case 'T': return "is stopped (SIGSTOP)";
        case 't': return "is stopped by a debugger";
        case 'D': return "is in uninterruptible sleep: it waits for a disk or driver (state D)";
        case 'Z': return "has ended";
        default: return fmt::format("is in state {}", stat[at + 2]);
    }
}

}  // namespace orrery
