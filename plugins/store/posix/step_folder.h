#pragma once
#include <string>
#include <string_view>

#include "folder.h"

namespace posix_store {

// The files of a step's folder that are not objects. A folder without the marker is foreign: Orrery did not make it.
inline const std::string marker = ".orrery-checkpoint", manifest_name = "manifest.json";
inline const std::string mark_name = "suspect.txt", pin_name = "pinned.txt";
// Names of the manifest in a folder that cannot be renamed and is being removed, or was set aside (with a number).
inline const std::string removed_manifest = manifest_name + ".removed", aside_manifest = manifest_name + ".aside-";

bool is_key(std::string_view key);

/// Why a folder is foreign and must not be deleted; "": it has the marker and no folder in it.
std::string not_ours(const Folder& folder);

/// Why a folder is not a committed step; "": it is one.
std::string manifest_problem(const Folder& folder);

/// `how` with the bytes of the folder's files: "was set aside: 854425 bytes"; "" if nothing has that name.
std::string leftover(const Folder& root, const std::string& name, const std::string& how);

/// What is wrong with the entry in a step's place; "": nothing.
std::string stray(const Folder& root, const std::string& name);

}  // namespace posix_store
