#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "folder.h"

namespace posix_store {

// A step's folder is step-00000300. Where what has that name can neither be removed nor renamed, the step is saved as
// step-00000300.2, and so on: of these the last one that has a manifest is the step.

struct Place {
    int64_t step = -1;  ///< -1: the name is not that of a step's folder
    int number = 1;
};
Place place_of(const std::string& name);
std::string place_name(int64_t step, int number);

/// By step, the numbers of the places at which anything stands, ascending, with gaps where one went. From a listing of
/// the root.
std::map<int64_t, std::vector<int>> places_in(const std::vector<std::string>& names);
std::vector<int> places_of(const Folder& root, int64_t step);

/// A committed step's folder; not open, with the number 0, when there is none.
struct Committed {
    int number = 0;
    Folder folder = {};
};
Committed find_committed(const Folder& root, int64_t step, const std::vector<int>& places);
Committed find_committed(const Folder& root, int64_t step);

/// Where a step is saved for which no way was made: after copies that were removed or set aside where they are, else in
/// the first place, whatever stands there.
int free_place(const Folder& root, int64_t step);

/// Whether a folder was set aside where it is: its manifest has another name.
bool was_set_aside(const Folder& folder);

/// Gives the manifest another name, so that the folder is not a step any more. Returns that name, "" where it cannot.
std::string rename_manifest(const Folder& folder);

/// For a folder whose rename fails with `code`: gives its manifest another name, so that it is not a step any more.
/// Where that fails too the manifest stays, and a later place has precedence. Returns what to say of it.
std::string set_aside_in_place(const Folder& root, const std::string& name, int code);

}  // namespace posix_store
