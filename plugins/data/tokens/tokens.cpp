// A file of token ids, u16 or u32, little-endian: headerless, llm.c's with its header, or one of Megatron's pairs.
#include "orrery/plugin.h"
#include "sequences.h"

static void add(orrery::Registry& registry) {
    registry.add_data("tokens", [](orrery::Config& options, const orrery::Origin& asked) {
        return std::make_unique<sequences::Sequences>(sequences::read_token_spec(options, asked));
    });
}

ORRERY_PLUGIN("data.tokens", "0.1", add);
