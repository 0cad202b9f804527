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

/// A job as a software runs it: what the software does by default, and what of the job that depends on.
struct SoftwareRun {
    SoftwareDefaults software;       ///< with what the job says instead
    int zero = 0;                    ///< ZeRO stage: what is split over data-parallel ranks
    int64_t chunks = 1;              ///< stages of each rank of the pipeline
    bool eight_bit = false;          ///< matrix products of linear layers are in 8 bits
    bool sequence = false;           ///< tp also splits the sequence between blocks
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
/// Sets what the software does in this job.
void settle(SoftwareRun& run, const SoftwareJob& job);

/// Reads from a plan what a SoftwareRun depends on: `zero`, `chunks`, `sequence` and `logits`.
SoftwareRun run_of(SoftwareDefaults software, const Plan& plan);

/// MiB of a message of gradients at most. Those of units are PyTorch's 25 MiB, of 16-bit gradients that may be sent in
/// f32.
int64_t bucket_mib(const SoftwareRun& run);
SoftwareProfile profile_of(const SoftwareRun& run);
/// Changes a plan to what the software would run, only for prices. `tp_chunks`: chunks of tp's collectives whatever the
/// software does; 0: as the software.
TpChunked with_software(Plan plan, const SoftwareRun& run, int64_t tp_chunks = 0);

/// Which constant of launch_s, passes and attention a software has.
std::string launches_of(const SoftwareDefaults& software);
std::string elementwise_of(const SoftwareDefaults& software);
std::string attention_of(const SoftwareDefaults& software);
/// How the software runs the kernels of a plan. 8-bit matrix products are kernels of a planned software's plan; the
/// plan of any other has them in 16 bits.
KernelSoftware kernels_of(const SoftwareRun& run, const Constants& constants);
/// Whether a kernel only rearranges a tensor, which costs nothing where tensors are allocated as messages need them.
bool lays_out(const KernelSpec& spec);

}  // namespace orrery
