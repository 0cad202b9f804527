#pragma once
#include <cstdint>
#include <string>

#include "folder.h"

namespace posix_store {

// Folders of steps that are being removed, "step-00000300.removed" or, where that one cannot be erased yet,
// "step-00000300.removed-1": no steps any more, whatever is in them. One that cannot be renamed keeps its name, and its
// manifest is called manifest.json.removed.

/// The step of such a name, -1 when it is anything else.
int64_t removed_of(const std::string& name);

/// Whether a folder that keeps its name is being removed.
bool removed_in_place(const Folder& root, const std::string& name);

/// A name of the step's under which nothing lies: the first one, when what lay there could be erased. What is not ours
/// stays, and is passed over.
std::string removed_name(const Folder& root, int64_t step);

/// Why a folder is not deleted, "" when it may be: it carries the marker and holds no folder, or it is empty, or what a
/// removal has left of one.
std::string kept_for(const Folder& folder, const std::string& name);

/// Deletes such a folder, the marker last, and after it what the manifest of a folder that keeps its name is called.
/// Throws where it is kept, or a file appears meanwhile.
void erase(const Folder& root, const std::string& name);

/// The same for what is no step any more: when it cannot go now it costs space, and clean tries it again.
void drop(const Folder& root, const std::string& name);

/// Drops what an earlier process left behind: steps before this one that it did not finish to write or remove, but not
/// those of a generation that is newer; and the files of a trial of links that was cut off.
void clean(const Folder& root, int64_t before, int64_t generation);

/// Bytes that come back when what unfinished saves and removals have left goes, as the next saves see to. What a
/// committed step has by a link is not counted.
int64_t leftover_bytes(const std::string& place);

}  // namespace posix_store
