#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace orrery {

/// Calls `work` with each number below `count` and passes its result to `done` as soon as it is available. If
/// `processes` is above 1 or `stop` is given, each call runs in a forked child, so that calls do not affect each other;
/// this process must then be single-threaded. If a call throws or its child is killed, ends all children and throws
/// Error with the number's `name`. Returns early if `stop`, which is called several times a second, returns true: ends
/// all children.
void in_processes(int64_t count, int64_t processes, const std::function<std::string(int64_t)>& work,
                  const std::function<void(int64_t, std::string)>& done,
                  const std::function<std::string(int64_t)>& name, const std::function<bool()>& stop = {});

}  // namespace orrery
