#include "lane.h"

namespace orrery::shm {

namespace {

/// Beginning of the file; the slots follow it.
struct alignas(64) Head {
    Link next;
};

int64_t bytes_of(uint32_t slots) {
    return static_cast<int64_t>(sizeof(Head)) + static_cast<int64_t>(slots) * static_cast<int64_t>(sizeof(Message));
}

}  // namespace

void Slots::move(std::shared_ptr<Mapping> to, uint32_t first, uint32_t count) {
    mapping_ = std::move(to);
    link_ = &reinterpret_cast<Head*>(mapping_->data())->next;
    messages_ = reinterpret_cast<Message*>(mapping_->data() + sizeof(Head));
    first_ = first;
    count_ = count;
    used_ = false;
}

Message& Slots::free(uint32_t number, uint32_t delivered) {
    used_ = used_ || number - first_ >= count_;
    if (used_ && static_cast<int32_t>(number - count_ - delivered) > 0) {
        auto more = std::make_shared<Mapping>(bytes_of(2 * count_));
        Link& link = *link_;
        link.first = number;
        link.slots = 2 * count_;
        link.fd = more->fd();
        // visible to the receiver of the message, which is posted after this
        link.set.store(1, std::memory_order_release);
        kept_.push_back(std::move(mapping_));
        move(std::move(more), number, 2 * count_);
    }
    return at(number);
}

const Message& Slots::posted(uint32_t number, int64_t pid, int64_t rank) {
    if (link_->set.load(std::memory_order_acquire) != 0 && link_->first == number) {
        const uint32_t slots = link_->slots;
        const std::string handle = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(link_->fd);
        move(Mappings().open(handle, bytes_of(slots), rank), number, slots);
    }
    return at(number);
}

}  // namespace orrery::shm
