#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "orrery/codec.h"
#include "orrery/program.h"

namespace orrery {

/// An option of an axis that names a codec, and what is encoded.
struct CodecOption {
    std::string_view option;
    std::string_view what;
};
inline constexpr CodecOption codec_options[] = {
    {"codec", "gradients"}, {"param_codec", "params"}, {"activation_codec", "activations"}};

/// The codecs of the library, in the order of the table in core/compile/passes/README.md.
const std::vector<Codec>& codecs();
/// The codec of a name: one of the program's own, loaded if it is a plugin's, or of the library, as "int8", "top_k/100"
/// for one of 100 elements, "top_k/64+int2", which sends values as int2, or "powersgd/4" for factors of rank 4. Throws
/// Error at `asked` with the known names.
const Codec& codec_named(const Program& program, std::string_view name, const Origin& asked);
/// Throws Error at `asked` for a codec that leaves out too much of `what`, as "params", which no later message makes up
/// for. `remedy`: what else to do.
void require_near(const Program& program, const Codec& codec, std::string_view what, std::string_view remedy,
                  const Origin& asked);
/// What is wrong with the members of a plugin's codec; "" when nothing is.
std::string problem_of(const Codec& codec);

}  // namespace orrery
