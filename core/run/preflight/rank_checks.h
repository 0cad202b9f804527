#pragma once
#include <functional>
#include <string>

#include "orrery/device.h"
#include "run/preflight/figures.h"

namespace orrery {

struct RankCheckOptions {
    double matrix_s = 1;               ///< seconds for matrix products of each dtype
    double copy_s = 0.3;               ///< seconds for copies within the device's memory
    int64_t copy_bytes = 0;            ///< bytes of each copy; 0: 64 MiB of host memory, 1 GiB of device memory
    int64_t storage_bytes = 64 << 20;  ///< max bytes written and fsynced at once
    std::string folder;                ///< folder to write to; "": storage is not checked
};

// The checks below need no other rank and may be called alone, on a device that is otherwise idle.

/// FLOP/s of a dense product [n,n] x [n,n] of random numbers of this floating-point type over `seconds`, after the
/// same product has run for `warm_s`. n = 512 on processors and 8,192 on other devices. 0 if the device does not
/// support it.
double measured_matrix_rate(Device& device, DType dtype, double seconds, double warm_s = 0);

/// Bytes read and written per second by copies within the device's memory, over `seconds`.
double measured_copy_rate(Device& device, int64_t bytes, double seconds);

/// Writes, fsyncs and reads back a file in the folder, and sets write_bytes, read_bytes and sync_s, or storage_problem.
/// Creates the folder if needed and leaves it. The file has no name, so an interrupted check leaves nothing; files
/// older than an hour that checks of earlier versions left are removed. Errors of the file system are not thrown.
void check_storage(const RankCheckOptions& options, RankFigures& figures);

/// Runs all checks of one rank. `before` is called with each part's name before the part begins; ranks that should run
/// a part at the same time synchronize in this function. It may be empty.
RankFigures check_rank(Device& device, const RankCheckOptions& options,
                       const std::function<void(const char* part)>& before = {});

}  // namespace orrery
