// Which keys of the configuration the calls of o.data give, and which they leave to it.
#pragma once
#include <functional>

#include "lua/record/data.h"

namespace orrery::lua {

/// Runs `part` and returns which keys of the table it has read.
std::set<std::string> keys_read(Config& table, const std::function<void()>& part);
/// What the options of a call give, of a source that is made.
void give_options(Data& data, const Config& options);
/// A source that is no mixture has nothing of data.mix, and it may read no file.
void give_alone(Data& data);
/// What a mixture's sources give. `configured`: they are those of data.mix, else what data.mix would be is given, too.
void give_mixture(Data& data, const std::vector<DataPart>& parts, const std::vector<const Data*>& sources,
                  bool configured);
/// The call evaluates a share of the samples, or with a share of 0 the file `path`, "" where there is none.
void give_held_out(Data& data, double share, const std::string& path);

}  // namespace orrery::lua
