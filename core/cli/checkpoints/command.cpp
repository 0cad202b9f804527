#include <cstdio>

#include "base/json.h"
#include "cli/checkpoints/subcommands.h"

namespace orrery {

Json about(StorePlace& place) { return {{"place", place.store().place()}, {"store", place.kind()}}; }

void print_json(const Json& json) {
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

int checkpoints_command(const CheckpointsCommand& command) {
    StorePlace place(command.place, command.store, command.sets, true);
    constexpr std::pair<const char*, int (*)(StorePlace&, const CheckpointsCommand&)> all[] = {
        {"list", list_checkpoints}, {"show", show_checkpoint},     {"verify", verify_checkpoints},
        {"pin", pin_checkpoint},    {"unpin", unpin_checkpoint},   {"prune", prune_checkpoints},
        {"copy", copy_checkpoint},  {"unmark", unmark_checkpoint},
    };
    for (const auto& [name, run] : all)
        if (command.what == name) return run(place, command);
    throw Error("checkpoints: no command " + command.what);
}

}  // namespace orrery
