#pragma once
#include <string>
#include <string_view>

#include "folder.h"

namespace posix_store {

// Files of a step's folder beside its objects. A folder without the marker is not ours.
inline const std::string marker = ".orrery-checkpoint", manifest_name = "manifest.json";
inline const std::string mark_name = "suspect.txt", pin_name = "pinned.txt";
// What the manifest is called in a folder that cannot be renamed, and is being removed, or was set aside: then with a
// number.
inline const std::string removed_manifest = manifest_name + ".removed", aside_manifest = manifest_name + ".aside-";

bool is_key(std::string_view key);

/// Why a folder is not deleted, "" when it may be: it has the marker, and nothing in it is a folder.
std::string not_ours(const Folder& folder);

/// Why a folder is no committed step, "" when it is one.
std::string manifest_problem(const Folder& folder);

/// "was set aside: 854425 bytes", with what was done to it; "" when nothing has that name. Of files right in it.
std::string leftover(const Folder& root, const std::string& name, const std::string& how);

/// What is wrong with what stands in a step's place, "" when nothing is.
std::string stray(const Folder& root, const std::string& name);

}  // namespace posix_store
