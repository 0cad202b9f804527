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

/// Which line of text lies beside a committed step.
enum class StepNote : uint8_t {
    suspect,  ///< its mark: why no start goes on from it
    pinned,   ///< why it is not retired
};

/// What a store promises beyond what all must: an object and a step appear whole or not at all, and neither is ever
/// replaced. Saves count on it, the suite of stores tests it.
struct StoreContract {
    enum class Survives : uint8_t { nothing, process, power_cut };
    enum class Shared : uint8_t { process, host, hosts };
    Survives survives = Survives::nothing;  ///< what a committed step outlives, once commit has returned
    Shared shared = Shared::process;        ///< who sees the steps: ranks elsewhere need another store
    bool links = false;                     ///< link shares bytes; otherwise it reads and writes them
    bool fences = false;                    ///< generations: what a claimed one has superseded can commit no more

    std::string text() const;  ///< "survives a power cut, shared by hosts, links, fences"
};

/// Keeps the checkpoints of one run as named byte objects per step. Knows no tensors: sharding, formats and
/// resharding are the core's, so every store gets them. Uncommitted steps are never visible to readers.
/// All calls block, one thread at a time calls: the one that saves, or the one that trains. Failures are Fault::failed
/// and name the path or key, the bytes and the system's reason.
class ORRERY_API CheckpointStore {
public:
    virtual ~CheckpointStore();
    /// By default the least.
    virtual StoreContract contract() const;
    /// Writes one object of an uncommitted step, exclusively: a second put of the key throws.
    virtual void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) = 0;
    /// The same for an object that lies in several places. By default joins them in memory, which costs their size once
    /// more; a store that can write one after the other does.
    virtual void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts);
    /// Makes the object `key` of an uncommitted step the bytes of `from_key` of the committed step `from`, exclusively;
    /// removing `from` later leaves it. By default reads and writes them, which costs their size in memory.
    virtual void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key);
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
    /// A line of text beside a committed step, "" when there is none. It goes where the step goes; one that is written
    /// again has none.
    virtual std::string note(int64_t step, StepNote which) = 0;
    /// The line becomes this one, over power cuts, whole or not at all; "" takes it off. The step stays as it is.
    virtual void set_note(int64_t step, StepNote which, std::string_view text) = 0;

    /// Marks a committed step; the first mark stays. `text` is not empty.
    void mark(int64_t step, std::string_view text) {
        const std::string first = mark_of(step);
        set_note(step, StepNote::suspect, first.empty() ? text : first);  // an older generation is refused here
    }
    std::string mark_of(int64_t step) { return note(step, StepNote::suspect); }
    void unmark(int64_t step) { set_note(step, StepNote::suspect, ""); }
    /// Keeps a committed step from being retired; a second pin replaces the first.
    void pin(int64_t step, std::string_view text) { set_note(step, StepNote::pinned, text.empty() ? "pinned" : text); }
    std::string pin_of(int64_t step) { return note(step, StepNote::pinned); }
    void unpin(int64_t step) { set_note(step, StepNote::pinned, ""); }

    /// Takes a generation of the job, durably and once: false when it, or a newer one, is taken. When it returns true
    /// nothing that acts for an older one can be committed any more. By default every claim is granted and forgotten
    /// (contract().fences is false).
    virtual bool claim(int64_t generation);
    /// The newest generation taken, 0 when none is.
    virtual int64_t generation();
    /// What this object puts, links, commits, marks and removes from now on is of this generation: once a newer one is
    /// taken each of them throws Fault::failed, naming both.
    virtual void act_for(int64_t generation);
    /// Bytes that can still be put here, as far as the system tells; -1 when the store cannot say. By default -1.
    virtual int64_t free_bytes();
    /// "runs/gpt/checkpoints", for messages.
    virtual std::string place() const = 0;
    /// Whether place() is a folder of this host's file system: commands check that it is there, and lock steps in it.
    virtual bool is_folder() const { return false; }
};

}  // namespace orrery
