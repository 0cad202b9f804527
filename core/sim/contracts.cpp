#include "sim/contracts.h"

namespace orrery {

TransportContract accelerator_contract() {  // mark: accelerator contract
    TransportContract c;
    c.send = TransportContract::Send::grouped;
    c.queued = true;
    c.lanes = TransportContract::Lanes::communicator;
    c.matching = TransportContract::Matching::order;
    c.checks_tags = false;
    c.deterministic = true;
    c.reduction = TransportContract::Reduction::by_algorithm;
    c.memory = {MemoryKind::device, MemoryKind::pinned};
    c.dtypes = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u32, DType::u8};
    c.devices = {"cuda"};
    return c;
}

}  // namespace orrery
