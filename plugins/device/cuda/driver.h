// Whether there is a GPU that this build can use.
#pragma once

#include <string>

namespace orrery::cuda_device {

/// "" when there is one; otherwise one sentence. Opens no context.
std::string cannot_run();

/// The GPUs that the driver shows to this process.
int visible_gpus();

/// The PCI address of a GPU, "0000:17:00.0". Opens no context.
std::string address_of(int device);

/// Throws Error when code for this GPU is not in the build, naming the build's architectures.
void require_architecture(int device);

}  // namespace orrery::cuda_device
