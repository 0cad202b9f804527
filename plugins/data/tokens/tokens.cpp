// A file of token ids, u16 or u32, little-endian: headerless, llm.c's with its header, or one of Megatron's pairs.
#include "orrery/plugin.h"
#include "sequences.h"

static void add(orrery::Registry& registry) {
    registry.add_data("tokens", [](orrery::Config& options, const orrery::Origin& asked) {
        sequences::Spec spec = sequences::read_spec(options, asked, 0);
        spec.plain = false;
        spec.width = options.integer("token_bytes", 2);
        // The configuration's value is for files without a width of their own.
        spec.width_asked = options.find("token_bytes") != nullptr;
        spec.width_known = options.has("token_bytes");
        if (spec.width != 2 && spec.width != 4) {
            const std::string whose = options.find("token_bytes") ? options.path() + ": " : "data.";
            throw orrery::Error(options.where("token_bytes"),
                                whose + "token_bytes is " + std::to_string(spec.width) + ", expected 2 or 4");
        }
        return std::make_unique<sequences::Sequences>(std::move(spec));
    });
}

ORRERY_PLUGIN("data.tokens", "0.1", add);
