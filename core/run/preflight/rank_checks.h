#pragma once
#include <functional>
#include <string>

#include "orrery/device.h"
#include "run/preflight/figures.h"

namespace orrery {

/// How long and how much a rank's own checks may take.
struct RankCheckOptions {
    double matrix_s = 1;               ///< of products of each type
    double copy_s = 0.3;               ///< of copies
    int64_t copy_bytes = 0;            ///< of each; 0: 64 MiB of host memory, 1 GiB of a device's own
    int64_t storage_bytes = 64 << 20;  ///< most of one piece that is written and fsynced
    std::string folder;                ///< where to write; "": storage is not looked at
};

// Each needs no other rank, and may be called alone: on a device that is otherwise idle.

/// FLOP/s of a dense product of this type, [n,n] x [n,n] with n = 512 on processors and 8,192 elsewhere, over
/// `seconds`. 0 where the device cannot.
double measured_matrix_rate(Device& device, DType dtype, double seconds);

/// Bytes read and written per second by copies inside the device's memory, over `seconds`.
double measured_copy_rate(Device& device, int64_t bytes, double seconds);

/// Writes, fsyncs and reads back a file in the folder, which is made if it is not there, and stays: fills write_bytes,
/// read_bytes and sync_s, or storage_problem. The file has no name, so that nothing stays where the check is cut off;
/// what checks of earlier versions left more than an hour ago is removed. Never throws for what the file system
/// refuses.
void check_storage(const RankCheckOptions& options, RankFigures& figures);

/// All of them. `before` is called before each part with what begins: ranks that are to be busy with the same part at
/// the same time meet there. It may be empty.
RankFigures check_rank(Device& device, const RankCheckOptions& options,
                       const std::function<void(const char* part)>& before = {});

}  // namespace orrery
