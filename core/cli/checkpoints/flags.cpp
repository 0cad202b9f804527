#include <fmt/format.h>

#include "cli/checkpoints/checkpoints.h"
#include "cli/flag_checks.h"
#include "run/checkpoint/manifest.h"
#include "run/retention/retention.h"

namespace orrery {
namespace {

CLI::App* add(CLI::App& app, CheckpointsCommand& command, const char* name, const char* help) {
    CLI::App* one = app.add_subcommand(name, help);
    one->callback([&command, name] { command.what = name; });
    one->add_option("place", command.place, "a run's folder, as runs/gpt, or a place of a store")
        ->required()
        ->check(file_name())
        ->type_name("RUN-or-PLACE");
    one->add_option(std::string(name) == "copy" ? "--from-store" : "--store", command.store,
                    "kind of store of a PLACE; a run's is in its config.toml, else posix");
    one->add_option("-s,--set", command.sets, "store.NAME.key=value or plugins.path=[...]; may repeat")
        ->allow_extra_args(false);
    return one;
}

CLI::Option* add_step(CLI::App& one, CheckpointsCommand& command, const char* help) {
    return one.add_option("step", command.step, help)->check(whole_number_from(0, Manifest::last_step))->type_name("N");
}

void add_json(CLI::App& one, CheckpointsCommand& command) {
    one.add_flag("--json", command.json, "one JSON object instead of lines");
}

void add_prune(CLI::App& app, CheckpointsCommand& command) {
    constexpr int64_t most = 1'000'000'000;
    CLI::App* prune = add(app, command, "prune", "remove what the run's policy does not keep");
    const auto rule = [&](const char* flag, std::optional<int64_t>& to, int64_t least, const char* help) {
        prune->add_option(flag, to, help)->check(whole_number_from(least, most));
    };
    rule("--keep", command.keep, RetentionPolicy::least, "the newest so many; without it checkpoint.keep of the run");
    rule("--keep-every-steps", command.every_steps, 0, "and those of steps that this divides");
    rule("--keep-hourly", command.hourly, 0, "and the newest of each of the last so many hours that have one");
    rule("--keep-daily", command.daily, 0, "and the newest of each of the last so many days");
    rule("--keep-best", command.best, 0, "and the so many of the least loss on held-out data");
    prune->add_flag("--dry-run", command.dry_run, "say what would go, and why the rest stays; remove nothing");
    add_json(*prune, command);
    add_examples(*prune, {"checkpoints prune runs/gpt --dry-run", "checkpoints prune runs/gpt --keep 2 --keep-best 3"});
}

void add_copy(CLI::App& app, CheckpointsCommand& command) {
    CLI::App* copy = add(app, command, "copy", "copy a checkpoint to another store, for the same mesh or another");
    add_step(*copy, command, "the checkpoint's step")->required();
    copy->add_option("--to", command.to, "a run's folder, or a place of a store")
        ->required()
        ->check(file_name())
        ->type_name("RUN-or-PLACE");
    copy->add_option("--store", command.to_store, "kind of store of that place; a run's is in its config.toml");
    copy->add_option("--mesh", command.mesh, "lay it out for this mesh, as dp=2,tp=2; without it as it is");
    copy->add_flag("--dry-run", command.dry_run, "say what would be written; write nothing");
    add_json(*copy, command);
    add_examples(*copy, {"checkpoints copy runs/gpt 300 --to archive/gpt",
                         "checkpoints copy runs/gpt 300 --to runs/wide --mesh dp=2,tp=2 --dry-run"});
}

}  // namespace

void add_checkpoints_flags(CLI::App& app, CheckpointsCommand& command) {
    app.require_subcommand(1);
    CLI::App* list = add(app, command, "list", "every checkpoint: step, time, bytes, losses, mesh, marks and pins");
    add_json(*list, command);
    CLI::App* show = add(app, command, "show", "what one is made of: objects with digests, tensors with their shards");
    add_step(*show, command, "the checkpoint's step")->required();
    add_json(*show, command);
    CLI::App* verify = add(app, command, "verify", "read one, or all, whole; exit code 1 and what is damaged");
    verify
        ->add_option_function<std::string>(
            "step", [&command](const std::string& text) { command.step = text == "all" ? -1 : std::stoll(text); },
            "the checkpoint's step; without it, or with `all`, every one")
        ->check(CLI::Validator(
            [](std::string& text) { return text == "all" ? "" : whole_number_from(0, Manifest::last_step)(text); }, ""))
        ->type_name("N|all");
    add_json(*verify, command);
    CLI::App* pin = add(app, command, "pin", "keep one, whatever the policy says");
    add_step(*pin, command, "the checkpoint's step")->required();
    pin->add_option("text", command.text, "why, in a line")->required()->type_name("TEXT");
    CLI::App* unpin = add(app, command, "unpin", "leave one to the policy again");
    add_step(*unpin, command, "the checkpoint's step")->required();
    CLI::App* unmark = add(app, command, "unmark", "remove the mark of a suspect one: runs may resume from it again");
    add_step(*unmark, command, "the checkpoint's step")->required();
    add_prune(app, command);
    add_copy(app, command);
    add_examples(app, {"checkpoints list runs/gpt", "checkpoints verify runs/gpt",
                       "checkpoints pin runs/gpt 300 \"for the paper\"", "checkpoints prune runs/gpt --dry-run",
                       "checkpoints copy runs/gpt 300 --to archive/gpt"});
}

}  // namespace orrery
