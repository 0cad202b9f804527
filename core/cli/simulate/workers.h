#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace orrery {

/// Calls `work` for each number below `count` and hands what it returns to `done`, as soon as it is there; on several
/// `processes` each call in a child of its own that begins as a copy of this one, so that nothing that it leaves
/// behind changes another. This process must have no other thread. Throws Error naming the number by `name` where a
/// child was killed, or what it threw; no child is left.
void in_processes(int64_t count, int64_t processes, const std::function<std::string(int64_t)>& work,
                  const std::function<void(int64_t, std::string)>& done,
                  const std::function<std::string(int64_t)>& name);

}  // namespace orrery
