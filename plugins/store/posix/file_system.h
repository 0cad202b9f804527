#pragma once
#include <string>

#include "orrery/checkpoint.h"

namespace posix_store {

/// What a store in this folder can promise. Looks at the kind of file system, and tries a hard link where the folder
/// is, or is to be: in the nearest folder above it that is there. Leaves nothing behind. Where it may write nothing, no
/// links are promised.
orrery::StoreContract contract_at(const std::string& place);

}  // namespace posix_store
