#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// Something among the steps that the store has not left there so.
struct Stray {
    int64_t step = -1;  ///< whose place it takes; -1: of none
    std::string what;   ///< "step-00000300 has no manifest.json"
};

/// Keeps the checkpoints of one run as named byte objects per step. Knows no tensors: sharding, formats and
/// resharding are the core's, so every store gets them. Uncommitted steps are never visible to readers.
/// All calls block. Failures are Fault::failed and name the path or key, the bytes and the system's reason.
class ORRERY_API CheckpointStore {
public:
    virtual ~CheckpointStore();
    /// Writes one object of an uncommitted step, exclusively: a second put of the key throws.
    virtual void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) = 0;
    /// The same for an object that lies in several places. By default joins them in memory, which costs their size once
    /// more; a store that can write one after the other does.
    virtual void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts);
    /// Returns when everything this process put for the step would survive a power cut.
    virtual void flush(int64_t step) = 0;
    /// Called by one rank after all have flushed. Makes the step visible, atomically, never replacing one.
    virtual void commit(int64_t step, std::string_view manifest) = 0;
    /// Drops what was put for a step that was not committed.
    virtual void discard(int64_t step) = 0;

    /// Committed steps, newest first.
    virtual std::vector<int64_t> steps() = 0;
    virtual std::string manifest(int64_t step) = 0;
    /// Size of an object, -1 when there is none.
    virtual int64_t size(int64_t step, std::string_view key) = 0;
    /// Reads exactly bytes.size() bytes from the offset.
    virtual void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) = 0;
    virtual void remove(int64_t step) = 0;

    /// What is no committed step but lies where one would, and committed steps that others have changed so that they
    /// are not removed. None by default: nobody else can write to such a store.
    virtual std::vector<Stray> strays();
    /// Makes way for a step: whatever stands in its place, committed or not, is kept under another name and is no step
    /// any more. Returns that name, "" when nothing stood there.
    virtual std::string set_aside(int64_t step) = 0;
    /// Keeps a line of text beside a committed step, which stays as it is, over power cuts. The first one stays.
    virtual void mark(int64_t step, std::string_view text) = 0;
    /// The text beside a committed step, "" when there is none.
    virtual std::string mark_of(int64_t step) = 0;
    /// "runs/gpt/checkpoints", for messages.
    virtual std::string place() const = 0;
};

}  // namespace orrery
