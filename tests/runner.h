// What a test program's main calls.
#pragma once

namespace orrery {

/// Runs the tests that the arguments choose, by default all. Returns the exit code.
int run_tests(int argc, char** argv);

}  // namespace orrery
