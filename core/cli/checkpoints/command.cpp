#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
#include "cli/flags.h"
#include "run/checkpoint/retain/retention.h"

namespace orrery {
namespace {

using Act = int (*)(StorePlace&, const CheckpointsCommand&);

/// Makes a subcommand that opens the checkpoints in `place` and calls `act`. `store`: flag for the kind of store.
Command subcommand(CheckpointsCommand& command, const char* name, const char* help, Act act,
                   const std::vector<Flag>& flags, const char* store = "--store", const std::string& footer = "") {
    const std::vector<Flag> place = {
        Flag("place", &command.place, "a run's folder, as runs/gpt, or a place of a store", file_name(),
             {.type = "RUN-or-PLACE", .required = true}),
        Flag(store, &command.store, "kind of store of a PLACE; a run's is in its config.toml, else posix"),
        Flag("-s,--set", &command.sets, "store.NAME.key=value or plugins.path=[...]; may repeat", {.one_each = true}),
    };
    const auto run = [&command, act] {
        StorePlace opened(command.place, command.store, command.sets, true);
        return act(opened, command);
    };
    return {name, help, place + flags, footer, run};
}

Flag json_flag(CheckpointsCommand& command) {
    return Flag("--json", &command.json, "one JSON object instead of lines");
}

Flag step_flag(CheckpointsCommand& command) {
    return Flag("step", &command.step, "the checkpoint's step", whole_number(0, Manifest::last_step),
                {.type = "N", .required = true});
}

Flag step_or_all(CheckpointsCommand& command) {
    const auto problem_of = [](const std::string& text) {
        return text == "all" ? "" : whole_number(0, Manifest::last_step).problem_of(text);
    };
    const auto set = [&command](const std::string& text) { command.step = text == "all" ? -1 : std::stoll(text); };
    return Flag("step", set, "the checkpoint's step; without it, or with `all`, every one", {"", problem_of},
                {.type = "N|all"});
}

Command prune(CheckpointsCommand& command) {
    constexpr int64_t most = 1'000'000'000;
    const FlagCheck any = whole_number(0, most);
    const std::vector<Flag> flags = {
        Flag("--keep", &command.keep, "the newest so many; without it checkpoint.keep of the run",
             whole_number(RetentionPolicy::least, most)),
        Flag("--keep-every-steps", &command.every_steps, "and those of steps that this divides", any),
        Flag("--keep-hourly", &command.hourly, "and the newest of each of the last so many hours that have one", any),
        Flag("--keep-daily", &command.daily, "and the newest of each of the last so many days", any),
        Flag("--keep-best", &command.best, "and the so many of the lowest loss on held-out data", any),
        Flag("--dry-run", &command.dry_run, "say what would go, and why the rest stays; remove nothing"),
        json_flag(command),
    };
    return subcommand(
        command, "prune", "remove what the run's policy does not keep", prune_checkpoints, flags, "--store",
        examples({"checkpoints prune runs/gpt --dry-run", "checkpoints prune runs/gpt --keep 2 --keep-best 3"}));
}

Command copy(CheckpointsCommand& command) {
    const std::vector<Flag> flags = {
        step_flag(command),
        Flag("--to", &command.to, "a run's folder, or a place of a store", file_name(),
             {.type = "RUN-or-PLACE", .required = true}),
        Flag("--store", &command.to_store, "kind of store of that place; a run's is in its config.toml"),
        Flag("--mesh", &command.mesh, "lay it out for this mesh, as dp=2,tp=2; without it as it is"),
        Flag("--dry-run", &command.dry_run, "say what would be written; write nothing"),
        json_flag(command),
    };
    return subcommand(command, "copy", "copy a checkpoint to another store, for the same mesh or another",
                      copy_checkpoint, flags, "--from-store",
                      examples({"checkpoints copy runs/gpt 300 --to archive/gpt",
                                "checkpoints copy runs/gpt 300 --to runs/wide --mesh dp=2,tp=2 --dry-run"}));
}

}  // namespace

Json about(StorePlace& place) { return {{"place", place.store().place()}, {"store", place.kind()}}; }

void print_json(const Json& json) {
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

Command checkpoints_command(CheckpointsCommand& asked) {
    const Flag json = json_flag(asked), step = step_flag(asked), step_or_none = step_or_all(asked);
    const Flag why("text", &asked.text, "why, in a line", {.type = "TEXT", .required = true});
    return {
        .name = "checkpoints",
        .help = "list, show, verify, pin, prune and copy a run's checkpoints",
        .footer = examples({"checkpoints list runs/gpt", "checkpoints verify runs/gpt",
                            "checkpoints pin runs/gpt 300 \"for the paper\"", "checkpoints prune runs/gpt --dry-run",
                            "checkpoints copy runs/gpt 300 --to archive/gpt"}),
        .commands = {
            subcommand(asked, "list", "every checkpoint: step, time, bytes, losses, mesh, marks and pins",
                       list_checkpoints, {json}),
            subcommand(asked, "show", "what one is made of: objects with digests, tensors with their shards",
                       show_checkpoint, {step, json}),
            subcommand(asked, "verify", "read one, or all, whole; exit code 1 and what is damaged", verify_checkpoints,
                       {step_or_none, json}),
            subcommand(asked, "pin", "keep one, whatever the policy says", pin_checkpoint, {step, why}),
            subcommand(asked, "unpin", "leave one to the policy again", unpin_checkpoint, {step}),
            subcommand(asked, "unmark", "remove the mark of a suspect one: runs may resume from it again",
                       unmark_checkpoint, {step}),
            prune(asked),
            copy(asked),
        }};
}

}  // namespace orrery
