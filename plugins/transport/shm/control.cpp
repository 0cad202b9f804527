#include "control.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace orrery::shm {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

namespace {

// README.md describes a wait.
constexpr int spins = 2000, spins_to_yield = 64;
constexpr auto yield_for = std::chrono::microseconds(200);
constexpr auto sleep_for = Milliseconds(2);
constexpr int checks_every = 10;  // sleeps

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, Milliseconds limit) {
    const timespec time{0, limit.count() * 1'000'000};
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

Control::Control(const Group& group, Rendezvous& rendezvous, const std::vector<int64_t>& pids, const std::string& name,
                 Milliseconds timeout)
    : group_(group), rendezvous_(rendezvous), timeout_(timeout), pids_(pids) {
    const auto size = static_cast<size_t>(group.size());
    const size_t members = sizeof(Header), lanes = members + size * sizeof(Member);
    const size_t small = lanes + size * size * sizeof(Lane), bytes = small + 2 * size * small_bytes;
    if (group.me == 0) mapping_ = std::make_shared<Mapping>(static_cast<int64_t>(bytes));
    // The handle is for other processes, the address of member 0's pointer for threads of its process.
    const std::string told =
        std::to_string(reinterpret_cast<uintptr_t>(&mapping_)) + " " + (mapping_ ? mapping_->handle() : "");
    const auto texts = exchange(group, rendezvous, name + "/control", told, timeout);
    const size_t space = texts[0].find(' ');
    if (group.me != 0 && pids[0] == ::getpid())
        mapping_ = *reinterpret_cast<std::shared_ptr<Mapping>*>(std::stoull(texts[0].substr(0, space)));
    else if (group.me != 0)
        mapping_ = Mappings().open(texts[0].substr(space + 1), static_cast<int64_t>(bytes), group.ranks[0]);
    char* base = mapping_->data();
    header_ = reinterpret_cast<Header*>(base);
    members_ = reinterpret_cast<Member*>(base + members);
    lanes_ = reinterpret_cast<Lane*>(base + lanes);
    small_ = base + small;
    for (const int64_t pid : pids)
        pidfds_.push_back(pid == ::getpid() ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    exchange(group, rendezvous, name + "/ready", "", timeout);
}

Control::~Control() {
    member(group_.me).left.store(1, std::memory_order_release);
    for (const int fd : pidfds_)
        if (fd >= 0) ::close(fd);
}

void Control::wake(Counter& counter) { futex_wake(counter.value); }

void Control::wait_long(Counter& counter, uint32_t value, int member, const char* op, int64_t sequence) const {
    const auto reached = [&] {
        return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - value) >= 0;
    };
    for (int i = 0; i < spins; ++i) {
        if (reached()) return;
        relax();
        if (i % spins_to_yield == spins_to_yield - 1) ::sched_yield();
    }
    const auto start = Clock::now();
    while (Clock::now() - start < yield_for) {
        if (reached()) return;
        ::sched_yield();
    }
    for (int i = 0; !reached(); ++i) {
        if (i % checks_every == 0) {
            const std::string why = hopeless(member, start);
            if (!why.empty() && reached()) return;  // the member reached it before it ended
            if (!why.empty()) fail(op, sequence, why);
        }
        counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
        const uint32_t seen = counter.value.load(std::memory_order_seq_cst);
        if (static_cast<int32_t>(seen - value) < 0) futex_wait(counter.value, seen, sleep_for);
        counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
}

std::string Control::hopeless(int member, Clock::time_point start) const {
    const auto name = [&](int i) {
        const auto m = static_cast<size_t>(i);
        return "rank " + std::to_string(group_.ranks[m]) + " (pid " + std::to_string(pids_[m]) + ")";
    };
    if (header_->abort_state.load(std::memory_order_acquire) == 2) return header_->abort_text;
    for (int i = 0; i < group_.size(); ++i) {
        pollfd ended{pidfds_[static_cast<size_t>(i)], POLLIN, 0};
        const bool gone = ended.fd >= 0 && ::poll(&ended, 1, 0) == 1;
        // read after `gone`, so that a clean exit is not a death
        const bool left = this->member(i).left.load(std::memory_order_acquire) != 0;
        if (left && i == member) return name(i) + " has left the group";
        if (gone && !left) return name(i) + " died";
    }
    const orrery::Message lost = rendezvous_.lost();
    if (!lost.empty() || Clock::now() - start < timeout_) return lost.shown();
    return name(member) + " timed out: no answer within " + std::to_string(timeout_.count()) +
           " ms (raise it by run.timeout_s); its process " + process_state(pids_[static_cast<size_t>(member)]);
}

void Control::fail(const char* op, int64_t sequence, const std::string& why) const {
    publish(why);  // otherwise the others might blame this member, which is about to end
    throw Error(std::string(op) + " #" + std::to_string(sequence) + " of " + group_.name + ": " + why, Fault::peer);
}

void Control::abort(std::string_view reason) {
    publish("rank " + std::to_string(group_.ranks[static_cast<size_t>(group_.me)]) +
            " gave up: " + std::string(reason));
}

void Control::publish(const std::string& text) const {
    uint32_t none = 0;
    if (!header_->abort_state.compare_exchange_strong(none, 1)) return;
    std::strncpy(header_->abort_text, text.c_str(), sizeof header_->abort_text - 1);
    header_->abort_state.store(2, std::memory_order_release);
    for (int i = 0; i < group_.size(); ++i) {
        for (Post& post : member(i).post) futex_wake(post.arrived.value);
        futex_wake(member(i).finished.value);
        for (int j = 0; j < group_.size(); ++j) {
            futex_wake(lane(i, j).posted.value);
            futex_wake(lane(i, j).delivered.value);
        }
    }
}

}  // namespace orrery::shm
