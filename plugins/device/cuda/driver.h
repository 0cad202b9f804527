// Whether there is a GPU that this build can use.
#pragma once

#include <string>

namespace orrery::cuda_device {

/// "" when there is one; otherwise one sentence. Opens no context.
std::string cannot_run();

/// The GPUs that the driver shows to this process.
int visible_gpus();

/// Throws Error when code for this GPU is not in the build, naming the build's architectures.
void require_architecture(int device);

}  // namespace orrery::cuda_device
