#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace orrery {

/// Waits until `host` resolves, and returns whether it then stands for an address of this host. `moves`: also waits
/// while it stands for another host's: the name of a pod, by a headless service of Kubernetes, resolves some seconds
/// after the pod has started, until then perhaps to the address of the pod before it. An address is only checked.
/// `waits` is called once if there is a wait.
bool await_own_name(const std::string& host, bool moves, std::chrono::milliseconds limit,
                    const std::function<void()>& waits);

}  // namespace orrery
