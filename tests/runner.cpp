#define CATCH_CONFIG_RUNNER
#include "runner.h"

#include <catch2/catch.hpp>

int orrery::run_tests(int argc, char** argv) { return Catch::Session().run(argc, argv); }
