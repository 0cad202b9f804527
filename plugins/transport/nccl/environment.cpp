#include "environment.h"

#include <cstdlib>
#include <optional>
#include <string>

namespace orrery::nccl_transport {
namespace {

/// The user's value of a variable, as NCCL reads it: an empty one is not set.
std::optional<long long> given(const char* name) {
    const char* const text = std::getenv(name);
    return text && *text ? std::optional(std::strtoll(text, nullptr, 0)) : std::nullopt;
}

void set_unless_given(const char* name, const char* value) {
    if (!given(name)) ::setenv(name, value, 1);
}

}  // namespace

void prepare_environment(bool deterministic, const Origin& origin) {
    // A GPU has a communicator for each axis. Their kernels must run in the order in which the plan issues them, the
    // same on every rank; otherwise two of them may wait for each other across GPUs.
    set_unless_given("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
    // No captured step overlaps other messages, because the executor waits for the end of each program. Together with
    // the variable above, NCCL's own ordering makes graphs that crash the driver (580.159 in cuGraphUpload, NCCL
    // 2.28.9).
    set_unless_given("NCCL_GRAPH_MIXING_SUPPORT", "0");
    if (given("NCCL_LAUNCH_ORDER_IMPLICIT") != 0 && given("NCCL_GRAPH_MIXING_SUPPORT") != 0)
        throw Error(origin,
                    "NCCL_GRAPH_MIXING_SUPPORT is on in the environment: with NCCL_LAUNCH_ORDER_IMPLICIT, which "
                    "transport nccl needs for several axes, captured steps crash the driver\n  unset it");
    if (!deterministic) return;
    // Switches add in an unspecified order.
    for (const char* name : {"NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE"}) {
        if (given(name).value_or(0) != 0)
            throw Error(origin, "transport.nccl.deterministic is true, but " + std::string(name) + "=" +
                                    std::getenv(name) +
                                    " in the environment lets switches add in any order\n  unset "
                                    "it, or set transport.nccl.deterministic = false");
    }
    set_unless_given("NCCL_NVLS_ENABLE", "0");
}

void refuse_blocking() {
    if (given("NCCL_COMM_BLOCKING") == 1)
        throw Error(
            "transport nccl: NCCL_COMM_BLOCKING=1 in the environment makes every call of NCCL wait for the "
            "other ranks without a bound\n  unset it",
            Fault::failed);
}

}  // namespace orrery::nccl_transport
