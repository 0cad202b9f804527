// Records which configuration keys the calls of o.data set, and which they read.
#pragma once
#include <functional>

#include "lua/record/data.h"

namespace orrery::lua {

/// Runs `part` and returns the keys of the table that it has read.
std::set<std::string> keys_read(Config& table, const std::function<void()>& part);
/// Records the keys that a call's options set. The call's source must exist.
void give_options(Data& data, const Config& options);
/// Records keys for a source that is not a mixture: data.mix is none, and data.path is none when it reads no file.
void give_alone(Data& data);
/// Records keys for a mixture: merges the keys of its sources. Unless the sources are those of data.mix (`configured`),
/// also sets data.mix.
void give_mixture(Data& data, const std::vector<DataPart>& parts, const std::vector<const Data*>& sources,
                  bool configured);
/// Records that the call evaluates a share of the samples, or with a share of 0 the file `path`; "": none.
void give_held_out(Data& data, double share, const std::string& path);

}  // namespace orrery::lua
