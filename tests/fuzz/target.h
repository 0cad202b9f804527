#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery::fuzz {

/// What a stranger's bytes go into. `run` returns for each input, whatever it is: what the parser refuses with an Error
/// is as good as what it takes. Whatever else it throws is a finding, as is a crash, more than 256 MiB or more than 1
/// s.
struct Target {
    std::string name;
    void (*run)(std::string_view input);
    std::vector<std::string> (*seeds)();
    std::vector<std::string> (*words)() = [] { return std::vector<std::string>(); };  ///< that inputs are made of
};

/// A promise that did not hold for an input.
struct Finding : std::logic_error {
    using std::logic_error::logic_error;
};
inline void require(bool held, const char* promise) {
    if (!held) throw Finding(promise);
}

/// Runs what must not be refused: an Error of it is a finding.
template <class Part>
auto promised(const char* promise, Part part) {
    try {
        return part();
    } catch (const Error& problem) {
        throw Finding(std::string(promise) + ": " + problem.what());
    }
}

Target frames_target();
Target hello_target();
Target manifest_target();
Target index_target();
Target safetensors_target();
Target json_target();
Target toml_target();
Target hostfile_target();
Target node_list_target();

inline std::vector<Target> targets() {
    return {frames_target(), hello_target(), manifest_target(), index_target(),    safetensors_target(),
            json_target(),   toml_target(),  hostfile_target(), node_list_target()};
}

}  // namespace orrery::fuzz
