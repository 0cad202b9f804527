#pragma once
#include "run/products/products.h"
#include "run/settings.h"

namespace orrery {

/// How a run's ranks measure the kinds of products of their device: each in a process of this program, with the threads
/// of a rank and the folders of plugins of its configuration; what is found is kept in the user's cache folder.
ProductSearch product_search(const Settings& settings, Config& config, const Job& job);

}  // namespace orrery
