#include "runner.h"

int main(int argc, char** argv) { return orrery::run_tests(argc, argv); }
