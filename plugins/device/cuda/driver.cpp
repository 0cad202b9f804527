#include "driver.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <sstream>

#include "kernels/cuda/check.h"
#include "orrery/error.h"

namespace orrery::cuda_device {

namespace {

/// 13000 -> "13.0"
std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string cannot_run() {
    int driver = 0, runtime = 0, count = 0;
    // 0 stands for a machine without libcuda.so.1; later calls would say that the driver is too old.
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "no NVIDIA driver (libcuda.so.1) on this machine";
    cudaRuntimeGetVersion(&runtime);
    if (driver / 1000 < runtime / 1000)
        return "the NVIDIA driver supports CUDA " + version_text(driver) + ", this build needs " +
               version_text(runtime) + " or newer";
    const cudaError_t status = cudaGetDeviceCount(&count);
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string hidden = visible ? ", CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\"" : "";
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return "the NVIDIA driver shows no GPU" + hidden;
    if (status != cudaSuccess)
        return std::string("the NVIDIA driver failed to start: ") + cudaGetErrorName(status) + ", " +
               cudaGetErrorString(status) + hidden;
    return "";
}

int visible_gpus() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string address_of(int device) {
    char address[32] = "";
    return cudaDeviceGetPCIBusId(address, sizeof address, device) == cudaSuccess ? address : "";
}

void require_architecture(int device) {
    const kernels::cuda::Chip chip = kernels::cuda::read_chip(device);
    std::istringstream list(ORRERY_CUDA_ARCHITECTURES);
    std::string built;
    bool found = false;
    for (std::string one; std::getline(list, one, ',');) {
        built += (built.empty() ? "sm_" : ", sm_") + one;
        const int number = std::atoi(one.c_str());  // "90a" is 90
        const bool exact = one.back() < '0' || one.back() > '9';
        // Code for 8.0 runs on 8.6, too; code that names an "a" runs on that chip alone.
        found |= number / 10 == chip.major && (exact ? number % 10 == chip.minor : number % 10 <= chip.minor);
    }
    if (!found)
        throw Error("GPU " + std::to_string(device) + ", " + chip.name + ", is sm_" + std::to_string(chip.major) +
                    std::to_string(chip.minor) + "; this build has code for " + built +
                    "\n  build with: cmake -B build -DORRERY_CUDA_ARCHITECTURES=" + std::to_string(chip.major) +
                    std::to_string(chip.minor));
}

}  // namespace orrery::cuda_device
