// Ends the process that opens it: its facts are read without.
#include <cstdlib>

#include "orrery/plugin.h"

namespace {

struct Aborts {
    Aborts() { std::abort(); }
} aborts;

void add(orrery::Registry&) {}

}  // namespace

ORRERY_FACTS("host_memory leaves_nothing");
ORRERY_PLUGIN("device.aborts", "0.1", add);
