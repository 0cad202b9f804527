// The device as a plugin, for whole jobs: [plugins] path names its folder, [run] device = "apart".
#include "orrery/plugin.h"
#include "apart/apart.h"

static void add(orrery::Registry& registry) {
    registry.add_device("apart", [](orrery::Config& config) { return orrery::apart::make_device(config); });
}

ORRERY_PLUGIN("device.apart", "0.1", add);
