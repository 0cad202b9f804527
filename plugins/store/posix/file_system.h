#pragma once
#include <string>
#include <string_view>

#include "orrery/checkpoint.h"

namespace posix_store {

/// Prefix of the empty files with which hard links are tried.
constexpr std::string_view link_trial = ".orrery-link-";

/// The guarantees of a store in this folder, from the kind of file system and a trial of a hard link. If the folder
/// does not exist the nearest existing parent is used. Deletes its files; if the process is killed meanwhile the next
/// commit does (`clean`). Without permission to write there, `links` is false.
orrery::StoreContract contract_at(const std::string& place);

}  // namespace posix_store
