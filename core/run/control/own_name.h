#pragma once
#include <chrono>
#include <string>

namespace orrery {

/// Waits until `host` stands for an address of this host, and returns whether it does. The name of a pod, by a headless
/// service of Kubernetes, resolves some seconds after the pod has started, until then perhaps to the address of the pod
/// before it. An address is only checked. Prints on stderr that it waits.
bool await_own_name(const std::string& host, std::chrono::milliseconds limit);

}  // namespace orrery
