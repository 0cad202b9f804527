#include "base/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <new>
#include <system_error>

#include "base/control_groups.h"

namespace orrery {

void need_descriptors(int64_t count, const std::string& who) {
    rlimit limit{};
    const auto wanted = static_cast<rlim_t>(count);
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = wanted;
    if (limit.rlim_max >= wanted && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
    throw Error(fmt::format("open file limit too low: {} may need {} open files and sockets, the limit is {} (ulimit "
                            "-Sn; hard limit {}, ulimit -Hn)\n  raise it: nofile in limits.conf, LimitNOFILE of a "
                            "service, --ulimit nofile of a container",
                            who, count, before, limit.rlim_max),
                Fault::failed);
}

void need_memory(int64_t bytes) {
    const auto left = own_groups().memory_left();
    if (!left || static_cast<double>(bytes) <= left->amount) return;
    throw Error(
        fmt::format("cannot allocate {} bytes: out of memory; {:.0f} bytes are left by the limit {}\n  raise the "
                    "limit, or use fewer ranks here, a smaller batch or more micro-batches",
                    bytes, left->amount, left->file),
        Fault::failed);
}

namespace {

std::string limits_text() {
    std::string text;
    if (const auto& memory = own_groups().memory())
        text += fmt::format("\n  its control group is limited to {} MiB ({})",
                            static_cast<int64_t>(memory->amount) >> 20, memory->file);
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        text += fmt::format("\n  its address space is limited to {} MiB (ulimit -v)", limit.rlim_cur >> 20);
    if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        text += fmt::format("\n  its user may have {} processes and threads (ulimit -u)", limit.rlim_cur);
    return text;
}

}  // namespace

std::string explain(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory" + limits_text();
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system && system->code() == std::errc::resource_unavailable_try_again)
        return "the system refuses this process another thread: out of memory or of threads" + limits_text();
    if (system && system->code() == std::errc::not_enough_memory) return "out of memory" + limits_text();
    return error.what();
}

Fault fault_of(const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    return known ? known->fault() : Fault::failed;
}

}  // namespace orrery
