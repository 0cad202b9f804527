#pragma once
#include <map>
#include <string>

#include "orrery/mesh.h"

namespace orrery::test {

/// CompileOptions::transports where one carries all axes, so that they may share messages.
inline std::map<std::string, std::string> one_transport(const Mesh& mesh, const std::string& name = "threads") {
    std::map<std::string, std::string> transports;
    for (const Axis& axis : mesh.axes())
        if (!axis.sequential && axis.size > 1) transports[axis.name] = name;
    return transports;
}

}  // namespace orrery::test
