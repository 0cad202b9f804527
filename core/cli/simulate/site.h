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
#include "sim/training_cost.h"

namespace orrery {

/// A script compiled as configured, before the search varies mesh and options.
struct FirstLook {
    Compiled compiled;
    Host::Options options;                 ///< [script] options that the script declares, with their values
    std::optional<GivenKey> microbatches;  ///< the script's value of train.microbatches, if it sets the key itself
    Program recorded;                      ///< the train step before it is distributed
};

/// Where choices of mesh and options are simulated: on a cluster, or on this machine with measured costs.
class Site {
public:
    virtual ~Site() = default;

    virtual int64_t most_ranks() const = 0;
    virtual int64_t usual_ranks() const = 0;
    /// Max size of tp that is searched unless the user gives one.
    virtual int64_t usual_tp(int64_t ranks) const = 0;
    /// Max size of cp that is searched unless the user gives one. `tokens`: of a row.
    virtual int64_t usual_cp(int64_t ranks, int64_t tokens) const = 0;
    /// Compiles the script as configured. `ranks`: number of ranks of each choice. Throws Error as a prediction does.
    virtual FirstLook first(const ScriptCommand& script, int64_t ranks) = 0;
    /// Sets memory, rates, cost of idle ranks, and whether mappings vary, for `space.ranks`. Call first() before it.
    virtual void describe(SearchSpace& space) const = 0;
    /// Simulates the choice in the settings of `script`. If it cannot run, the result's `why_not` says why.
    virtual Judged judge(const ScriptCommand& script, const std::string& mapping) const = 0;
    virtual std::string name() const = 0;
    virtual std::vector<std::string> facts() const = 0;
    /// Goodput and price of `ranks` ranks; `tokens_per_step` is not set. Call it after first().
    virtual TrainingTerms terms(int64_t) const { return {}; }
    /// Notes about costs of other machines or other software, a line each. Call it after first().
    virtual std::vector<std::string> notes() const { return {}; }
};

/// Returns the cluster of `command`, or this machine. Throws Error for an invalid file or flags.
std::unique_ptr<Site> site_of(const ScriptCommand& script, const PlanCommand& command);

}  // namespace orrery
