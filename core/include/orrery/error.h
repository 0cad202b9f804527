#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

#include "orrery/api.h"

namespace orrery {

/// Where a thing was asked for: a line of a script or of a config, and on whose behalf ("tensor", "data", "").
struct Origin {
    std::string who;
    std::string file;
    int line = 0;
    int column = 0;

    /// "tensor, mlp.lua:9", "laptop.toml:4:13", or "" when nothing is known.
    ORRERY_API std::string text() const;
    bool operator==(const Origin&) const = default;
};

/// Whose fault it is; decides the exit code.
enum class Fault {
    usage,    ///< the user's script, config, data or command: exit 2, nothing was written
    failed,   ///< the work itself failed (disk full, kernel error): exit 1
    peer,     ///< another rank died, hangs or disagrees: exit 1
    requeue,  ///< stopped on request after a checkpoint: exit 75
};

/// The only exception besides std::bad_alloc that leaves a plugin or a core module.
/// The text says where, what was asked, what was found and what to do; lower case, no full stop.
class ORRERY_API Error : public std::runtime_error {
public:
    explicit Error(const std::string& text, Fault fault = Fault::usage);
    Error(const Origin& where, const std::string& text, Fault fault = Fault::usage);
    ~Error() override;

    Fault fault() const { return fault_; }

private:
    Fault fault_;
};

}  // namespace orrery
