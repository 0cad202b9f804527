#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "folder.h"

namespace posix_store {

/// The number in "step-00000300" + suffix; -1 for any other name.
int64_t step_of(const std::string& name, std::string_view suffix);
std::string step_name(int64_t step);

/// The folder of a step that is being written: "step-00000300.g3.partial" by generation 3, "step-00000300.partial" by a
/// store that acts for no generation (0).
std::string partial_name(int64_t step, int64_t generation);

struct Partial {
    int64_t step = -1;  ///< -1: not the name of a partial step
    int64_t generation = 0;
};
Partial partial_of(const std::string& name);

/// The newest generation claimed in this folder, from file names like generation-00000003; 0: none.
int64_t newest_generation(const Folder& root);

/// Claims a generation durably and deletes the files of older ones. Returns false if it or a newer one is claimed.
bool take_generation(const Folder& root, int64_t generation);

/// Whether a rename of `name` that failed with `code` fails for every user, so that an older generation cannot commit
/// that folder either. `generation`: the one claimed just now.
bool refused_to_all(const Folder& root, const std::string& name, int64_t generation, int code);

/// Throws that the folder in which this generation was claimed was removed or replaced.
[[noreturn]] void throw_gone(const std::string& place, int64_t generation);

/// Throws unless `generation` is the newest claimed one. Does nothing for 0, no generation.
void need_newest(const Folder& root, int64_t generation);

}  // namespace posix_store
