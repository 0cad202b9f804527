#pragma once
#include <cstdint>
#include <string>

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

/// A committed step's folder; not open, with the number 0, when there is none.
struct Committed {
    int number = 0;
    Folder folder = {};
};
Committed find_committed(const Folder& root, int64_t step);

/// The number of the last place at which anything stands, 0: nothing does.
int last_place(const Folder& root, int64_t step);

/// Whether a folder was set aside where it is: its manifest has another name.
bool was_set_aside(const Folder& folder);

/// For a folder whose rename fails with `code`: gives its manifest another name, so that it is not a step any more.
/// Where that fails too the manifest stays, and a later place has precedence. Returns what to say of it.
std::string set_aside_in_place(const Folder& root, const std::string& name, int code);

}  // namespace posix_store
