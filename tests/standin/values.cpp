// The numbers that callers and library agree on. CMakeLists.txt compiles this with the vendors' headers, too, where
// there are any.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>

static_assert(cudaSuccess == 0 && cudaErrorInvalidValue == 1 && cudaErrorMemoryAllocation == 2);
static_assert(cudaErrorNoDevice == 100 && cudaErrorInvalidDevice == 101 && cudaErrorInvalidResourceHandle == 400);
static_assert(cudaErrorNotReady == 600 && cudaErrorIllegalAddress == 700 && cudaErrorLaunchTimeout == 702);
static_assert(cudaErrorPeerAccessAlreadyEnabled == 704 && cudaErrorLaunchFailure == 719);
static_assert(cudaErrorNotSupported == 801 && cudaErrorStreamCaptureUnsupported == 900);
static_assert(cudaErrorStreamCaptureInvalidated == 901 && cudaErrorStreamCaptureUnmatched == 903);
static_assert(cudaErrorStreamCaptureUnjoined == 904 && cudaErrorStreamCaptureIsolation == 905);
static_assert(cudaErrorCapturedEvent == 907 && cudaErrorStreamCaptureWrongThread == 908);
static_assert(cudaMemcpyHostToHost == 0 && cudaMemcpyHostToDevice == 1 && cudaMemcpyDeviceToHost == 2);
static_assert(cudaMemcpyDeviceToDevice == 3 && cudaMemcpyDefault == 4);
static_assert(cudaMemoryTypeUnregistered == 0 && cudaMemoryTypeHost == 1 && cudaMemoryTypeDevice == 2);
static_assert(cudaStreamCaptureModeGlobal == 0 && cudaStreamCaptureModeThreadLocal == 1);
static_assert(cudaStreamCaptureModeRelaxed == 2 && cudaStreamCaptureStatusNone == 0);
static_assert(cudaStreamCaptureStatusActive == 1 && cudaStreamCaptureStatusInvalidated == 2);
static_assert(cudaFuncAttributeMaxDynamicSharedMemorySize == 8 && cudaHostAllocPortable == 1);
static_assert(cudaStreamNonBlocking == 1 && cudaEventDisableTiming == 2);
static_assert(cudaEventBlockingSync == 1 && cudaEventWaitExternal == 1);

static_assert(CUDA_R_32F == 0 && CUDA_R_16F == 2 && CUDA_R_16BF == 14);
static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_INVALID_VALUE == 7);
static_assert(CUBLAS_STATUS_EXECUTION_FAILED == 13 && CUBLAS_STATUS_NOT_SUPPORTED == 15);
static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1 && CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77);
static_assert(CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4 && CUBLASLT_EPILOGUE_GELU_BIAS == 36);
static_assert(CUBLASLT_EPILOGUE_GELU_AUX_BIAS == 164 && CUBLASLT_EPILOGUE_DGELU == 192);
static_assert(CUBLASLT_EPILOGUE_BGRADA == 256);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER == 11 && CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD == 12);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE == 13);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE == 22 && CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE == 26);
static_assert(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == 5 && CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == 6);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 && CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == 6);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == 7 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8);
static_assert(CUBLASLT_REDUCTION_SCHEME_INPLACE == 1 && CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72);

static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInvalidArgument == 4);
static_assert(ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7);
static_assert(ncclSum == 0 && ncclMax == 2 && ncclMin == 3);
static_assert(ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 && ncclFloat16 == 6);
static_assert(ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9 && sizeof(ncclUniqueId) == 128);
