#pragma once
#include <string>
#include <string_view>

#include "orrery/checkpoint.h"

namespace posix_store {

/// How the names of the empty files begin by which links are tried.
constexpr std::string_view link_trial = ".orrery-link-";

/// What a store in this folder can promise. Looks at the kind of file system, and tries a hard link where the folder
/// is, or is to be: in the nearest folder above it that is there. Leaves nothing behind; of
/// a process that was killed meanwhile the next commit in this folder removes what is left (`clean`). Where it may
/// write nothing, no links are promised.
orrery::StoreContract contract_at(const std::string& place);

}  // namespace posix_store
