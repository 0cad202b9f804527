#pragma once
#include "orrery/communicator.h"

namespace orrery {

/// The contract for which plans for accelerators are made if no GPU or plugin is available: that of transport/nccl. The
/// same table as NcclTransport::contract (plugins/transport/nccl/nccl.cpp), mark: accelerator contract.
TransportContract accelerator_contract();

}  // namespace orrery
