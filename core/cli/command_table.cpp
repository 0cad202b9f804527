#include "cli/command_table.h"

#include <fmt/format.h>

#include "base/text.h"
#include "compile/pipeline.h"
#include "config/toml_text.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {
namespace {

constexpr int64_t billion = 1'000'000'000;

std::vector<Flag> script_flags(ScriptCommand& script, const char* what, bool required = true) {
    return {Flag("script", &script.script, what, {.required = required}),
            Flag("-c,--config", &script.config, "TOML file; see configs/"),
            Flag("-s,--set", &script.sets, "table.key=value, over the config file; may repeat", {.one_each = true}),
            Flag("-h,--help", &script.script_help, "print this help and the options that the script declares",
                 {.is_help = true})};
}

std::vector<Flag> node_flags(int64_t& nodes, int64_t& node_rank, std::string& rendezvous) {
    return {Flag("--nodes", &nodes, "hosts that take part"),
            Flag("--node-rank", &node_rank, "which of them this is, from 0"),
            Flag("--rendezvous", &rendezvous, "host:port where node 0 listens")};
}

std::vector<Flag> begin_flags(ScriptCommand& script) {
    return {Flag("--fresh", &script.fresh, "start over: move what the run's folder holds aside"),
            Flag("--from-step", &script.from_step,
                 "go on from the checkpoint of this step; newer ones stay, marked as suspect",
                 whole_number(0, Manifest::last_step), {.excludes = "--fresh"})};
}

std::vector<Flag> restart_flags(ScriptCommand& script) {
    return {Flag("--restarts", &script.restarts,
                 "start failed ranks again from the newest checkpoint, so often after each cause without a new step",
                 whole_number(0, 1000)),
            Flag("--spares", &script.spares, "with --restarts: launchers that wait for the loss of a node",
                 whole_number(0, 1000)),
            Flag("--wait-node", &script.wait_node_s,
                 "with --restarts: max seconds to wait for a missing node (300); a node that is asked to leave then "
                 "leaves alone",
                 number(1, 1e6), {.needs = "--restarts"}),
            Flag("--drain-ends-job", &script.drain_ends_job,
                 "end the job on all nodes when one is asked to leave (SIGTERM, SIGUSR1, run.notice_file)",
                 {.needs = "--restarts"})};
}

Command run(ScriptCommand& script) {
    const auto trace = [&script](const std::string& file) { script.sets.push_back("run.trace=" + toml_string(file)); };
    const std::vector<Flag> own = {Flag("--own-set", &script.own_sets, "", {.one_each = true, .hidden = true}),
                                   Flag("--verbose", &script.verbose,
                                        "print the resolved configuration, which the run's folder has as config.toml")};
    const std::vector<Flag> traced = {
        Flag("--trace", trace,
             "write a trace of one step of all ranks to this file, for ui.perfetto.dev; run.trace_step says which",
             file_name())};
    return {
        .name = "run",
        .help = "train: start the ranks of this host and run a script on them",
        .flags = script_flags(script, "experiment, a .lua file") + own + begin_flags(script) + traced +
                 node_flags(script.nodes, script.node_rank, script.rendezvous) + restart_flags(script),
        .footer = examples({"run scripts/gpt.lua --config configs/quickstart.toml",
                            "run scripts/gpt.lua --config configs/quickstart.toml --trace step.json",
                            "run scripts/gpt.lua --config configs/four_ranks.toml --set train.steps=500",
                            "run scripts/gpt.lua --config configs/four_ranks.toml --restarts 3",
                            "run my.lua --config two.toml --nodes 2 --node-rank 0 --rendezvous n1:29500",
                            "run my.lua --config two.toml --nodes 2 --node-rank 2 --spares 1 --restarts 9 --rendezvous "
                            "n1:29500"}),
        .run = [&script] { return run_command(script); },
        .holds_signals = true,
        .may_lose_output = true};
}

Command submit(ScriptCommand& script, SubmitCommand& submit) {
    const std::vector<Flag> flags = {
        Flag("--engine", &submit.engine, "engine plugin that starts the job, as slurm; its table is [submit.ENGINE]",
             {.required = true}),
        Flag("--print", &submit.print, "print what would be handed to the engine, and hand over nothing")};
    return {"submit", "train on machines of an engine: check a script, write its job, hand it over",
            script_flags(script, "experiment, a .lua file") + flags + begin_flags(script) + restart_flags(script),
            examples({"submit scripts/gpt.lua --config cluster.toml --engine slurm --print",
                      "submit scripts/gpt.lua --config cluster.toml --engine slurm",
                      "submit my.lua --config cluster.toml --engine slurm --restarts 9 --spares 1"},
                     "[submit] of the configuration says how many nodes, ranks and GPUs, and for how long."),
            [&] { return submit_command(script, submit); }};
}

/// A command about a job that was submitted.
Command of_job(JobCommand& job, const char* name, const char* help, const std::vector<Flag>& flags,
               const std::vector<std::string>& shown, int (*act)(const JobCommand&)) {
    const std::vector<Flag> which = {
        Flag("run", &job.run, "the run's folder; with --engine the engine's name of the job",
             {.type = "RUN", .required = true}),
        Flag("--engine", &job.engine, "the job's engine, if its run's folder is not visible on this host"),
        Flag("-c,--config", &job.config, "TOML file with [submit.ENGINE]; that of the run's folder if left out"),
        Flag("-s,--set", &job.sets, "submit.ENGINE.key=value, over it; may repeat", {.one_each = true})};
    return {name, help, which + flags, examples(shown), [&job, act] { return act(job); }};
}

Command status(JobCommand& job) {
    return of_job(job, "status", "show the state of a submitted job", {},
                  {"status runs/gpt", "status --engine kubernetes gpt"}, status_command);
}

Command logs(JobCommand& job) {
    return of_job(job, "logs", "show what a submitted job's ranks print",
                  {Flag("--rank", &job.rank,
                        "print the output of this rank; if left out rank 0, with --engine what the engine shows",
                        whole_number(0, billion)),
                   Flag("-f,--follow", &job.follow, "print new output, too, until Ctrl-C")},
                  {"logs runs/gpt -f", "logs runs/gpt --rank 3"}, logs_command);
}

Command stop(JobCommand& job) {
    return of_job(job, "stop", "end a submitted job, after a save",
                  {Flag("--now", &job.now, "end it at once, and do not ask for a save first")},
                  {"stop runs/gpt", "stop runs/gpt --now"}, stop_command);
}

Command check(ScriptCommand& script) {
    std::vector<Flag> flags = {
        Flag("--dump", &script.dump, "write each program after each pass, and each plan, to this new folder"),
        Flag("--print", &script.show, "print only this of the train step: program or plan",
             one_of({"program", "plan"})),
        Flag("--program", &script.program, "with --print: program of the round to print; default: the first",
             {.needs = "--print"}),
        Flag("--rank", &script.rank, "with --print plan: of the class of this rank", whole_number(0, billion),
             {.needs = "--print"}),
    };
    return {"check", "compile and prove a script's plan, start nothing",
            script_flags(script, "experiment, a .lua file; or a dumped program, a .ir file") + flags,
            examples({"check scripts/gpt.lua --config configs/llama70b.toml",
                      "check scripts/gpt.lua --config configs/four_ranks.toml --dump passes",
                      fmt::format("check passes/gpt/{:02}-{}.ir", passes().size(), passes().back().name)}),
            [&script] { return check_command(script); }};
}

Command verify(ScriptCommand& script) {
    std::vector<Flag> flags = {
        Flag("--steps", &script.verify.steps, "steps to compare"),
        Flag("--draws", &script.verify.draws, "runs that measure how far rounding moves each value"),
        Flag("--bitwise", &script.verify.bitwise, "demand equal bits where no sum changes its order"),
        Flag("--inject", &script.injections,
             "a mistake to find: scale,rank=1,tensor=NAME,by=1.01 or unreduced,rank=1,tensor=NAME or "
             "unexchanged,rank=1,tensor=NAME",
             {.one_each = true}),
    };
    return {"verify", "run a script's first steps on one device and on its mesh, and name the first value that differs",
            script_flags(script, "experiment, a .lua file") + flags, "", [&script] { return verify_command(script); }};
}

Command sample(ScriptCommand& script) {
    SampleFlags& sample = script.sample;
    std::vector<Flag> flags = {
        Flag("-p,--prompt", &sample.prompt, "text to go on from"),
        Flag("-n,--tokens", &sample.tokens, "tokens to draw", whole_number(1, billion)),
        Flag("-t,--temperature", &sample.temperature, "0: the likeliest token", number(0, 1e6)),
        Flag("--top-k", &sample.top_k, "draw among the k likeliest, 0: all", whole_number(0, billion)),
        Flag("--seed", &sample.seed, "same seed, same text"),
    };
    return {"sample", "draw text from a run's newest checkpoint",
            script_flags(script, "the run's folder, or the script with its config") + flags,
            examples({"sample runs/quickstart --prompt \"In the beginning\" --tokens 300 --temperature 0.7"}),
            [&script] { return sample_command(script); }};
}

Command evaluate(ScriptCommand& script, EvaluateCommand& evaluate) {
    const FlagCheck some = whole_number(1, billion);
    std::vector<Flag> flags = {
        Flag("file", &evaluate.file, "a text, or a file of the model's tokens (.bin)", file_name()),
        Flag("--choices", &evaluate.choices, "lines of JSON with context, endings and label: score the endings",
             file_name()),
        Flag("--window", &evaluate.window, "tokens that the model sees at once; those of the run if left out", some),
        Flag("--stride", &evaluate.stride, "tokens from a window to the next; a whole window if left out", some),
        Flag("--step", &evaluate.step, "the checkpoint of this step, not the newest", whole_number(0, billion)),
        Flag("--delimiter", &evaluate.delimiter, "between a context and its ending; a space if left out"),
        Flag("--skip-bad", &evaluate.skip_bad, "leave out lines of --choices that cannot be scored, and count them"),
        Flag("-o,--out", &evaluate.out, "write the results to this .json file, with every log-likelihood", file_name()),
    };
    return {.name = "evaluate",
            .help = "perplexity of a text, accuracy on choices: of a run or a folder",
            .flags = script_flags(script, "the run's folder, a published model's, or a script with its config") + flags,
            .footer = examples({"evaluate runs/quickstart data/bible.txt --stride 64",
                                "evaluate FOLDER text.txt --window 512 --stride 256 --set mesh.tp=2",
                                "evaluate runs/quickstart --choices questions.jsonl -o scores.json"}),
            .run = [&] { return evaluate_command(script, evaluate); },
            .holds_signals = true};
}

Command draw(ScriptCommand& script, DrawCommand& draw) {
    std::vector<Flag> flags = {
        Flag("-o,--out", &draw.out, "write FILE.svg instead of text", file_name()),
        Flag("--schedule", &draw.schedule, "instead of a script: 1f1b, my.lua, or a file of F0 B0 ..."),
        Flag("--stages", &draw.stages, "with --schedule: ranks of the pipeline", in_range(0, 1 << 20)),
        Flag("--micro", &draw.micro, "with --schedule: micro-batches", whole_number(0, billion)),
        Flag("--chunks", &draw.chunks, "with --schedule: stages of each rank; 0: as many as it needs",
             in_range(0, 1024)),
        Flag("--program", &draw.program, "program of the round to draw; default: the first"),
        Flag("--by", &draw.by, "length of a fragment: unit or flops", one_of({"unit", "flops"})),
        Flag("--width", &draw.width, "columns of the text; 0: the terminal's", whole_number(0, 1'000'000)),
        Flag("--colour", &draw.colour, "auto, always or never", one_of({"auto", "always", "never"})),
    };
    return {"draw", "show a plan: timeline, memory and layouts, as text or SVG",
            script_flags(script, "experiment, a .lua file", false) + flags,
            examples({"draw scripts/gpt.lua --config configs/quickstart.toml",
                      "draw scripts/gpt.lua --config configs/quickstart.toml --set train.microbatches=4 -o gpt.svg",
                      "draw --schedule 1f1b --stages 4 --micro 8", "draw --schedule my_order.txt -o order.svg"}),
            [&] { return draw_command(script, draw); }};
}

Command tokenize(TokenizeCommand& tokenize) {
    std::vector<Flag> flags = {
        Flag("files", &tokenize.files, "texts, - for standard input; without -o a text and a token file",
             {.required = true}),
        Flag("-o", &tokenize.out, "write NAME.bin and NAME.idx, Megatron's pair", {.type = "NAME"}),
        Flag("--tokenizer", &tokenize.tokenizer, "folder with a tokenizer.json; without one a byte is a token",
             {.type = "FOLDER"}),
        Flag("--field", &tokenize.field, "files are lines of JSON, whose texts have this key", {.type = "KEY"}),
        Flag("--prompt", &tokenize.prompt, "lines of JSON: key of what is given", {.type = "KEY"}),
        Flag("--completion", &tokenize.completion, "and of what is learned", {.type = "KEY"}),
        Flag("--end", &tokenize.end, "token between documents, instead of the folder's", {.type = "TOKEN"}),
        Flag("--skip-bad", &tokenize.skip_bad, "with -o: leave out documents that cannot be read, and count them"),
        Flag("--threads", &tokenize.threads, "0: all processors", in_range(0, 1024)),
        Flag("--token-bytes", &tokenize.token_bytes, "2 or 4, without -o", one_number_of({2, 4})),
    };
    return {"tokenize", "write token files from text", flags, "", [&] { return tokenize_command(tokenize); }};
}

Command export_model(ExportCommand& exported) {
    std::vector<Flag> flags = {
        Flag("run", &exported.run, "folder of a run, as runs/gpt", {.type = "RUN", .required = true}),
        Flag("folder", &exported.folder, "folder to write, new or empty", file_name(),
             {.type = "FOLDER", .required = true}),
        Flag("--step", &exported.step, "of this checkpoint; without it the newest good one",
             whole_number(0, Manifest::last_step)),
        Flag("--dtype", &exported.dtype, "type of the tensors; without it as config.json says, else f32",
             one_of({"f32", "bf16", "f16"})),
        Flag("--shard-gb", &exported.file_gb, "max data of a file, in 10^9 bytes", number(1e-6, 1e6)),
        Flag("--raw", &exported.raw, "all params under their own names, without config.json"),
    };
    return {
        .name = "export",
        .help = "write a checkpoint as a published model",
        .flags = flags,
        .footer = examples({"export runs/hf exported                      # as transformers' from_pretrained reads it",
                            "export runs/gpt exported --step 300 --dtype bf16",
                            "export runs/mlp exported --raw               # a model that nobody publishes"}),
        .run = [&] { return export_command(exported); },
        .holds_signals = true};
}

Command data(ScriptCommand& script, DataCommand& data) {
    std::vector<Flag> flags = {
        Flag("--step", &data.step, "of which step, from 1", whole_number(1, Manifest::last_step), {.required = true}),
        Flag("--ids", &data.ids, "ids, although there is a text for them"),
    };
    return {
        "data", "print the samples that a step of a run is made of",
        script_flags(script, "the folder of a run, or an experiment, a .lua file") + flags,
        examples({"data runs/quickstart --step 12", "data scripts/gpt.lua --config configs/quickstart.toml --step 12"},
                 "The order of samples is a function of the run's seed: nothing was logged for this, and steps that "
                 "no run has\nreached yet are printed, too."),
        [&] { return data_command(script, data); }};
}

std::vector<Flag> place_flags(SimulateCommand& simulate) {
    return {
        Flag("--cluster", &simulate.cluster, "TOML file of the cluster; see configs/clusters/", file_name()),
        Flag("--cluster-nodes", &simulate.cluster_nodes, "so many nodes, instead of what the file says",
             in_range(1, 1'000'000), {.needs = "--cluster"}),
        Flag("--software", &simulate.software,
             "training software to predict: a name in configs/software, such as megatron, nemo, torchtitan or "
             "deepspeed, or a path that ends in .toml; default orrery",
             {.needs = "--cluster"}),
        Flag("--tp-chunks", &simulate.tp_chunks,
             "what if collectives of tp ran in so many chunks beside their products; `run` cannot do that",
             in_range(2, 64), {.needs = "--cluster"}),
        Flag("--imbalance", &simulate.imbalance,
             "what if experts of the busiest rank had so many times the mean load; if left out, all slots are full",
             number(1, 1e6)),
        Flag("--table", &simulate.tables,
             "cost table of this machine, written by calibrate or a run; with --cluster, of one of its accelerators: "
             "kernels take the measured times; may repeat",
             file_name(), {.one_each = true}),
        Flag("--tokens", &simulate.tokens,
             "predict steps and days of training on so many tokens, as in 15e12, and the price if the cluster's file "
             "has price_per_hour",
             number(1, 1e18)),
        Flag("--link-gbit", &simulate.link_gbit, "what if each rank had a link of so many Gbit/s each way",
             number(1e-6, 1e6), {.excludes = "--cluster"}),
        Flag("--link-us", &simulate.link_us, "and its messages took so long to come, in microseconds", number(0, 1e9),
             {.excludes = "--cluster"}),
        Flag("--processors", &simulate.processors, "what if the host had so many processors",
             whole_number(1, 1'000'000), {.excludes = "--cluster"}),
    };
}

Command simulate(ScriptCommand& script, SimulateCommand& simulate) {
    std::vector<Flag> flags = {
        Flag("--mapping", &simulate.mapping, "axes from the one inside a node outwards, as in tp,dp,pp",
             {.needs = "--cluster", .commas = true}),
        Flag("--slow", &simulate.slow, "RANK:TIMES, a rank whose kernels take so many times as long; may repeat",
             {.one_each = true}),
        Flag("--jitter", &simulate.jitter, "kernels take up to this part longer, by chance", number(0, 10)),
        Flag("--restart-s", &simulate.restart_s, "seconds from a failure until training goes on", number(0, 1e9),
             {.needs = "--cluster"}),
        Flag("-o,--out", &simulate.out, "draw the timeline to this .svg file", file_name()),
        Flag("--trace", &simulate.trace, "write the step of every rank for Perfetto to this .json file", file_name()),
        Flag("--json", &simulate.json, "print the prediction as JSON"),
    };
    return {"simulate", "predict a step on a cluster that is not here, or on this one; start nothing",
            script_flags(script, "experiment, a .lua file; on this machine also a run's folder") +
                place_flags(simulate) + flags,
            examples({"simulate scripts/gpt.lua --config configs/llama405b.toml --cluster configs/clusters/h100.toml "
                      "--cluster-nodes 2048",
                      "simulate my.lua --config mine.toml --cluster configs/clusters/b300.toml -o step.svg",
                      "simulate runs/gpt --set run.transport=gloo --link-gbit 1"}),
            [&] { return simulate_command(script, simulate); }};
}

Command plan(ScriptCommand& script, PlanCommand& plan) {
    const FlagCheck some = in_range(1, 1'000'000);
    std::vector<Flag> flags = {
        Flag("--ranks", &plan.ranks,
             "so many of the cluster's accelerators, or ranks of this machine; if left out all of them, or one a "
             "processor, those that the run of a folder had",
             some),
        Flag("--most-tp", &plan.most_tp,
             "the largest tp that is searched; a node's accelerators, or all ranks here, if left out", some),
        Flag("--most-pp", &plan.most_pp, "the largest pp that is searched; 64 if left out", some),
        Flag(
            "--most-cp", &plan.most_cp,
            "the largest cp that is searched; if left out, so that a rank has 4,096 tokens of a row, or all ranks here",
            some),
        Flag("--max-ep", &plan.most_ep,
             "the largest ep that is searched, of sizes that divide the experts; all experts, if left out", some),
        Flag("--jobs", &plan.jobs, "choices that are looked at at the same time; one a processor if left out",
             in_range(1, 1024)),
        Flag("--seconds", &plan.seconds,
             "stop the search after so many seconds and print what it found; Ctrl-C (SIGINT) and SIGTERM also do this",
             number(0.001, 1e9)),
        Flag("-o,--out", &plan.simulate.out, "draw time against memory of all choices to this .svg file", file_name()),
        Flag("--keep", &plan.keep,
             "stays as configured: mesh, samples, zero, schedule, sequence, recompute, mapping, context",
             {.commas = true}),
        Flag("--json", &plan.simulate.json, "print every choice that runs, and its settings, as JSON"),
    };
    return {"plan", "search the fastest mesh and strategies for a script, on a cluster or on this machine",
            script_flags(script, "experiment, a .lua file; on this machine also a run's folder") +
                place_flags(plan.simulate) + flags,
            examples({"plan scripts/gpt.lua --config configs/llama70b.toml --cluster configs/clusters/h100.toml",
                      "plan my.lua --cluster configs/clusters/b300.toml --keep zero,recompute",
                      "plan scripts/gpt.lua --config configs/two_ranks.toml --ranks 2 --table here.json"}),
            [&] { return plan_command(script, plan); }};
}

Command init(InitCommand& command) {
    std::vector<Flag> flags = {
        Flag("name", &command.folder, "folder to create; its last part is the experiment's name", {.required = true}),
        Flag("--data", &command.data, "text to train on; the manual's pages if left out", file_name()),
    };
    return {"init", "write a folder with an experiment that runs: script, configurations, README", flags,
            examples({"init my_model", "init my_model --data corpus.txt"}), [&] { return init_command(command); }};
}

Command new_plugin(NewPluginCommand& command) {
    std::vector<Flag> flags = {
        Flag("kind", &command.kind,
             "strategy, strategy-lua, codec, codec-lua, decomposition, store, data, op, device ...",
             {.required = true}),
        Flag("name", &command.name, "small letters, digits and _", {.required = true}),
        Flag("folder", &command.folder, "where to write it; a folder of that name if left out"),
    };
    return {"new-plugin", "write a folder with a plugin that builds, loads and has a test", flags,
            examples({"new-plugin strategy rows", "new-plugin op snake", "new-plugin store tape ~/tape"}),
            [&] { return new_plugin_command(command); }};
}

Command products(ProductsCommand& products) {
    std::vector<Flag> flags = {
        Flag("--device", &products.device, "device plugin"),
        Flag("--threads", &products.rank_threads, "threads of a rank; 0: the processors allowed", in_range(0, 1024)),
        Flag("--types", &products.types, "types of operands: f32, bf16, f16"),
        Flag("--try", &products.tried, "internal: times the configured kind for one type in this process"),
        Flag("-s,--set", &products.sets, "table.key=value of [device.NAME] or [plugins]; may repeat",
             {.one_each = true}),
    };
    return {"products", "time matrix products in each kind that a device has, and say which to set", flags,
            examples({"products --threads 1 --types f32,bf16"}), [&] { return products_command(products); }};
}

Command calibrate(ScriptCommand& script, CalibrateCommand& command) {
    const auto set = [](std::optional<std::string>& to) { return [&to](const std::string& text) { to = text; }; };
    std::vector<Flag> flags = {
        Flag("-o,--out", set(command.out), "JSON file; standard output if left out"),
        Flag("--keep", &command.keep,
             "save the rows for this machine in the user's cache folder, over older ones: runs are compared with "
             "them"),
        Flag("--refit", &command.refit,
             "measure nothing: runs' folders whose costs.json go into the table of -o or --keep"),
        Flag("--threads", &command.rank_threads, "threads of a rank; 0: as `run` would have, or all",
             in_range(0, 1024)),
        Flag("--transports", set(command.transports),
             "transport plugins: shm,gloo; none: no communication; left out: those of the script, or all"),
        Flag("--ranks", &command.ranks, "how many ranks communicate: 2,4; left out: as the script, or 2"),
        Flag("--seconds", &command.seconds, "time to measure for, in all", number(0.01, 86400)),
        Flag("--dtype", &command.dtype, "of the grid: f32, bf16 or f16", one_of({"f32", "bf16", "f16"})),
        Flag("--bytes", &command.bytes, "sizes of messages; left out: 1 KiB to 64 MiB", in_range(4, int64_t{1} << 32),
             {.one_each = true, .commas = true}),
        Flag("--wire", &command.wire, "", {.hidden = true}),
        Flag("--wire-ranks", &command.wire_ranks, "", {.hidden = true}),
        Flag("--wire-seconds", &command.wire_seconds, "", {.hidden = true}),
    };
    return {"calibrate", "measure this machine's kernels by shape and transports by size, as a table for `simulate`",
            script_flags(script, "experiment, a .lua file: exactly its plan's kernels; none: a grid", false) + flags,
            examples({"calibrate --threads 1 --transports shm,gloo --ranks 2,4 -o here.json",
                      "calibrate scripts/gpt.lua --config configs/two_ranks.toml -o gpt.json",
                      "calibrate --threads 1 --keep", "calibrate --refit runs/gpt runs/mlp --keep"}),
            [&] { return calibrate_command(script, command); }};
}

Command bench(BenchCommand& command) {
    CollectiveBench& bench = command.bench;
    std::vector<Flag> sizes = {
        Flag("collective", &bench.collective, "which one", one_of(bench_collective_names()), {.required = true}),
        Flag("-b,--begin", &command.begin, "smallest size, as 1K or 16M; 0: empty ones first"),
        Flag("-e,--end", &command.end, "largest size"),
        Flag("-f,--factor", &bench.factor, "each size is this many times the last", in_range(2, 1024)),
        Flag("-n,--iters", &bench.iterations, "iterations; 0 chooses by size"),
        Flag("-w,--warmup", &bench.warmup, "iterations before timing"),
        Flag("-c,--check", &bench.check, "compare the results", {.valued = true}),
        Flag("-a,--average", &command.average, "whose time: 0 rank 0, 1 the mean, 2 the fastest, 3 the slowest",
             in_range(0, 3)),
        Flag("--transport", &bench.transport, "transport plugin"),
        Flag("--ranks", &bench.ranks,
             "processes on all hosts together; 2, or those that srun, mpirun or torchrun has started"),
    };
    std::vector<Flag> contents = {
        Flag("--dtype", &command.dtype, "f32, bf16, f16, f64, i32, i8 ..."),
        Flag("--op", &command.op, "sum, max or min", one_of(bench_op_names())),
        Flag("--config", &command.config, "TOML file with [transport.NAME]"),
        Flag("-s,--set", &command.sets, "table.key=value", {.one_each = true}),
    };
    return {"bench", "time a collective between processes, in nccl-tests' columns",
            sizes + node_flags(bench.nodes, bench.node_rank, bench.rendezvous) + contents,
            examples({"bench all_reduce --transport shm --ranks 2 -b 1K -e 256M",
                      "bench send_receive --transport gloo --dtype bf16",
                      "bench all_reduce --transport gloo --ranks 8 --nodes 2 --node-rank 0 --rendezvous n1:1234"}),
            [&] { return bench_command(command); }};
}

Command preflight(PreflightCommand& command) {
    std::vector<Flag> places = {
        Flag("-c,--config", &command.config, "TOML file, as of a run"),
        Flag("-s,--set", &command.sets, "table.key=value, over the config file; may repeat", {.one_each = true}),
        Flag("--device", &command.device, "device plugin, over run.device"),
        Flag("--transport", &command.transport, "transport plugin, over run.transport"),
        Flag("--folder", &command.folder, "where storage is looked at, over run.folder; else ."),
        Flag("--ranks", &command.ranks, "processes on all hosts together; the mesh's, a launcher's, or 2 if left out"),
    };
    std::vector<Flag> figures = {
        Flag("--cluster", &command.cluster, "TOML file of a cluster, configs/clusters, that says what the machines do"),
        Flag("--expect", &command.expect,
             "KEY=NUMBER that the machines are said to do, over --cluster; may repeat: " + join(expected_names(), ", "),
             {.one_each = true}),
        Flag("--slow", &command.slow,
             "of the others' median: less is too slow; 0.6 on processors (0.3 where ranks share them), else 0.7"),
        Flag("--quick", &command.quick, "shorter pieces: a few seconds for a few ranks"),
        Flag("--json", &command.json, "one JSON object instead of tables"),
    };
    return {"preflight", "measure the machines of a job before a run: devices, memory, storage, links, collectives",
            places + node_flags(command.nodes, command.node_rank, command.rendezvous) + figures,
            examples({"preflight --quick --ranks 2 --transport shm",
                      "preflight --transport ucx --ranks 16 --nodes 2 --node-rank 0 --rendezvous n1:29500"},
                     "Ends with 0 when all is fit, 1 when something is not, 2 for a mistake of the command.") +
                "\n  srun -N 16 --ntasks-per-node 8 orrery preflight --device cuda --transport nccl --cluster "
                "configs/clusters/h100.toml",
            [&] { return preflight_command(command); }};
}

Command scale(ScriptCommand& script, ScaleCommand& scale) {
    std::vector<Flag> flags = {
        Flag("--ranks", &scale.ranks, "sizes, ascending, as 1,2,4,8"),
        Flag("--axis", &scale.axis, "axis of the mesh that grows; the others stay"),
        Flag("--strong", &scale.strong, "the same batch at every size; else it grows with the ranks"),
        Flag("--steps", &scale.steps, "of each run; the first quarter is not counted"),
        Flag("--rounds", &scale.rounds, "runs of each size, in turn; the one in the middle counts", in_range(1, 99)),
        Flag("--target", &scale.target, "efficiency that is wanted of the last size"),
        Flag("-o,--out", &scale.out, "write a picture, too: FILE.svg", file_name()),
        Flag("--limit", &scale.limit_s, "seconds that one run may take", in_range(1, 1 << 20)),
        Flag("--simulate", &scale.simulate, "predict each size; nothing runs, unless --measure asks for it"),
        Flag("--measure", &scale.measure, "with --simulate: run the sizes, too, and print both",
             {.needs = "--simulate"}),
        Flag("--cluster", &scale.how.cluster, "with --simulate: on this cluster; see configs/clusters/", file_name(),
             {.needs = "--simulate"}),
        Flag("--cluster-nodes", &scale.how.cluster_nodes, "so many nodes, instead of what the file says",
             whole_number(1, 1'000'000), {.needs = "--cluster"}),
        Flag("--table", &scale.how.tables,
             "with --simulate: measured costs of this machine, as calibrate or a run writes; may repeat", file_name(),
             {.needs = "--simulate", .excludes = "--cluster", .one_each = true}),
    };
    return {
        "scale", "run a script on several numbers of ranks and compare them",
        script_flags(script, "experiment, a .lua file") + flags,
        examples({"scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2",
                  "scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2,4 --strong -o scale.svg",
                  "scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2,4 --simulate --table here.json",
                  "scale my.lua --config mine.toml --ranks 8,64,512 --simulate --cluster configs/clusters/h100.toml"},
                 "Ends with 0 when the last size reaches the target, 1 when it does not, 2 for a mistake of the "
                 "command."),
        [&] { return scale_command(script, scale); }};
}

}  // namespace

std::vector<Command> command_table(Asked& asked) {
    ScriptCommand& script = asked.script;
    std::vector<std::string>& folders = asked.plugin_folders;
    return {init(asked.init),
            run(script),
            submit(script, asked.submit),
            status(asked.job),
            logs(asked.job),
            stop(asked.job),
            check(script),
            verify(script),
            sample(script),
            evaluate(script, asked.evaluate),
            draw(script, asked.draw),
            tokenize(asked.tokenize),
            export_model(asked.exported),
            checkpoints_command(asked.checkpoints),
            data(script, asked.data),
            {"plugins",
             "list the plugins, and why one cannot load",
             {Flag("folder", &folders, "further folders to look in")},
             "",
             [&folders] { return plugins_command(folders); }},
            simulate(script, asked.simulate),
            plan(script, asked.plan),
            new_plugin(asked.new_plugin),
            products(asked.products),
            calibrate(script, asked.calibrate),
            bench(asked.bench),
            preflight(asked.preflight),
            scale(script, asked.scale)};
}

}  // namespace orrery
