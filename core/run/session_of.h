#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "run/session.h"

namespace orrery {

/// What the sessions of one rank have in common.
struct SessionParts {
    const Settings& settings;  ///< but for its mesh
    Config& config;
    const Registry& registry;
    const Recipe& recipe;
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< by axis, proved
    int64_t evaluated_samples = 0;                                    ///< see evaluation_calls; 0: none
};

/// A session of a recipe on a mesh, one at a time: records, compiles and proves the programs for it, and joins the
/// job's other ranks. Nothing of a session before it is needed but what a store holds, which may be of another mesh.
/// Throws Error as compile_training and Session do. Collective.
std::unique_ptr<Session> session_of(const SessionParts& parts, const Job& job, const Mesh& mesh);

/// What `device` counts and proves for a rank of these settings; it may be nullptr: scratch is not counted.
CompileOptions compile_options(const Settings& settings, const Job& job, Device* device, const Network& contracts,
                               const std::map<std::string, std::vector<ChunkTable>>& collectives);

}  // namespace orrery
