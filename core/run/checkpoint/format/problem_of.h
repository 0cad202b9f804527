#pragma once
#include <exception>
#include <new>
#include <string>

namespace orrery {

/// Runs `work`. Returns the message of the exception that it throws; "" if it throws none.
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

/// Prefixes a message with "step N: ". Leaves it alone if it is empty or starts with "step N" already.
std::string of_step(int64_t step, const std::string& problem);

}  // namespace orrery
