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

/// A script compiled as configured, before anything is varied.
struct FirstLook {
    Compiled compiled;
    std::map<std::string, std::string> options;  ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;        ///< set if the script gives them
};

/// Where a script's choices are judged: a cluster, or this machine with measured costs.
class Site {
public:
    virtual ~Site() = default;

    virtual int64_t most_ranks() const = 0;
    virtual int64_t usual_ranks() const = 0;
    /// The default for the largest tp that is searched.
    virtual int64_t usual_tp(int64_t ranks) const = 0;
    /// `ranks`: of each choice, whatever the script's mesh has. Throws Error as a prediction of the script does.
    virtual FirstLook first(const ScriptCommand& script, int64_t ranks) = 0;
    /// Fills in memory, rates, cost of idle ranks, and whether mappings vary, for `space.ranks`. Call after first().
    virtual void describe(SearchSpace& space) const = 0;
    /// Fills in everything but the choice; a choice that does not run has a reason.
    virtual Judged judge(const ScriptCommand& script, const std::string& mapping) const = 0;
    /// "16 nodes of 8 H100", for titles: "gpt on ...".
    virtual std::string name() const = 0;
    /// Properties of the site, a line each.
    virtual std::vector<std::string> facts() const = 0;
    /// Notes about the costs of the site, a line each; call after first().
    virtual std::vector<std::string> notes() const { return {}; }
};

/// The cluster of `command`, or this machine. Throws Error for an invalid file or flags.
std::unique_ptr<Site> site_of(const ScriptCommand& script, const PlanCommand& command);

}  // namespace orrery
