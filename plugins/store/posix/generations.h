#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "folder.h"

namespace posix_store {

/// The number in "step-00000300" + suffix, -1 when the name is anything else.
int64_t step_of(const std::string& name, std::string_view suffix);
std::string step_name(int64_t step);

/// "step-00000300.g3.partial": a step that generation 3 writes; "step-00000300.partial": one that acts for none does.
std::string partial_name(int64_t step, int64_t generation);

struct Partial {
    int64_t step = -1;  ///< -1: the name is no partial step's
    int64_t generation = 0;
};
Partial partial_of(const std::string& name);

/// The newest generation that was taken in this folder, 0 when none was: by the names of its files,
/// generation-00000003.
int64_t newest_generation(const Folder& root);

/// Takes it, durably: false when it or a newer one is taken. Files of older ones go.
bool take_generation(const Folder& root, int64_t generation);

/// Whether a rename that failed so for the generation that was just taken fails for every user: then an older one
/// cannot commit that folder either.
bool refused_to_all(const Folder& root, const std::string& name, int64_t generation, int code);

/// Says that the folder of a generation that was taken is another one by now.
[[noreturn]] void throw_gone(const std::string& place, int64_t generation);

/// Throws unless `generation` is the newest; 0 acts for none, and may.
void need_newest(const Folder& root, int64_t generation);

}  // namespace posix_store
