#include "plan/lower/insert_waits.h"

#include <algorithm>

#include "plan/access.h"
#include "plan/ranges.h"

namespace orrery::lowering {

namespace {

/// Who touched a byte last. Reads since the write: the last one of each queue.
struct Touched {
    int writer = none;
    std::vector<int> readers;
};

class Waits {
public:
    explicit Waits(RankClass& rank_class)
        : class_(rank_class), queues_(static_cast<size_t>(queues_of(rank_class))), known_(queues_ * queues_, none) {}

    void run() {
        done_.resize(class_.stream.size() * queues_, none);
        for (size_t i = 0; i < class_.stream.size(); ++i) one(static_cast<int>(i));
    }

private:
    int queue(int index) const { return class_.stream[static_cast<size_t>(index)].queue; }

    void one(int index) {
        Instruction& instruction = class_.stream[static_cast<size_t>(index)];
        needed_.assign(queues_, none);
        for_each_access(class_, instruction,
                        [&](const Operand& operand, bool reads, bool writes) { touch(index, operand, reads, writes); });
        const auto mine = static_cast<size_t>(instruction.queue);
        int* known = &known_[mine * queues_];
        for (size_t q = 0; q < queues_; ++q) {
            if (q == mine || needed_[q] <= known[q]) continue;
            instruction.waits.push_back(needed_[q]);
            const int* then = &done_[static_cast<size_t>(needed_[q]) * queues_];
            for (size_t other = 0; other < queues_; ++other) known[other] = std::max(known[other], then[other]);
        }
        std::sort(instruction.waits.begin(), instruction.waits.end());
        known[mine] = index;
        std::copy(known, known + queues_, &done_[static_cast<size_t>(index) * queues_]);
    }

    void need(int index, int other) {
        if (other == none || queue(other) == queue(index)) return;
        int& needed = needed_[static_cast<size_t>(queue(other))];
        needed = std::max(needed, other);
    }

    void touch(int index, const Operand& operand, bool reads, bool writes) {
        const int64_t begin = address(class_, operand), end = begin + operand.type.bytes();
        auto& ranges = ranges_[arena(class_, operand) == Arena::scratch];
        ranges.visit(begin, end, [&](Touched& touched) {
            need(index, touched.writer);
            if (writes)
                for (int reader : touched.readers) need(index, reader);
            if (reads && !writes) {
                auto same = std::find_if(touched.readers.begin(), touched.readers.end(),
                                         [&](int reader) { return queue(reader) == queue(index); });
                if (same == touched.readers.end()) {
                    touched.readers.push_back(index);
                } else {
                    *same = index;
                }
            }
        });
        if (writes) ranges.replace(begin, end, {index, {}});
    }

    RankClass& class_;
    size_t queues_;
    std::vector<int> known_;   ///< [queue][other]: last instruction of `other` that is done before the queue's next one
    std::vector<int> done_;    ///< [instruction][other]: what is known to be done when the instruction is
    std::vector<int> needed_;  ///< per queue, of the instruction at hand
    Ranges<Touched> ranges_[2];
};

}  // namespace

void insert_waits(RankClass& rank_class) {
    if (queues_of(rank_class) > 1) Waits(rank_class).run();
}

}  // namespace orrery::lowering
