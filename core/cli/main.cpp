#include "cli/command_line.h"

int main(int argc, char** argv) { return orrery::command_line(argc, argv); }
