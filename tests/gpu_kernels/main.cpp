// Runs the tests, or skips all of them with a reason (exit code 77).
#include <cuda_runtime_api.h>

#include <cstdio>

#include "runner.h"

int main(int argc, char** argv) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        std::printf("gpu kernel tests skipped: %s\n", status != cudaSuccess ? cudaGetErrorString(status) : "no GPU");
        return 77;
    }
    return orrery::run_tests(argc, argv);
}
