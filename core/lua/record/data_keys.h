// Records which configuration keys the calls of o.data set, and which keys they read.
#pragma once
#include <functional>

#include "lua/record/data.h"

namespace orrery::lua {

/// Runs `part` and returns the keys that it has read from the table.
std::set<std::string> keys_read(Config& table, const std::function<void()>& part);
/// Records the configuration keys that the options of a call of o.data set. `data.spec` must have its source already.
void give_options(Data& data, const Config& options);
/// Records keys for a source that is not a mixture: data.mix is set to none, and data.path if the source reads no file.
void give_alone(Data& data);
/// Records keys for a mixture of data sources: merges the sources' keys. Unless they are the sources of data.mix
/// (`configured`), also sets data.mix.
void give_mixture(Data& data, const std::vector<DataPart>& parts, const std::vector<const Data*>& sources,
                  bool configured);
/// Records the keys for evaluation: `share` is the held-out share of the samples; if 0, `path` is the file ("": none).
void give_held_out(Data& data, double share, const std::string& path);

}  // namespace orrery::lua
