#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "compile/compile.h"
#include "run/script_interface.h"
#include "sim/search/search.h"

namespace orrery {

/// A script compiled as configured, before mesh and options are varied.
struct FirstLook {
    Compiled compiled;
    std::map<std::string, std::string> options;  ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;        ///< set if the script sets train.microbatches itself
};

/// Where choices of mesh and options are simulated: a cluster, or this machine with measured costs.
class Site {
public:
    virtual ~Site() = default;

    virtual int64_t most_ranks() const = 0;
    virtual int64_t usual_ranks() const = 0;
    /// The largest tp that is searched by default.
    virtual int64_t usual_tp(int64_t ranks) const = 0;
    /// Compiles the script. `ranks`: number of ranks of each choice. Throws Error as a prediction does.
    virtual FirstLook first(const ScriptCommand& script, int64_t ranks) = 0;
    /// Sets memory, rates, cost of idle ranks, and whether mappings vary, for `space.ranks`. Call it after first().
    virtual void describe(SearchSpace& space) const = 0;
    /// Simulates a choice, which is in the settings of `script`. If it does not run, `why_not` has the reason.
    virtual Judged judge(const ScriptCommand& script, const std::string& mapping) const = 0;
    /// Name of the cluster or machine, for titles: "gpt on ...".
    virtual std::string name() const = 0;
    /// Properties of the cluster or machine, a line each.
    virtual std::vector<std::string> facts() const = 0;
    /// Notes about the costs of this machine, a line each; call after first().
    virtual std::vector<std::string> notes() const { return {}; }
};

/// The cluster of `command`, or this machine. Throws Error for an invalid file or flags.
std::unique_ptr<Site> site_of(const ScriptCommand& script, const PlanCommand& command);

}  // namespace orrery
