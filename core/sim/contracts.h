#pragma once
#include "orrery/communicator.h"

namespace orrery {

/// What plans of accelerators are made for where no GPU or plugin is at hand: the contract of transport/nccl.
/// The same table as NcclTransport::contract (plugins/transport/nccl/nccl.cpp), mark: accelerator contract.
TransportContract accelerator_contract();

}  // namespace orrery
