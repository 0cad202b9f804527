// Out-of-line anchors of the interfaces: one vtable each, in liborrery.so.
#include "orrery/checkpoint.h"
#include "orrery/communicator.h"
#include "orrery/device.h"
#include "orrery/strategy.h"

namespace orrery {

Completer::~Completer() = default;
Kernel::~Kernel() = default;
Device::~Device() = default;
Rendezvous::~Rendezvous() = default;
Transport::~Transport() = default;
Strategy::~Strategy() = default;
CheckpointStore::~CheckpointStore() = default;

}  // namespace orrery
