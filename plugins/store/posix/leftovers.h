#pragma once
#include <cstdint>
#include <string>

#include "folder.h"

namespace posix_store {

// The folder of a step that is being removed is called step-00000300.removed, or step-00000300.removed-1 while the
// first name is taken. It is not a step any more. A folder that cannot be renamed keeps its name; its manifest is
// renamed to manifest.json.removed instead ("removed in place").

/// The step in a name like step-00000300.removed-1; -1 for any other name.
int64_t removed_of(const std::string& name);

/// Whether a folder is being removed in place.
bool removed_in_place(const Folder& root, const std::string& name);

/// A free name for the removal of a step. Erases what earlier removals left under such names; skips foreign entries.
std::string removed_name(const Folder& root, int64_t step);

/// Why a folder must not be deleted; "": it may, because it is empty, has the marker and no folder in it, or is the
/// rest of a removal.
std::string kept_for(const Folder& folder, const std::string& name);

/// Deletes a folder. The marker goes last, or, of a folder removed in place, manifest.json.removed. Throws if kept_for
/// has a reason, or a file appears meanwhile.
void erase(const Folder& root, const std::string& name);

/// Deletes a folder like erase, but ignores errors: the folder then costs space until `clean` deletes it.
void drop(const Folder& root, const std::string& name);

/// Deletes the rest of interrupted removals and link trials, and unfinished steps before step `before`, except those of
/// generations newer than `generation`.
void clean(const Folder& root, int64_t before, int64_t generation);

/// Number of folders that are the rest of interrupted removals and that `clean` may delete.
int64_t count_removed(const Folder& root);

/// Bytes that will be free once the next saves have deleted unfinished saves and removals. Files that a committed step
/// shares are not counted.
int64_t leftover_bytes(const std::string& place);

}  // namespace posix_store
