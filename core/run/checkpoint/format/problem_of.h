#pragma once
#include <exception>
#include <new>
#include <string>

namespace orrery {

/// Runs `work`; the text of what it throws, "" when it ends well.
template <class Work>
std::string problem_of(Work&& work) {
    try {
        work();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    } catch (const std::exception& problem) {
        return problem.what();
    }
    return "";
}

/// A store's own words name a path or a key; which step it is of is said in any case.
std::string of_step(int64_t step, const std::string& problem);

}  // namespace orrery
