// Text, one token a byte.
#include "orrery/plugin.h"
#include "sequences.h"

static void add(orrery::Registry& registry) {
    registry.add_data("text", [](orrery::Config& options, const orrery::Origin& asked) {
        sequences::Spec spec = sequences::read_spec(options, asked, 256);
        spec.bytes = true;
        return std::make_unique<sequences::Sequences>(std::move(spec));
    });
}

ORRERY_PLUGIN("data.text", "0.1", add);
