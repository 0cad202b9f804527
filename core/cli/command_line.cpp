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
#include "cli/bench/bench_collectives.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/preflight/preflight_flags.h"
#include "cli/scale/scale_flags.h"
#include "cli/signals.h"
#include "compile/pipeline.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "lua/script.h"
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

/// Lines shown behind a command's options.
void add_examples(CLI::App& app, const std::vector<std::string>& lines) {
    std::string text = "Examples:";
    for (const std::string& line : lines) text += "\n  orrery " + line;
    app.footer(text);
}

CLI::App* add_run(CLI::App& app, ScriptCommand& command) {
    CLI::App* run = app.add_subcommand("run", "train: start the ranks of this host and run a script on them");
    add_script_options(*run, command, "experiment, a .lua file");
    run->add_flag("--fresh", command.fresh, "start over: move what the run's folder holds aside");
    run->add_option_function<std::string>(
        "--trace", [&command](const std::string& file) { command.sets.push_back("run.trace=" + toml_string(file)); },
        "write a trace of one step of all ranks to this file, for ui.perfetto.dev; run.trace_step says which");
    run->add_option("--nodes", command.nodes, "hosts that take part");
    run->add_option("--node-rank", command.node_rank, "which of them this is, from 0");
    run->add_option("--rendezvous", command.rendezvous, "host:port where node 0 listens");
    add_examples(*run, {"run scripts/gpt.lua --config configs/quickstart.toml",
                        "run scripts/gpt.lua --config configs/quickstart.toml --trace step.json",
                        "run scripts/gpt.lua --config configs/four_ranks.toml --set train.steps=500",
                        "run my.lua --config two.toml --nodes 2 --node-rank 0 --rendezvous n1:29500"});
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
        ->check(CLI::NonNegativeNumber)
        ->needs(print);
    add_examples(*check, {"check scripts/gpt.lua --config configs/llama70b.toml",
                          "check scripts/gpt.lua --config configs/four_ranks.toml --dump passes",
                          fmt::format("check passes/gpt/{:02}-{}.ir", passes().size(), passes().back().name)});
    return check;
}

void add_cluster(CLI::App& app, SimulateCommand& command) {
    app.add_option("--cluster", command.cluster, "TOML file of the cluster; see configs/clusters/")->required();
    app.add_option("--cluster-nodes", command.cluster_nodes, "so many nodes, instead of what the file says")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    app.add_option("--software", command.software,
                   "what runs the kernels: compiled, eager, megatron, unfused or eight_bit");
    app.add_option("--tp-chunks", command.tp_chunks,
                   "what if collectives of tp ran in so many chunks beside their products; `run` cannot do that")
        ->check(CLI::Range(2, 64));
}

/// Without a cluster.
void add_local(CLI::App& app, SimulateCommand& command) {
    CLI::Option* const cluster = app.get_option("--cluster")->required(false);
    for (const char* of_cluster : {"--cluster-nodes", "--software", "--tp-chunks"})
        app.get_option(of_cluster)->needs(cluster);
    app.add_option("--table", command.tables,
                   "measured costs of this machine, as calibrate or a run writes; may repeat")
        ->allow_extra_args(false)
        ->excludes(cluster);
    app.add_option("--link-gbit", command.link_gbit, "what if each rank had a link of so many Gbit/s each way")
        ->check(CLI::PositiveNumber)
        ->excludes(cluster);
    app.add_option("--link-us", command.link_us, "and its messages took so long to come, in microseconds")
        ->check(CLI::NonNegativeNumber)
        ->excludes(cluster);
    app.add_option("--processors", command.processors, "what if this host had so many processors")
        ->check(CLI::PositiveNumber)
        ->excludes(cluster);
}

CLI::App* add_simulate(CLI::App& app, ScriptCommand& script, SimulateCommand& command) {
    CLI::App* simulate =
        app.add_subcommand("simulate", "predict a step on a cluster that is not here, or on this one; start nothing");
    add_script_options(*simulate, script, "experiment, a .lua file; on this machine also a run's folder");
    add_cluster(*simulate, command);
    add_local(*simulate, command);
    simulate->add_option("--mapping", command.mapping, "axes from the one inside a node outwards, as in tp,dp,pp")
        ->delimiter(',');
    simulate
        ->add_option("--slow", command.slow, "RANK:TIMES, a rank whose kernels take so many times as long; may repeat")
        ->allow_extra_args(false);
    simulate->add_option("--jitter", command.jitter, "kernels take up to this part longer, by chance")
        ->check(CLI::Range(0.0, 10.0));
    simulate->add_option("--restart-s", command.restart_s, "seconds from a failure until training goes on")
        ->check(CLI::NonNegativeNumber);
    simulate->add_option("-o,--out", command.out, "draw the timeline to this .svg file");
    simulate->add_option("--trace", command.trace, "write the step of every rank for Perfetto to this .json file");
    simulate->add_flag("--json", command.json, "print the prediction as JSON");
    for (const char* of_cluster : {"--mapping", "--restart-s"}) simulate->get_option(of_cluster)->needs("--cluster");
    add_examples(*simulate,
                 {"simulate scripts/gpt.lua --config configs/llama405b.toml --cluster configs/clusters/h100.toml "
                  "--cluster-nodes 2048",
                  "simulate my.lua --config mine.toml --cluster configs/clusters/b300.toml -o step.svg",
                  "simulate runs/gpt --set run.transport=gloo --link-gbit 1"});
    return simulate;
}

CLI::App* add_plan(CLI::App& app, ScriptCommand& script, PlanCommand& command) {
    CLI::App* plan = app.add_subcommand("plan", "search the fastest mesh and strategies for a script on a cluster");
    add_script_options(*plan, script, "experiment, a .lua file");
    add_cluster(*plan, command.simulate);
    plan->add_option("--ranks", command.ranks, "so many of the cluster's accelerators; all of them if left out")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan->add_option("--most-tp", command.most_tp,
                     "the largest tp that is looked at; a node's accelerators if left out")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan->add_option("--most-pp", command.most_pp, "the largest pp that is looked at; 64 if left out")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan->add_option("--jobs", command.jobs, "choices that are looked at at the same time; one a processor if left out")
        ->check(CLI::Range(1, 1024));
    plan->add_option("-o,--out", command.simulate.out, "draw time against memory of all choices to this .svg file");
    plan->add_option("--keep", command.keep,
                     "stays as configured: mesh, samples, zero, schedule, sequence, recompute, mapping")
        ->delimiter(',');
    add_examples(*plan, {"plan scripts/gpt.lua --config configs/llama70b.toml --cluster configs/clusters/h100.toml",
                         "plan my.lua --cluster configs/clusters/b300.toml --keep zero,recompute"});
    return plan;
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
    sample->add_option("-n,--tokens", command.sample.tokens, "tokens to draw")->check(CLI::PositiveNumber);
    sample->add_option("-t,--temperature", command.sample.temperature, "0: the likeliest token")
        ->check(CLI::NonNegativeNumber);
    sample->add_option("--top-k", command.sample.top_k, "draw among the k likeliest, 0: all")
        ->check(CLI::NonNegativeNumber);
    sample->add_option("--seed", command.sample.seed, "same seed, same text");
    add_examples(*sample, {"sample runs/quickstart --prompt \"In the beginning\" --tokens 300 --temperature 0.7"});
    return sample;
}

CLI::App* add_draw(CLI::App& app, ScriptCommand& script, DrawCommand& command) {
    CLI::App* draw = app.add_subcommand("draw", "show a plan: timeline, memory and layouts, as text or SVG");
    add_script_options(*draw, script, "experiment, a .lua file");
    draw->get_option("script")->required(false);
    draw->add_option("-o,--out", command.out, "write FILE.svg instead of text");
    draw->add_option("--schedule", command.schedule, "instead of a script: 1f1b, my.lua, or a file of F0 B0 ...");
    draw->add_option("--stages", command.stages, "with --schedule: ranks of the pipeline")
        ->check(CLI::Range(0, 1 << 20));
    draw->add_option("--micro", command.micro, "with --schedule: micro-batches")->check(CLI::NonNegativeNumber);
    draw->add_option("--chunks", command.chunks, "with --schedule: stages of each rank; 0: as many as it needs")
        ->check(CLI::Range(0, 1024));
    draw->add_option("--by", command.by, "length of a fragment: unit or flops")
        ->check(CLI::IsMember({"unit", "flops"}));
    draw->add_option("--width", command.width, "columns of the text; 0: the terminal's")->check(CLI::NonNegativeNumber);
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

CLI::App* add_calibrate(CLI::App& app, ScriptCommand& script, CalibrateCommand& command) {
    CLI::App* calibrate = app.add_subcommand(
        "calibrate", "measure this machine's kernels by shape and transports by size, as a table for `simulate`");
    add_script_options(*calibrate, script, "experiment, a .lua file: exactly its plan's kernels; none: a grid");
    calibrate->get_option("script")->required(false);
    calibrate->add_option("-o,--out", command.out, "JSON file; standard output if left out");
    calibrate->add_flag("--keep", command.keep,
                        "keep the table for this machine, in the user's cache folder: runs are held against it");
    calibrate->add_option("--refit", command.refit,
                          "measure nothing: runs' folders whose costs.json go into the table of -o or --keep");
    calibrate->add_option("--threads", command.rank_threads, "threads of a rank; 0: as `run` would have, or all")
        ->check(CLI::Range(0, 1024));
    calibrate->add_option("--transports", command.transports,
                          "transport plugins: shm,gloo; none: no communication; left out: those of the script, or all");
    calibrate->add_option("--ranks", command.ranks, "how many ranks communicate: 2,4; left out: as the script, or 2");
    calibrate->add_option("--seconds", command.seconds, "time to measure for, in all")
        ->check(CLI::Range(0.01, 86400.0));
    calibrate->add_option("--dtype", command.dtype, "of the grid: f32, bf16 or f16")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}));
    calibrate->add_option("--bytes", command.bytes, "sizes of messages; left out: 1 KiB to 64 MiB")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
    calibrate->add_option("--wire", command.wire)->group("");  // the processes that this command starts
    calibrate->add_option("--wire-ranks", command.wire_ranks)->group("");
    calibrate->add_option("--wire-seconds", command.wire_seconds)->group("");
    add_examples(*calibrate, {"calibrate --threads 1 --transports shm,gloo --ranks 2,4 -o here.json",
                              "calibrate scripts/gpt.lua --config configs/two_ranks.toml -o gpt.json",
                              "calibrate --threads 1 --keep", "calibrate --refit runs/gpt runs/mlp --keep"});
    return calibrate;
}

struct BenchCommand {
    CollectiveBench bench;
    std::string begin = "1K", end = "256M", dtype = "f32", op = "sum", config;
    int average = 1;
    std::vector<std::string> sets, arguments;
};

CLI::App* add_bench(CLI::App& app, BenchCommand& command) {
    CLI::App* bench = app.add_subcommand("bench", "time a collective between processes, in nccl-tests' columns");
    bench->add_option("collective", command.bench.collective, "which one")
        ->required()
        ->check(CLI::IsMember(bench_collective_names()));
    bench->add_option("-b,--begin", command.begin, "smallest size, as 1K or 16M; 0: empty ones first");
    bench->add_option("-e,--end", command.end, "largest size");
    bench->add_option("-f,--factor", command.bench.factor, "each size is this many times the last")
        ->check(CLI::Range(2, 1024));
    bench->add_option("-n,--iters", command.bench.iterations, "iterations; 0 chooses by size");
    bench->add_option("-w,--warmup", command.bench.warmup, "iterations before timing");
    bench->add_option("-c,--check", command.bench.check, "compare the results");
    bench->add_option("-a,--average", command.average, "whose time: 0 rank 0, 1 the mean, 2 the fastest, 3 the slowest")
        ->check(CLI::Range(0, 3));
    bench->add_option("--transport", command.bench.transport, "transport plugin");
    bench->add_option("--ranks", command.bench.ranks,
                      "processes on all hosts together; 2, or those that srun, mpirun or torchrun has started");
    bench->add_option("--nodes", command.bench.nodes, "hosts that take part");
    bench->add_option("--node-rank", command.bench.node_rank, "which of them this is, from 0");
    bench->add_option("--rendezvous", command.bench.rendezvous, "host:port where node 0 listens");
    bench->add_option("--dtype", command.dtype, "f32, bf16, f16, f64, i32, i8 ...");
    bench->add_option("--op", command.op, "sum, max or min")->check(CLI::IsMember({"sum", "max", "min"}));
    bench->add_option("--config", command.config, "TOML file with [transport.NAME]");
    bench->add_option("-s,--set", command.sets, "table.key=value")->allow_extra_args(false);
    add_examples(*bench, {"bench all_reduce --transport shm --ranks 2 -b 1K -e 256M",
                          "bench send_receive --transport gloo --dtype bf16",
                          "bench all_reduce --transport gloo --ranks 8 --nodes 2 --node-rank 0 --rendezvous n1:1234"});
    return bench;
}

std::vector<std::string> types() {
    std::vector<std::string> names;
    using enum DType;
    for (const DType type : {f32, bf16, f16, f64, i32, i64, u32, u16, u8}) names.emplace_back(name_of(type));
    names.emplace_back("i8");
    return names;
}

/// A file may be a run's, with tables that the bench has no use for; what is set for the bench itself must be read.
void refuse_idle_sets(const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
        const bool read =
            set.starts_with("transport.") || set.starts_with("device.cpu.") || set.starts_with("plugins.");
        if (!read || set.starts_with("transport.axis."))
            throw Error(
                "--set " + set +
                ": the bench does not read this\n  it reads transport.NAME.KEY, device.cpu.KEY and plugins.path");
    }
}

int bench_command(BenchCommand& command) {
    command.bench.begin = parse_size(command.begin);
    command.bench.end = parse_size(command.end);
    command.bench.signed_bytes = command.dtype == "i8";
    const auto dtype = command.bench.signed_bytes ? DType::u8 : parse_dtype(command.dtype);
    if (!dtype)
        throw Error("--dtype " + command.dtype + ": no such type" + choices("there are", command.dtype, types()));
    command.bench.dtype = *dtype;
    command.bench.op = command.op == "max" ? ReduceOp::max : command.op == "min" ? ReduceOp::min : ReduceOp::sum;
    command.bench.average = static_cast<CollectiveBench::Average>(command.average);
    refuse_idle_sets(command.sets);
    Config config = load_config(command.config, command.sets);
    return bench_collectives(command.bench, config, command.arguments);
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
    CLI::App* draw = add_draw(app, script, drawing);
    CLI::App* tokens = app.add_subcommand("tokenize", "write a token file from text, one token a byte");
    tokens->add_option("text", tokenize.text, "text file")->required();
    tokens->add_option("bin", tokenize.bin, "token file to write")->required();
    tokens->add_option("--token-bytes", tokenize.token_bytes, "2 or 4")->check(CLI::IsMember({2, 4}));
    CLI::App* plugins = app.add_subcommand("plugins", "list the plugins, and why one cannot load");
    plugins->add_option("folder", folders, "further folders to look in");
    SimulateCommand simulated;
    CLI::App* simulate = add_simulate(app, script, simulated);
    PlanCommand planned;
    CLI::App* plan = add_plan(app, script, planned);
    NewPluginCommand fresh;
    CLI::App* new_plugin = add_new_plugin(app, fresh);
    ProductsCommand products;
    CLI::App* kinds = add_products(app, products);
    CalibrateCommand calibration;
    CLI::App* calibrate = add_calibrate(app, script, calibration);
    add_bench(app, bench);
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
    if (run->parsed()) return run_command(script);     // trains on when nobody reads
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // the others have nothing to save: a signal ends them
    if (check->parsed()) return written(check_command(script));
    if (verify->parsed()) return written(verify_command(script));
    if (sample->parsed()) return written(sample_command(script));
    if (draw->parsed()) return written(draw_command(script, drawing));
    if (simulate->parsed()) return written(simulate_command(script, simulated));
    if (plan->parsed()) return written(plan_command(script, planned));
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
    }
}

}  // namespace orrery
