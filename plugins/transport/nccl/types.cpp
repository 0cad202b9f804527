#include "types.h"

namespace orrery::nccl_transport {

std::string cannot_run() {
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "no NVIDIA driver (libcuda.so.1) on this machine";
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) return "the NVIDIA driver shows no GPU";
    if (status != cudaSuccess)
        return std::string("the NVIDIA driver failed to start: ") + cudaGetErrorName(status) + ", " +
               cudaGetErrorString(status);
    return "";
}

ncclDataType_t reducible(DType type) {
    switch (type) {
        case DType::f32: return ncclFloat32;
        case DType::f64: return ncclFloat64;
        case DType::bf16: return ncclBfloat16;
        case DType::f16: return ncclFloat16;
        case DType::i32: return ncclInt32;
        case DType::i64: return ncclInt64;
        case DType::u32: return ncclUint32;
        case DType::u8: return ncclUint8;
        case DType::u16:
        case DType::i8:
        case DType::f8e4m3:
        case DType::f8e5m2: break;
    }
    throw Error("transport nccl: NCCL does not support reducing " + std::string(name_of(type)), Fault::failed);
}

ncclRedOp_t operation(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum: return ncclSum;
        case ReduceOp::max: return ncclMax;
        case ReduceOp::min: return ncclMin;
    }
    return ncclSum;
}

void require(cudaError_t status, const char* what) {
    if (status != cudaSuccess)
        throw Error(std::string("transport nccl: ") + what + ": " + cudaGetErrorName(status) + ", " +
                        cudaGetErrorString(status),
                    Fault::failed);
}

std::string text_of(ncclResult_t status) {
    const char* const last = ncclGetLastError(nullptr);
    return std::string(ncclGetErrorString(status)) + (last && last[0] ? ", " + std::string(last) : "");
}

void require(ncclResult_t status, const char* what) {
    if (status != ncclSuccess && status != ncclInProgress)
        throw Error(std::string("transport nccl: ") + what + ": " + text_of(status), Fault::failed);
}

std::string to_hex(const void* data, size_t bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < bytes; ++i) {
        const unsigned char byte = static_cast<const unsigned char*>(data)[i];
        text += {digits[byte >> 4], digits[byte & 15]};
    }
    return text;
}

void from_hex(const std::string& text, void* data, size_t bytes) {
    const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    if (text.size() != 2 * bytes) throw Error("transport nccl: another rank sent an invalid NCCL id", Fault::peer);
    for (size_t i = 0; i < bytes; ++i)
        static_cast<unsigned char*>(data)[i] =
            static_cast<unsigned char>(value(text[2 * i]) << 4 | value(text[2 * i + 1]));
}

}  // namespace orrery::nccl_transport
