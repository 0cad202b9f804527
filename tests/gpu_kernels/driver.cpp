// Stands in for libcuda.so.1 where plans are only made: it finds no GPU, and loading a module succeeds.
// The names are the driver's; cuDNN asks for all of them when it compiles an engine.
namespace {

constexpr int done = 0, no_device = 100;

int give(void** handle) {
    *handle = handle;  // any address that is not null
    return done;
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return no_device; }
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return done;
}
int cuDeviceGetCount(int* count) {
    *count = 0;
    return done;
}
int cuDeviceGet(int*, int) { return no_device; }
int cuGetErrorName(int, const char** text) {
    *text = "an error of the stand-in";
    return done;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
int cuCtxGetCurrent(void** context) { return give(context); }
int cuCtxGetLimit() { return done; }
int cuCtxPopCurrent(void** context) { return give(context); }
int cuCtxPushCurrent(void*) { return done; }
int cuStreamGetCtx(void*, void** context) { return give(context); }
int cuLibraryLoadData(void** library) { return give(library); }
int cuLibraryLoadFromFile(void** library) { return give(library); }
int cuLibraryUnload(void*) { return done; }
int cuLibraryGetKernel(void** kernel) { return give(kernel); }
int cuLibraryGetModule(void** made) { return give(made); }
int cuKernelGetFunction(void** function) { return give(function); }
int cuKernelGetAttribute() { return done; }
int cuKernelSetAttribute() { return done; }
int cuModuleLoadData(void** made) { return give(made); }
int cuModuleUnload(void*) { return done; }
int cuFuncSetAttribute() { return done; }
int cuOccupancyMaxPotentialClusterSize() { return done; }
int cuLaunchKernel() { return no_device; }
int cuLaunchKernelEx() { return no_device; }
int cuLaunchCooperativeKernel() { return no_device; }
int cuLinkCreate() { return no_device; }
int cuLinkAddData() { return no_device; }
int cuLinkComplete() { return no_device; }
int cuLinkDestroy() { return no_device; }
}
