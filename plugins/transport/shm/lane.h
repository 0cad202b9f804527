#pragma once
#include <memory>

#include "control.h"

namespace orrery::shm {

/// The slots of one lane, as one of its two ends sees them. Message n is in slot n modulo their number. A sender that
/// finds all in use continues in twice as many, so that no send blocks; later steps use those.
class Slots {
public:
    explicit Slots(Lane& lane) : link_(&lane.next), messages_(lane.slots) {}

    /// Sender: the slot for message `number`, when all up to `delivered` have been received.
    Message& free(uint32_t number, uint32_t delivered);
    /// Receiver: message `number`, which has been posted. `pid` and `rank` are the sender's.
    const Message& posted(uint32_t number, int64_t pid, int64_t rank);

private:
    Message& at(uint32_t number) { return messages_[number % count_]; }
    void move(std::shared_ptr<Mapping> to, uint32_t first, uint32_t count);

    Link* link_;  ///< the link after the current slots
    Message* messages_;
    uint32_t first_ = 1;  ///< the first message in these slots
    uint32_t count_ = lane_slots;
    bool used_ = false;                           ///< sender: each slot has been used at least once
    std::shared_ptr<Mapping> mapping_;            ///< null: the slots in the lane itself
    std::vector<std::shared_ptr<Mapping>> kept_;  ///< sender: earlier slots, which the receiver may still use
};

}  // namespace orrery::shm
