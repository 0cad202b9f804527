#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// A file or folder among the checkpoints that the store did not write, or that was changed afterwards.
struct Stray {
    int64_t step = -1;  ///< training step in the name of the file or folder; -1: none
    std::string what;   ///< what was found: "step-00000300 has no manifest.json"
};

/// Notes of one line that a committed checkpoint can have.
enum class StepNote : uint8_t {
    suspect,  ///< why no run resumes from the checkpoint
    pinned,   ///< why the checkpoint is never deleted automatically
};

/// Guarantees in which stores differ. Besides, every store guarantees that objects and steps appear whole or not at all
/// and are never replaced. The conformance suite tests all of these.
struct StoreContract {
    enum class Survives : uint8_t { nothing, process, power_cut };
    enum class Shared : uint8_t { process, host, hosts };
    Survives survives = Survives::nothing;  ///< what a checkpoint survives once commit() has returned
    Shared shared = Shared::process;        ///< which processes see the same checkpoints
    bool links = false;                     ///< true: link() shares the stored bytes; false: it copies them
    bool fences = false;                    ///< true: after claim(), stores of older generations cannot commit

    std::string text() const;  ///< "survives a power cut, shared by hosts, links, fences"
};

/// Stores the checkpoints of one run: named byte objects, grouped by training step. A store knows nothing about
/// tensors; core does sharding, formats and resharding for every store. Readers never see uncommitted steps.
/// All calls block. Only one thread may call at a time. Failures throw Fault::failed and name the path or key, the byte
/// counts and the system's reason.
class ORRERY_API CheckpointStore {
public:
    virtual ~CheckpointStore();
    /// Guarantees of this store; by default only those of every store.
    virtual StoreContract contract() const;
    /// Writes one object of an uncommitted step. Throws if the step already has an object of that key.
    virtual void put(int64_t step, std::string_view key, std::span<const std::byte> bytes) = 0;
    /// Writes one object with the concatenated `parts` as contents. The default first joins the parts in memory, which
    /// takes as much memory again; a store that can append should override it.
    virtual void put_parts(int64_t step, std::string_view key, std::span<const std::span<const std::byte>> parts);
    /// Adds object `key` to the uncommitted step `step`, with the bytes of object `from_key` of the committed step
    /// `from`, which may be deleted later. Throws if object `key` exists. The default copies the bytes through memory.
    virtual void link(int64_t step, std::string_view key, int64_t from, std::string_view from_key);
    /// Blocks until all that this process wrote for the step is durable, as contract().survives promises.
    virtual void flush(int64_t step) = 0;
    /// Makes the step visible atomically. One rank calls it, after flush() returned on all. Throws if the step exists.
    virtual void commit(int64_t step, std::string_view manifest) = 0;
    /// Deletes the objects of an uncommitted step.
    virtual void discard(int64_t step) = 0;

    /// Committed steps, newest first.
    virtual std::vector<int64_t> steps() = 0;
    virtual std::string manifest(int64_t step) = 0;
    /// Bytes of an object of a committed step; -1 if there is no such object.
    virtual int64_t size(int64_t step, std::string_view key) = 0;
    /// Reads exactly bytes.size() bytes of an object, from byte `offset` on.
    virtual void get(int64_t step, std::string_view key, int64_t offset, std::span<std::byte> bytes) = 0;
    virtual void remove(int64_t step) = 0;
    /// Deletes what interrupted removals have left, or only counts it (`only_look`). Returns the number of removals. No
    /// other process may remove steps meanwhile. By default there is nothing to delete.
    virtual int64_t finish_removals(bool only_look);

    /// Lists files and folders with the name of a step that are not a committed step, and committed steps changed from
    /// outside. They are never removed. The default lists none, for stores that only Orrery can write.
    virtual std::vector<Stray> strays();
    /// Frees the name of a step: renames the file or folder of that name, committed or not, so that it is no longer a
    /// step. Returns the new name; "" if the name was free.
    virtual std::string set_aside(int64_t step) = 0;
    /// Returns a note of a committed step; "" if it has none. Removing the step or setting it aside deletes the note.
    virtual std::string note(int64_t step, StepNote which) = 0;
    /// Replaces a note of a committed step, atomically and durably; "" deletes it. The step itself does not change. A
    /// store that acts for a superseded generation throws, even when the text would not change.
    virtual void set_note(int64_t step, StepNote which, std::string_view text) = 0;

    /// Marks a committed step as suspect, for the reason `text` (not empty). An earlier mark of the step remains.
    void mark(int64_t step, std::string_view text) {
        const std::string first = mark_of(step);
        set_note(step, StepNote::suspect, first.empty() ? text : first);
    }
    std::string mark_of(int64_t step) { return note(step, StepNote::suspect); }
    void unmark(int64_t step) { set_note(step, StepNote::suspect, ""); }
    /// Protects a committed step from automatic deletion; `text` is the reason. Replaces an earlier pin of the step.
    void pin(int64_t step, std::string_view text) { set_note(step, StepNote::pinned, text.empty() ? "pinned" : text); }
    std::string pin_of(int64_t step) { return note(step, StepNote::pinned); }
    void unpin(int64_t step) { set_note(step, StepNote::pinned, ""); }

    /// Claims a generation (number of a start) of the job, durably. Returns false if this or a newer one is claimed
    /// already. After true, stores that act for an older generation cannot commit. The default returns true and records
    /// nothing (contract().fences is false).
    virtual bool claim(int64_t generation);
    /// The newest claimed generation of the job; 0: none.
    virtual int64_t generation();
    /// Makes this object write on behalf of a generation. Once a newer one is claimed, every call that changes the
    /// store throws Fault::failed, naming both generations.
    virtual void act_for(int64_t generation);
    /// Bytes of free storage; -1 if the store cannot tell, which is the default.
    virtual int64_t free_bytes();
    /// Where the checkpoints are, for messages: "runs/gpt/checkpoints".
    virtual std::string place() const = 0;
    /// Whether place() is a folder of this host's file system. Commands then check that it exists and lock steps in it.
    virtual bool is_folder() const { return false; }
};

}  // namespace orrery
