#!/usr/bin/env python3
"""What methods over islands and codecs cost in learning: the final loss on held-out data, against data parallelism.

    nice -n 19 python3 bench/methods/compare.py [--data data/bible.txt] [--folder runs/methods] [--only "ROW|ROW"]
        [--all] [--set table.key=value ...]

A byte-level GPT of 4 x 128 over four ranks that are threads: AdamW, 600 steps of 16 x 128 tokens, the same initial
values and samples in each row. A finished run is saved in --folder under the digest of its configuration, its data and
its plans: a second call runs what is missing, and resumes what was interrupted from its last checkpoint. Where a loss
is less than 2 % of its reference away from a bar, both are the mean of three seeds. --all: also rows without a bar, for
each other codec with AdamW, SGD and diloco's outer step. Prints the table after each run.
"""
import argparse
import collections
import glob
import hashlib
import json
import os
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = """run.transport=threads run.threads_per_rank=1 train.steps=600 train.sequences_per_step=16
    train.evaluate_every=600 train.evaluate_batches=1000 data.tokens_per_sequence=128 data.validation=0.02
    script.layers=4 script.embed=128 script.heads=4 script.lr=1e-3 checkpoint.every_steps=100"""

# Bars: (other row, limit): the loss is at most 1 + limit times that of the other row. None: both are compared. BEYOND:
# it is above that of the other row by more than the losses of three seeds of either spread.
BEYOND = "seeds"
SGD = "mesh.dp=4 script.sgd=true script.lr=0.1 script.decay=0"
ISLANDS = "mesh.site=2 mesh.dp=2 script.sync_every=25"
FEEDBACK = "script.feedback=true"
Row = collections.namedtuple("Row", "name settings bars", defaults=((),))
ROWS = [
    Row("plain", "mesh.dp=4"),
    Row("one island of 2 alone", "mesh.dp=2 train.sequences_per_step=8"),
    Row("one island of 4 alone", "train.sequences_per_step=4"),
    Row("diloco, 2 islands, H 25", f"{ISLANDS} script.method=diloco",
        (("plain", 0.02), ("one island of 2 alone", -0.03))),
    Row("diloco, 4 islands, H 25", "mesh.site=4 script.method=diloco script.sync_every=25",
        (("plain", 0.04), ("one island of 4 alone", -0.03))),
    Row("gossip, ring of 4, H 1", "mesh.site=4 script.method=gossip script.sync_every=1", (("plain", 0.05),)),
    Row("int8", "mesh.dp=4 script.codec=int8", (("plain", 0.005),)),
    Row("bf16", "mesh.dp=4 script.codec=bf16", (("plain", 0.005),)),
    Row("f8e4m3", "mesh.dp=4 script.codec=f8e4m3", (("plain", 0.005),)),
    Row("int4, feedback", f"mesh.dp=4 script.codec=int4 {FEEDBACK}", (("plain", 0.02),)),
    Row("top_k/10, feedback", f"mesh.dp=4 script.codec=top_k/10 {FEEDBACK}", (("plain", 0.03),)),
    # Gradients come in bursts, and AdamW divides by their root mean square.
    Row("top_k/10, feedback, lr x 3", f"mesh.dp=4 script.codec=top_k/10 {FEEDBACK} script.lr=3e-3", (("plain", None),)),
    Row("powersgd/16, feedback", f"mesh.dp=4 script.codec=powersgd/16 {FEEDBACK}", (("plain", 0.02),)),
    Row("powersgd/4, feedback", f"mesh.dp=4 script.codec=powersgd/4 {FEEDBACK}", (("plain", 0.05),)),
    Row("SGD", SGD),
    Row("SGD, sign, feedback", f"{SGD} script.codec=sign {FEEDBACK}", (("SGD", 0.03),)),
    Row("SGD, sign", f"{SGD} script.codec=sign", (("SGD, sign, feedback", BEYOND),)),
    Row("SGD, top_k/100, feedback", f"{SGD} script.codec=top_k/100 {FEEDBACK}", (("SGD", 0.03),)),
    Row("SGD, top_k/100", f"{SGD} script.codec=top_k/100", (("SGD, top_k/100, feedback", BEYOND),)),
    # A rate of 0.1 is near the largest at which SGD trains at all.
    Row("SGD, lr 0.03", f"{SGD} script.lr=0.03"),
    Row("SGD, sign, feedback, lr 0.03", f"{SGD} script.lr=0.03 script.codec=sign {FEEDBACK}", (("SGD, lr 0.03", None),)),
    Row("SGD, sign, lr 0.03", f"{SGD} script.lr=0.03 script.codec=sign", (("SGD, lr 0.03", None),)),
    Row("SGD, top_k/100, feedback, lr 0.03", f"{SGD} script.lr=0.03 script.codec=top_k/100 {FEEDBACK}",
        (("SGD, lr 0.03", None),)),
    Row("SGD, top_k/100, lr 0.03", f"{SGD} script.lr=0.03 script.codec=top_k/100", (("SGD, lr 0.03", None),)),
    Row("streaming, int4", f"{ISLANDS} script.method=streaming script.islands_codec=int4",
        (("diloco, 2 islands, H 25", 0.01),)),
    Row("local_sgd, 4 islands, H 25", "mesh.site=4 script.method=local_sgd script.sync_every=25", (("plain", None),)),
    # An island's batch is 1/n of the step's: its gradients have n times the variance, by whose root AdamW divides.
    Row("gossip, lr x 2", "mesh.site=4 script.method=gossip script.sync_every=1 script.lr=2e-3", (("plain", None),)),
    Row("local_sgd, lr x 2", "mesh.site=4 script.method=local_sgd script.sync_every=25 script.lr=2e-3",
        (("plain", None),)),
    Row("diloco, 4 islands, lr x 2", "mesh.site=4 script.method=diloco script.sync_every=25 script.lr=2e-3",
        (("plain", None),)),
    Row("diloco, 2 islands, lr x 1.4", "mesh.site=2 mesh.dp=2 script.method=diloco script.sync_every=25 script.lr=1.4e-3",
        (("plain", None),)),
]
# --all: pairs of a codec and an optimizer that have no row above. What a codec leaves out much of, also with feedback.
CODECS = ["bf16", "f8e4m3", "f8e5m2", "int8", "int4", "sign", "top_k/10", "top_k/100", "powersgd/16", "powersgd/4"]
PAIRS = [Row("streaming", f"{ISLANDS} script.method=streaming", (("diloco, 2 islands, H 25", None),))]
for codec in CODECS:
    for more in ("", ", feedback") if codec not in CODECS[:4] else ("",):
        feedback = FEEDBACK if more else ""
        PAIRS.append(Row(codec + more, f"mesh.dp=4 script.codec={codec} {feedback}", (("plain", None),)))
        PAIRS.append(Row(f"SGD, {codec}{more}", f"{SGD} script.codec={codec} {feedback}", (("SGD", None),)))
    if codec.startswith("powersgd"):  # refused: it keeps a state for each gradient
        continue
    PAIRS.append(Row(f"diloco, {codec}", f"{ISLANDS} script.method=diloco script.islands_codec={codec}",
        (("diloco, 2 islands, H 25", None),)))
# Of those, what a codec leaves out much of; the last is SparseLoCo's.
for codec in ["int4", "sign", "top_k/10", "top_k/100", "top_k/64+int2"]:
    PAIRS.append(Row(f"diloco, {codec}, feedback", f"{ISLANDS} script.method=diloco script.islands_codec={codec} "
        "script.islands_feedback=true", (("diloco, 2 islands, H 25", None),)))
PAIRS = [row for row in PAIRS if row.name not in {row.name for row in ROWS}]
SEEDS, NEAR = (1, 2, 3), 0.02
UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def orrery(command, row, seed, options, *more):
    """Runs `orrery COMMAND` of a row. Returns what it prints; raises if it fails."""
    settings = [*BASE.split(), f"data.path={options.data}", *row.settings.split(), f"run.seed={seed}", *options.set]
    call = [options.orrery, command, "scripts/gpt.lua"]
    for setting in dict(s.split("=", 1) for s in settings).items():
        call += ["--set", "=".join(setting)]
    done = subprocess.run(call + list(more), capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(call)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, settings


def checked(row, options):
    """The digest of a row without its seed, and the bytes that a rank sends per step."""
    with tempfile.TemporaryDirectory() as folder:
        text, settings = orrery("check", row, 0, options, "--dump", f"{folder}/passes")
        settings = [setting for setting in settings if not setting.startswith("data.path=")]  # its bytes count
        digest = hashlib.sha256(json.dumps(settings).encode())
        for path in [os.path.join(ROOT, options.data), *sorted(glob.glob(f"{folder}/passes/*/*.plan"))]:
            with open(path, "rb") as file:
                digest.update(file.read())
    sent = re.findall(r"sends ([0-9.]+) (\w+) per step on average", text)
    sent = sent or re.findall(r"^  \w+ over .* a step, ([0-9.]+) (\w+) sent", text, re.M)
    return digest.hexdigest()[:16], sum(float(number) * UNITS[unit] for number, unit in sent)


def measured(row, digest, seed, options):
    """The final loss of a run, which is made if it is not there yet."""
    folder = f"{options.folder}/{digest}-{seed}"
    if not os.path.exists(f"{folder}/done.json"):
        print(f"{row.name}, seed {seed}: {folder}", flush=True)
        orrery("run", row, seed, options, "--set", f"run.folder={folder}")
        with open(f"{folder}/metrics.jsonl") as file:
            lines = [json.loads(line) for line in file]
        last = [line for line in lines if "eval_loss" in line][-1]
        with open(f"{folder}/done.json.new", "w") as file:
            json.dump({"row": row.name, "step": last["step"], "eval_loss": last["eval_loss"]}, file)
        os.rename(f"{folder}/done.json.new", f"{folder}/done.json")
    with open(f"{folder}/done.json") as file:
        return json.load(file)["eval_loss"]


def table(rows, losses, sent):
    def mean(name, seeds):
        return statistics.mean(losses[name][seed] for seed in seeds)

    print("\n| row | loss | seeds | sent per step and rank | against | bar | measured | holds |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        if not losses[row.name]:
            continue
        size = f"{sent[row.name] / 1024**2:.2f} MiB"
        head = f"| {row.name} | {mean(row.name, losses[row.name]):.4f} | {len(losses[row.name])} | {size} |"
        for other, limit in row.bars:
            both = sorted(losses[row.name].keys() & losses.get(other, {}).keys())
            if not both:
                continue
            away = mean(row.name, both) / mean(other, both) - 1
            if limit == BEYOND:
                seeds = [[losses[name][seed] for seed in both] for name in (row.name, other)]
                limit = max(max(all) - min(all) for all in seeds) / mean(other, both)
                holds = "" if len(both) == 1 else "yes" if away > limit else "NO"
                verdict = f"> {limit:+.1%} | {away:+.2%} | {holds}"
            elif limit:
                verdict = f"{limit:+.1%} | {away:+.2%} | {'yes' if away <= limit else 'NO'}"
            else:
                verdict = f"| {away:+.2%} |"
            print(f"{head} {other} | {verdict} |")
            head = "| | | | |"
        if head[2] != "|":
            print(f"{head} | | | |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="data/bible.txt", help="made by scripts/quickstart")
    parser.add_argument("--folder", default=f"{ROOT}/runs/methods")
    parser.add_argument("--orrery", default=f"{ROOT}/build/orrery")
    parser.add_argument("--only", default="", help="rows, separated by |, and those that they are compared with")
    parser.add_argument("--all", action="store_true", help="also rows without a bar")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every row")
    options = parser.parse_args()
    only = [name for name in options.only.split("|") if name]
    while more := {other for row in ROWS + PAIRS if row.name in only for other, _ in row.bars} - set(only):
        only += more
    rows = [row for row in ROWS + (PAIRS if options.all or only else []) if not only or row.name in only]
    losses, found = {row.name: {} for row in rows}, {row.name: checked(row, options) for row in rows}
    sent = {name: size for name, (_, size) in found.items()}

    def run(row, seed):
        if seed not in losses[row.name]:
            losses[row.name][seed] = measured(row, found[row.name][0], seed, options)
            table(rows, losses, sent)

    for row in rows:
        run(row, SEEDS[0])
    by_name = {row.name: row for row in rows}
    for row in rows:
        for other, limit in row.bars:
            one = {name: losses[name][SEEDS[0]] for name in (row.name, other)}
            if limit == BEYOND or (limit and abs(one[row.name] / one[other] - 1 - limit) < NEAR):
                for seed in SEEDS[1:]:
                    run(by_name[other], seed)
                    run(row, seed)


main()
