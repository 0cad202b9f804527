#include "cli/command_line.h"

#include <unistd.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <system_error>

#include "base/limits.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/bench/bench_flags.h"
#include "cli/calibrate/calibrate_flags.h"
#include "cli/checkpoints/checkpoints.h"
#include "cli/commands.h"
#include "cli/data/data.h"
#include "cli/evaluate/evaluate_flags.h"
#include "cli/export/export_command.h"
#include "cli/flag_checks.h"
#include "cli/launch.h"
#include "cli/preflight/preflight_flags.h"
#include "cli/scale/scale_flags.h"
#include "cli/signals.h"
#include "cli/simulate/simulate_flags.h"
#include "cli/tokenize/tokenize_flags.h"
#include "compile/pipeline.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "lua/script.h"
#include "run/checkpoint/manifest.h"
#include "run/control/job.h"
#include "run/control/stop_request.h"

namespace orrery {
namespace {

void add_script_options(CLI::App& app, ScriptCommand& command, const char* what) {
    app.add_option("script", command.script, what)->required();
    app.add_option("-c,--config", command.config, "TOML file; see configs/");
    app.add_option("-s,--set", command.sets, "table.key=value, over the config file; may repeat")
        ->allow_extra_args(false);
    app.set_help_flag();
    app.add_flag("-h,--help", command.script_help, "print this help and the options that the script declares");
}

CLI::App* add_run(CLI::App& app, ScriptCommand& command) {
    CLI::App* run = app.add_subcommand("run", "train: start the ranks of this host and run a script on them");
    add_script_options(*run, command, "experiment, a .lua file");
    // Of runs that a command starts.
    run->add_option("--own-set", command.own_sets)->allow_extra_args(false)->group("");
    CLI::Option* fresh = run->add_flag("--fresh", command.fresh, "start over: move what the run's folder holds aside");
    run->add_option("--from-step", command.from_step,
                    "go on from the checkpoint of this step; newer ones stay, marked as suspect")
        ->check(whole_number_from(0, Manifest::last_step))
        ->excludes(fresh);
    run->add_option_function<std::string>(
           "--trace", [&command](const std::string& file) { command.sets.push_back("run.trace=" + toml_string(file)); },
           "write a trace of one step of all ranks to this file, for ui.perfetto.dev; run.trace_step says which")
        ->check(file_name());
    run->add_option("--nodes", command.nodes, "hosts that take part");
    run->add_option("--node-rank", command.node_rank, "which of them this is, from 0");
    run->add_option("--rendezvous", command.rendezvous, "host:port where node 0 listens");
    CLI::Option* restarts =
        run->add_option(
               "--restarts", command.restarts,
               "start failed ranks again from the newest checkpoint, so often after each cause without a new step")
            ->check(whole_number_from(0, 1000));
    run->add_option("--spares", command.spares, "with --restarts: launchers that wait for the loss of a node")
        ->check(whole_number_from(0, 1000));
    run->add_option("--wait-node", command.wait_node_s, "with --restarts: seconds that a missing node is waited for")
        ->check(number_from(1, 1e6))
        ->needs(restarts);
    add_examples(*run, {"run scripts/gpt.lua --config configs/quickstart.toml",
                        "run scripts/gpt.lua --config configs/quickstart.toml --trace step.json",
                        "run scripts/gpt.lua --config configs/four_ranks.toml --set train.steps=500",
                        "run scripts/gpt.lua --config configs/four_ranks.toml --restarts 3",
                        "run my.lua --config two.toml --nodes 2 --node-rank 0 --rendezvous n1:29500",
                        "run my.lua --config two.toml --nodes 2 --node-rank 2 --spares 1 --restarts 9 --rendezvous "
                        "n1:29500"});
    return run;
}

CLI::App* add_check(CLI::App& app, ScriptCommand& command) {
    CLI::App* check = app.add_subcommand("check", "compile and prove a script's plan, start nothing");
    add_script_options(*check, command, "experiment, a .lua file; or a dumped program, a .ir file");
    check->add_option("--dump", command.dump, "write each program after each pass, and each plan, to this new folder");
    CLI::Option* print =
        check->add_option("--print", command.show, "print only this of the train step: program or plan")
            ->check(CLI::IsMember({"program", "plan"}));
    check->add_option("--rank", command.rank, "with --print plan: of the class of this rank")
        ->check(whole_number_from(0, 1'000'000'000))
        ->needs(print);
    add_examples(*check, {"check scripts/gpt.lua --config configs/llama70b.toml",
                          "check scripts/gpt.lua --config configs/four_ranks.toml --dump passes",
                          fmt::format("check passes/gpt/{:02}-{}.ir", passes().size(), passes().back().name)});
    return check;
}

CLI::App* add_verify(CLI::App& app, ScriptCommand& command) {
    CLI::App* verify = app.add_subcommand(
        "verify", "run a script's first steps on one device and on its mesh, and name the first value that differs");
    add_script_options(*verify, command, "experiment, a .lua file");
    verify->add_option("--steps", command.verify.steps, "steps to compare");
    verify->add_option("--draws", command.verify.draws, "runs that measure how far rounding moves each value");
    verify->add_flag("--bitwise", command.verify.bitwise, "demand equal bits where no sum changes its order");
    verify
        ->add_option("--inject", command.injections,
                     "a mistake to find: scale,rank=1,tensor=NAME,by=1.01 or unreduced,rank=1,tensor=NAME or "
                     "unexchanged,rank=1,tensor=NAME")
        ->allow_extra_args(false);
    return verify;
}

CLI::App* add_sample(CLI::App& app, ScriptCommand& command) {
    CLI::App* sample = app.add_subcommand("sample", "draw text from a run's newest checkpoint");
    add_script_options(*sample, command, "the run's folder, or the script with its config");
    sample->add_option("-p,--prompt", command.sample.prompt, "text to go on from");
    sample->add_option("-n,--tokens", command.sample.tokens, "tokens to draw")
        ->check(whole_number_from(1, 1'000'000'000));
    sample->add_option("-t,--temperature", command.sample.temperature, "0: the likeliest token")
        ->check(number_from(0, 1e6));
    sample->add_option("--top-k", command.sample.top_k, "draw among the k likeliest, 0: all")
        ->check(whole_number_from(0, 1'000'000'000));
    sample->add_option("--seed", command.sample.seed, "same seed, same text");
    add_examples(*sample, {"sample runs/quickstart --prompt \"In the beginning\" --tokens 300 --temperature 0.7"});
    return sample;
}

CLI::App* add_draw(CLI::App& app, ScriptCommand& script, DrawCommand& command) {
    CLI::App* draw = app.add_subcommand("draw", "show a plan: timeline, memory and layouts, as text or SVG");
    add_script_options(*draw, script, "experiment, a .lua file");
    draw->get_option("script")->required(false);
    draw->add_option("-o,--out", command.out, "write FILE.svg instead of text")->check(file_name());
    draw->add_option("--schedule", command.schedule, "instead of a script: 1f1b, my.lua, or a file of F0 B0 ...");
    draw->add_option("--stages", command.stages, "with --schedule: ranks of the pipeline")
        ->check(CLI::Range(0, 1 << 20));
    draw->add_option("--micro", command.micro, "with --schedule: micro-batches")
        ->check(whole_number_from(0, 1'000'000'000));
    draw->add_option("--chunks", command.chunks, "with --schedule: stages of each rank; 0: as many as it needs")
        ->check(CLI::Range(0, 1024));
    draw->add_option("--by", command.by, "length of a fragment: unit or flops")
        ->check(CLI::IsMember({"unit", "flops"}));
    draw->add_option("--width", command.width, "columns of the text; 0: the terminal's")
        ->check(whole_number_from(0, 1'000'000));
    draw->add_option("--colour", command.colour, "auto, always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    add_examples(*draw, {"draw scripts/gpt.lua --config configs/quickstart.toml",
                         "draw scripts/gpt.lua --config configs/quickstart.toml --set train.microbatches=4 -o gpt.svg",
                         "draw --schedule 1f1b --stages 4 --micro 8", "draw --schedule my_order.txt -o order.svg"});
    return draw;
}

CLI::App* add_new_plugin(CLI::App& app, NewPluginCommand& command) {
    CLI::App* fresh =
        app.add_subcommand("new-plugin", "write a folder with a plugin that builds, loads and has a test");
    fresh->add_option("kind", command.kind, "strategy, strategy-lua, store, transport, data, op, device ...")
        ->required();
    fresh->add_option("name", command.name, "small letters, digits and _")->required();
    fresh->add_option("folder", command.folder, "where to write it; a folder of that name if left out");
    add_examples(*fresh, {"new-plugin strategy rows", "new-plugin op snake", "new-plugin store tape ~/tape"});
    return fresh;
}

CLI::App* add_products(CLI::App& app, ProductsCommand& command) {
    CLI::App* products =
        app.add_subcommand("products", "time matrix products in each kind that a device has, as `run` does once");
    products->add_option("--device", command.device, "device plugin");
    products->add_option("--threads", command.rank_threads, "threads of a rank; 0: the processors allowed")
        ->check(CLI::Range(0, 1024));
    products->add_option("--types", command.types, "types of operands: f32, bf16, f16");
    CLI::Option* only =
        products->add_option("--try", command.only, "one kind, in this process, with the result as JSON");
    products->add_flag("--untimed", command.untimed, "with --try: only whether it is right")->needs(only);
    products->add_option("-s,--set", command.sets, "table.key=value of [device.NAME] or [plugins]; may repeat")
        ->allow_extra_args(false);
    add_examples(*products, {"products --threads 1 --types f32,bf16"});
    return products;
}

void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
    if (argc < 2 || argv[1][0] == '-') return;
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(command->get_name());
    if (std::find(names.begin(), names.end(), argv[1]) == names.end())
        throw Error(fmt::format("no command {}{}", quote(argv[1]), choices("there are", argv[1], names)));
}

/// What the command does not take, with its option that is closest.
[[noreturn]] void refuse_extras(const CLI::App& app, const CLI::ExtrasError& error) {
    const std::string text = error.what();  // "The following argument was not expected: --confg"
    const auto commands = app.get_subcommands();
    const CLI::App& command = commands.empty() ? app : *commands.front();
    const std::string given = text.substr(std::min(text.size(), text.rfind(": ") + 2));
    const size_t dashes = given.starts_with("--") ? 0 : given.find(" --") + 1;  // CLI11 says them last to first
    const std::string first = given.substr(dashes, given.find_first_of(" =", dashes) - dashes);
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string guess = did_you_mean(first, names);
    throw Error(fmt::format("{}: it does not take {}\n  {}{}orrery {} --help says what it takes", command.get_name(),
                            given, guess, guess.empty() ? "" : " ", command.get_name()));
}

/// What a command prints is what it is for: a full disk is no success.
int written(int code) {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    throw Error(
        fmt::format("cannot write standard output{}{}", errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno)),
        Fault::failed);
}

/// The last line of `orrery --help`: the manual lies beside the Lua library, installed or in the source tree.
std::string where_the_manual_is() {
    try {
        const std::filesystem::path library = script_library("");
        for (const std::filesystem::path& folder : {library.parent_path() / "manual", library / "manual"})
            if (std::filesystem::is_directory(folder)) return "The manual: " + folder.string();
    } catch (const Error&) {  // help is printed without a library, too
    }
    return "The manual was not found: it is share/orrery/manual of an installed prefix.";
}

/// `before`: the signal mask of before.
int dispatch(int argc, char** argv, const sigset_t& before) {
    CLI::App app("Orrery trains foundation models: one script, any mesh, any backend.", "orrery");
    app.require_subcommand(1);
    app.footer([] {
        return "orrery COMMAND --help says more. Exit codes: 0 done, 1 failed, 2 the command or the script is wrong,\n"
               "75 stopped by a signal and to be started again, 128 + signal.\n" +
               where_the_manual_is();
    });
    app.set_version_flag("--version", std::function<std::string()>(version_text),
                         "version, and digests of the code of liborrery and of each plugin");
    ScriptCommand script;
    script.arguments.assign(argv, argv + argc);
    DrawCommand drawing;
    TokenizeCommand tokenize;
    BenchCommand bench;
    bench.arguments = script.arguments;
    PreflightCommand preflight;
    preflight.arguments = script.arguments;
    std::vector<std::string> folders;

    CLI::App* run = add_run(app, script);
    CLI::App* check = add_check(app, script);
    CLI::App* verify = add_verify(app, script);
    CLI::App* sample = add_sample(app, script);
    EvaluateCommand evaluation;
    CLI::App* evaluate =
        app.add_subcommand("evaluate", "perplexity of a text, accuracy on choices: of a run or a folder");
    add_script_options(*evaluate, script, "the run's folder, a published model's, or a script with its config");
    add_evaluate_flags(*evaluate, evaluation);
    CLI::App* draw = add_draw(app, script, drawing);
    CLI::App* tokens = app.add_subcommand("tokenize", "write token files from text");
    add_tokenize_flags(*tokens, tokenize);
    ExportCommand exported;
    CLI::App* to_publish = app.add_subcommand("export", "write a checkpoint as a published model");
    add_export_flags(*to_publish, exported);
    CheckpointsCommand checkpoints;
    CLI::App* kept = app.add_subcommand("checkpoints", "list, show, verify, pin, prune and copy a run's checkpoints");
    add_checkpoints_flags(*kept, checkpoints);
    DataCommand read;
    CLI::App* data = app.add_subcommand("data", "print the samples that a step of a run is made of");
    add_script_options(*data, script, "the folder of a run, or an experiment, a .lua file");
    add_data_flags(*data, read);
    CLI::App* plugins = app.add_subcommand("plugins", "list the plugins, and why one cannot load");
    plugins->add_option("folder", folders, "further folders to look in");
    SimulateCommand simulated;
    CLI::App* simulate =
        app.add_subcommand("simulate", "predict a step on a cluster that is not here, or on this one; start nothing");
    add_script_options(*simulate, script, "experiment, a .lua file; on this machine also a run's folder");
    add_simulate_flags(*simulate, simulated);
    PlanCommand planned;
    CLI::App* plan = app.add_subcommand(
        "plan", "search the fastest mesh and strategies for a script, on a cluster or on this machine");
    add_script_options(*plan, script, "experiment, a .lua file; on this machine also a run's folder");
    add_plan_flags(*plan, planned);
    NewPluginCommand fresh;
    CLI::App* new_plugin = add_new_plugin(app, fresh);
    ProductsCommand products;
    CLI::App* kinds = add_products(app, products);
    CalibrateCommand calibration;
    CLI::App* calibrate = app.add_subcommand(
        "calibrate", "measure this machine's kernels by shape and transports by size, as a table for `simulate`");
    add_script_options(*calibrate, script, "experiment, a .lua file: exactly its plan's kernels; none: a grid");
    add_calibrate_flags(*calibrate, calibration);
    CLI::App* times = app.add_subcommand("bench", "time a collective between processes, in nccl-tests' columns");
    add_bench_flags(*times, bench);
    CLI::App* look = add_preflight(app, preflight);
    ScaleCommand sizes;
    CLI::App* scale = app.add_subcommand("scale", "run a script on several numbers of ranks and compare them");
    add_script_options(*scale, script, "experiment, a .lua file");
    add_scale_flags(*scale, sizes);

    refuse_unknown_command(app, argc, argv);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ExtrasError& error) {
        refuse_extras(app, error);
    } catch (const CLI::RequiredError& error) {
        if (!script.script_help) return app.exit(error), 2;  // help needs no script
    } catch (const CLI::ParseError& error) {
        // CLI11 prints help (0) or the mistake; every mistake of the command line is exit 2.
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (script.script_help) {
        std::printf("%s\n", app.get_subcommands().at(0)->help().c_str());
        if (script.script.empty()) return 0;
    }
    if (run->parsed()) return run_command(script);                                 // trains on when nobody reads
    if (evaluate->parsed()) return written(evaluate_command(script, evaluation));  // takes signals as run does
    if (to_publish->parsed()) return written(export_command(exported));            // has a folder to remove
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // the others have nothing to save: a signal ends them
    if (kept->parsed()) return written(checkpoints_command(checkpoints));
    if (check->parsed()) return written(check_command(script));
    if (verify->parsed()) return written(verify_command(script));
    if (sample->parsed()) return written(sample_command(script));
    if (draw->parsed()) return written(draw_command(script, drawing));
    if (simulate->parsed()) return written(simulate_command(script, simulated));
    if (plan->parsed()) return written(plan_command(script, planned));
    if (data->parsed()) return written(data_command(script, read));
    if (tokens->parsed()) return written(tokenize_command(tokenize));
    if (plugins->parsed()) return written(plugins_command(folders));
    if (new_plugin->parsed()) return written(new_plugin_command(fresh));
    if (scale->parsed()) return written(scale_command(script, sizes));
    if (look->parsed()) return written(preflight_command(preflight));
    if (kinds->parsed()) return written(products_command(products));
    if (calibrate->parsed()) return written(calibrate_command(script, calibration));
    return written(bench_command(bench));
}

}  // namespace

int exit_code(Fault fault) {
    switch (fault) {
        case Fault::usage: return 2;
        case Fault::requeue: return stopped_code(stop_signal());
        case Fault::failed:
        case Fault::peer: break;
    }
    return 1;
}

void end_process(const std::string& text) {
    std::fprintf(stderr, "orrery: %s\n", text.c_str());
    std::fflush(stdout);
    ::_exit(1);
}

namespace {

/// Behind what was printed before, where both go to one file.
int tell(const std::string& text, int code) {
    std::fflush(stdout);
    std::fprintf(stderr, "orrery: %s\n", text.c_str());
    return code;
}

}  // namespace

int command_line(int argc, char** argv) {
    const sigset_t before = hold_stop_signals();  // the first of all: threads inherit it, also those of libraries
    watch_lifeline();
    try {
        return dispatch(argc, argv, before);
    } catch (const SaidElsewhere& error) {
        return exit_code(error.fault());
    } catch (const Error& error) {
        return tell(error.what(), exit_code(error.fault()));
    } catch (const std::filesystem::filesystem_error& error) {
        return tell(fmt::format("{}: {}", error.path1().string(), error.code().message()), 1);
    } catch (const std::bad_alloc& error) {
        return tell(explain(error), 1);
    } catch (const std::system_error& error) {
        return tell(explain(error), 1);
    } catch (const std::exception& error) {
        return tell(fmt::format("internal error: {}\n  this is a mistake of Orrery's; please report it", error.what()),
                    1);
    } catch (...) {  // not of a plugin: what one throws is an Error by then
        return tell(
            "internal error: something other than a std::exception was thrown\n  this is a mistake of Orrery's; "
            "please report it",
            1);
    }
}

}  // namespace orrery
