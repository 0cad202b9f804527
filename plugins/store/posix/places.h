#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "folder.h"

namespace posix_store {

// A step's folder is step-00000300. If something of that name can be neither removed nor renamed, the step is saved as
// step-00000300.2, and so on. The folder with the highest number that has a manifest is the step.

struct Place {
    int64_t step = -1;  ///< -1: not the name of a step's folder
    int number = 1;     ///< 1: step-00000300; 2: step-00000300.2
};
Place place_of(const std::string& name);
std::string place_name(int64_t step, int number);

/// The numbers of the existing places of each step, ascending, possibly with gaps. `names`: the entries of the root.
std::map<int64_t, std::vector<int>> places_in(const std::vector<std::string>& names);
std::vector<int> places_of(const Folder& root, int64_t step);

/// The folder of a committed step; number 0 and not open if there is none.
struct Committed {
    int number = 0;
    Folder folder = {};
};
Committed find_committed(const Folder& root, int64_t step, const std::vector<int>& places);
Committed find_committed(const Folder& root, int64_t step);

/// The place for a step that is committed without set_aside: after copies that were removed or set aside in place, else
/// the first place, even if it is occupied.
int free_place(const Folder& root, int64_t step);

/// Whether a folder was set aside in place: its manifest was renamed.
bool was_set_aside(const Folder& folder);

/// Renames a folder's manifest, so that the folder is not a step any more. Returns the new name; "": it failed.
std::string rename_manifest(const Folder& folder);

/// Sets a folder aside in place, after its rename failed with `code`, by renaming its manifest. If that fails too the
/// manifest stays, and a place of a higher number will hide it. Returns a message.
std::string set_aside_in_place(const Folder& root, const std::string& name, int code);

}  // namespace posix_store
