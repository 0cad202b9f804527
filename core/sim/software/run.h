#pragma once
#include <cstdint>
#include <string>

#include "orrery/plan.h"
#include "sim/constants.h"
#include "sim/kernel_prices.h"
#include "sim/software/defaults.h"
#include "sim/software/profile.h"
#include "sim/software/tp_chunks.h"

namespace orrery {

/// A job as training software runs it: the software's defaults, and the facts of the job that they depend on.
struct SoftwareRun {
    SoftwareDefaults software;       ///< with what the job says instead
    int zero = 0;                    ///< ZeRO stage: what is split over data-parallel ranks
    int64_t chunks = 1;              ///< stages of each rank of the pipeline
    bool eight_bit = false;          ///< matrix products of linear layers are in 8 bits
    bool sequence = false;           ///< tp also splits the sequence between blocks
    bool gathers_again = false;      ///< the backward pass gathers inputs of matrix products over tp again
    bool recomputes_blocks = false;  ///< the backward pass recomputes whole blocks
    int64_t logits = 0;              ///< columns of the logits on a rank; 0: unknown
    // Set by settle():
    bool chunks_tp = false;    ///< collectives of tp run in chunks next to their matrix products
    bool scatters = false;     ///< ranks of tp send a part each of what a stage sends
    bool reduce_bf16 = false;  ///< gradients are summed in bf16
};

/// What else of a job the defaults depend on.
struct SoftwareJob {
    int64_t tp = 1;
    bool tp_is_near = true;  ///< ranks of tp share fast links
    bool experts = false;    ///< layers are mixtures of experts
    bool f16 = false;        ///< matrix products are in f16
};
/// Sets the fields below "Set by settle()", and clears 8-bit defaults in a job without 8-bit GEMMs.
void settle(SoftwareRun& run, const SoftwareJob& job);

/// Reads from a plan what a SoftwareRun depends on: `zero`, `chunks`, `sequence`, `gathers_again` and `logits`.
SoftwareRun run_of(SoftwareDefaults software, const Plan& plan);

/// Max MiB of a gradient message: 160 in flat buffers; else PyTorch's 25 MiB of 16-bit gradients, 50 if they are sent
/// in f32 (below ZeRO-3).
int64_t bucket_mib(const SoftwareRun& run);
/// The plan changes that with_software() makes.
SoftwareProfile profile_of(const SoftwareRun& run);
/// Changes a plan to what the software would run, only for prices. `tp_chunks`: chunks of tp's collectives whatever the
/// software does; 0: as the software.
TpChunked with_software(Plan plan, const SoftwareRun& run, int64_t tp_chunks = 0);

/// Suffixes of the constants launch_s.*, passes.* and attention.* for the software.
std::string launches_of(const SoftwareDefaults& software);
std::string elementwise_of(const SoftwareDefaults& software);
std::string attention_of(const SoftwareDefaults& software);
/// Kernel prices. Orrery's own plan already has 8-bit GEMMs; for other software its 16-bit GEMMs are priced in 8 bits.
KernelSoftware kernels_of(const SoftwareRun& run, const Constants& constants);
/// Whether a kernel only rearranges a tensor, which costs nothing where tensors are allocated as messages need them.
bool lays_out(const KernelSpec& spec);

}  // namespace orrery
