#pragma once
#include <memory>

#include "control.h"

namespace orrery::shm {

/// The slots of one lane, as one of its two ends sees them. Message n lies in slot n modulo their number. A sender that
/// finds all of them in use goes on in twice as many, so that no send waits; they stay for later steps.
class Slots {
public:
    explicit Slots(Lane& lane) : link_(&lane.next), messages_(lane.slots) {}

    /// Sender: where message `number` is to be written, all up to `delivered` having been received.
    Message& free(uint32_t number, uint32_t delivered);
    /// Receiver: message `number`, which has been posted. `pid`, `rank`: of the sender.
    const Message& posted(uint32_t number, int64_t pid, int64_t rank);

private:
    Message& at(uint32_t number) { return messages_[number % count_]; }
    void move(std::shared_ptr<Mapping> to, uint32_t first, uint32_t count);

    Link* link_;  ///< of the slots at hand
    Message* messages_;
    uint32_t first_ = 1;  ///< the first message that lay here
    uint32_t count_ = lane_slots;
    bool used_ = false;                           ///< sender: each of them, once at least
    std::shared_ptr<Mapping> mapping_;            ///< none: the slots beside the lane
    std::vector<std::shared_ptr<Mapping>> kept_;  ///< sender: earlier ones, where the receiver may still be
};

}  // namespace orrery::shm
