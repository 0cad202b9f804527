"""Runs over links of a stated rate against what `orrery simulate --link-gbit` says of them: see shaped_links.sh."""
import json
import os
import statistics
import subprocess
import sys

from timed_runs import PLAIN, Runs, finish, flags, median_of

program, root, table, switch, *hosts = sys.argv[1:]
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


# Bytes of the largest packet, and of tbf's burst: what is larger than the burst is cut once more, which takes the
# processors, and what the burst holds passes unshaped, which is much of a small message.
PACKETS = {"1gbit": (32768, "36kb"), "100mbit": (4096, "5kb")}


def shape(rate):
    largest, burst = PACKETS[rate]
    for i, host in enumerate(hosts):
        for namespace, device in ((switch, f"veth-{i}"), (host, "veth-h")):
            subprocess.run(["ip", "-n", namespace, "link", "set", device, "gso_max_size", str(largest)], check=True)
            subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
                            "burst", burst, "limit", "4mb"], check=True)


def run(sets, folder):
    """A rank a host, each with a processor of its own as far as there are some."""
    there = sorted(os.sched_getaffinity(0))
    ranks = []
    for i, host in enumerate(hosts):
        own = {"transport.gloo.interface": "veth-h"} if sets["run.transport"] == "gloo" else {
            "transport.ucx.devices": "veth-h"}
        command = ["ip", "netns", "exec", host, "taskset", "-c", str(there[i % len(there)]), program, "run",
                   f"{root}/scripts/gpt.lua", *flags({**sets, **own, "run.folder": folder}), "--nodes", str(len(hosts)),
                   "--node-rank", str(i), "--rendezvous", "10.79.0.1:29879"]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{folder}\n" + "\n".join(text[-2000:] for text in said))
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
            shape(rate)
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
