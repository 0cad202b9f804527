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

/// A script as it is configured, before anything varies.
struct FirstLook {
    Compiled compiled;
    std::map<std::string, std::string> options;  ///< of [script] that the script declares, with what they are here
    std::optional<GivenKey> microbatches;        ///< where the script gives them
};

/// Where a script's choices are judged: a cluster that is not here, or this machine by measured costs.
class Site {
public:
    virtual ~Site() = default;

    virtual int64_t most_ranks() const = 0;
    virtual int64_t usual_ranks() const = 0;
    /// The largest tp that is looked at, where nobody says.
    virtual int64_t usual_tp(int64_t ranks) const = 0;
    /// `ranks`: of each choice, however many the script's mesh has. Throws Error as a forecast of the script does.
    virtual FirstLook first(const ScriptCommand& script, int64_t ranks) = 0;
    /// Behind `first`, for `space.ranks`: memory, rates, what idle ranks cost, whether mappings vary.
    virtual void describe(SearchSpace& space) const = 0;
    /// All but the choice; what does not run has its reason.
    virtual Judged judge(const ScriptCommand& script, const std::string& mapping) const = 0;
    /// "16 nodes of 8 H100", as a title goes on: "gpt on ...".
    virtual std::string name() const = 0;
    /// What it is, a line each.
    virtual std::vector<std::string> facts() const = 0;
    /// What is to be said of them behind `first`, a line each.
    virtual std::vector<std::string> notes() const { return {}; }
};

/// The cluster of `command`, or without one this machine. Throws Error for a file or flags that are wrong.
std::unique_ptr<Site> site_of(const ScriptCommand& script, const PlanCommand& command);

}  // namespace orrery
