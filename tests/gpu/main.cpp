// Runs the tests, or skips all of them with a reason (exit code 77).
#include <cstdio>

#include "folders.h"
#include "gpu/gpu.h"
#include "plugin/loader.h"
#include "runner.h"

#ifndef ORRERY_GPU_PLUGINS  // tests/standin has others
#define ORRERY_GPU_PLUGINS "plugins"
#endif

namespace orrery::gpu {

std::string plugin_folder() { return in_build(ORRERY_GPU_PLUGINS); }

namespace {

const Registry& registry() {
    static const Registry all = [] {
        Registry r;
        Loader({plugin_folder()}).load("device", "cuda", r, {});
        return r;
    }();
    return all;
}

}  // namespace

std::string cannot_run() {
    for (const PluginReport& report : Loader({plugin_folder()}).list())
        if (report.name == "device/cuda") {
            if (!report.reason.empty()) throw Error(report.reason, Fault::failed);  // a skip would hide it
            return report.cannot_run;
        }
    return "device/cuda is not built";
}

std::unique_ptr<Device> device(std::vector<std::pair<std::string, ConfigValue>> options) {
    Config config("device.cuda");
    for (auto& [key, value] : options) config.set(key, std::move(value));
    auto made = registry().device("cuda", {})(config);
    config.reject_unused();
    return made;
}

Bench::Bench() {
    kernels::cuda::check(cudaSetDevice(0), "choosing the GPU");
    kernels::cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    context_ = std::make_unique<kernels::cuda::Context>(kernels::cuda::read_chip(0), stream_, "");
}

Bench::~Bench() {
    context_.reset();
    cudaStreamDestroy(stream_);
}

}  // namespace orrery::gpu

int main(int argc, char** argv) {
    if (const std::string why = orrery::gpu::cannot_run(); !why.empty()) {
        std::printf("gpu tests skipped: %s\n", why.c_str());
        return 77;
    }
    return orrery::run_tests(argc, argv);
}
