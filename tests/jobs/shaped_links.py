"""Runs over links of a stated rate against what `orrery simulate --link-gbit` says of them: see shaped_links.sh."""
import json
import os
import statistics
import sys

from shaped_hosts import Hosts
from timed_runs import PLAIN, Runs, finish, median_of

program, root, table, switch, *names = sys.argv[1:]
hosts = Hosts(program, f"{root}/scripts/gpt.lua", switch, names)
MEDIAN, WORST = 0.10, 0.25  # bars
ROUNDS = 3 if table else 1
STEPS = {"1gbit": 16, "100mbit": 8} if table else {"1gbit": 5}
GBIT = {"1gbit": 1.0, "100mbit": 0.1}
CONFIGURATIONS = [("dp2", {"mesh.dp": 2}), ("dp2 zero1", {"mesh.dp": 2, "script.zero": 1}),
                  ("tp2", {"mesh.tp": 2}),
                  ("pp2 1f1b", {"mesh.pp": 2, "script.pipeline": "1f1b", "train.microbatches": 8}),
                  ("pp2 gpipe", {"mesh.pp": 2, "script.pipeline": "gpipe", "train.microbatches": 8}),
                  ("dp2 llama", {"mesh.dp": 2, "script.model": "llama"})]
runs = Runs(program, root)
os.environ["UCX_TLS"] = "tcp"  # also where it is calibrated: two namespaces of one host share memory


def settings(transport, rate, more):
    return {**PLAIN, "run.transport": transport, "data.tokens_per_sequence": 64, "train.sequences_per_step": 16,
            "train.steps": STEPS[rate], "script.layers": 4, "script.embed": 128, "script.heads": 4, **more}


def run(sets, folder):
    hosts.run(sets, folder)
    return median_of(folder, sets)


def main():
    transports = ["gloo", "ucx"] if table else ["gloo"]
    costs = os.environ.get("SHAPED_LINKS_TABLE", "fit.json")
    if costs == "fit.json":
        runs.call(["calibrate", "--threads", "1", "--transports", ",".join(transports), "--ranks", "2", "--seconds",
                   "80" if table else "3", "-o", costs])
        # Kernels beside another rank, which have nothing to do with links.
        local = [(name, {**settings("shm", "1gbit", more), "train.steps": 16}) for name, more in CONFIGURATIONS]
        beside = runs.interleaved(local if table else local[:1], 1, "runs/local")
        runs.call(["calibrate", "--refit", *[of_name[0][1] for of_name in beside.values()], "-o", costs])
    asked = [(f"{name} {transport} {rate}", settings(transport, rate, more), GBIT[rate], rate) for rate in STEPS
             for transport in transports for name, more in (CONFIGURATIONS if table else CONFIGURATIONS[:1])]
    found = {name: [] for name, *_ in asked}
    for turn in range(ROUNDS):
        for name, sets, _, rate in asked:
            hosts.shape(1000 * GBIT[rate])
            found[name].append(run(sets, f"runs/{name.replace(' ', '-')}-{turn}"))
            print(f"round {turn + 1} of {ROUNDS}: {name}: {1e3 * found[name][-1]:.2f} ms", file=sys.stderr, flush=True)
    lines = [f"two hosts, a rank each, {os.cpu_count()} processors; the median of {ROUNDS} interleaved runs, ms a step",
             f"{'':26} {'predicted':>10} {'measured':>10} {'off':>8}"]
    offs = []
    for name, sets, gbit, _ in asked:
        told = json.loads(runs.of_script("simulate", sets, "--table", costs, "--link-gbit", str(gbit), "--json"))
        measured = statistics.median(found[name])
        offs.append(told["step_s"] / measured - 1)
        lines.append(f"{name:26} {1e3 * told['step_s']:10.2f} {1e3 * measured:10.2f} {100 * offs[-1]:+7.1f}%")
    median, worst = statistics.median(map(abs, offs)), max(map(abs, offs))
    missed = median > MEDIAN or worst > WORST
    lines.append(f"{len(offs)}: median {100 * median:.1f} %, worst {100 * worst:.1f} % (bars {100 * MEDIAN:.0f} and "
                 f"{100 * WORST:.0f} %: {'missed' if missed else 'met'})")
    finish(lines, table, missed)


main()
