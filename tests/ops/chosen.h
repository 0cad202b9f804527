// Which ops are tested, and the devices that run them.
#pragma once
#include <span>
#include <vector>

#include "call.h"
#include "ir/op.h"
#include "orrery/device.h"

namespace orrery::op_tests {

/// ORRERY_TESTED_OPS=NAME,NAME: what the plugins op/NAME add, found in ORRERY_TESTED_OP_PLUGINS=FOLDER or with this
/// Orrery. Empty: the table of ops without collectives. Ends the program where a plugin cannot be loaded or adds none.
const std::vector<const OpDef*>& chosen();
/// Whether those are plugins' ops.
bool chosen_by_name();

/// The CPU device, with plugins' kernels, of one thread or of three; and with the reference kernels.
Device& cpu(int threads = 1);
Device& reference();

/// Prepares and runs one kernel with the scratch that it asks for.
void run(Device& device, const KernelSpec& spec, std::span<const Tensor> operands);

}  // namespace orrery::op_tests
