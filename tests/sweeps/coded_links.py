"""Codecs and streaming between two hosts on slow links, the GPT of configs/quickstart.toml: see coded_links.sh.

Bars: time in communication falls by at least 0.8 of what the bytes fall by for int8, 0.7 for sign and powersgd/8;
tokens/s with powersgd/8 at least 1.2 times those of PyTorch's DDP with its PowerSGD hook of that rank; a step of
streaming within 5 % of one without communication, where a fragment takes 0.6 of tau steps on its link.
"""
import json
import os
import re
import shutil
import statistics
import sys

from shaped_hosts import Hosts
from timed_runs import PLAIN, Runs, finish, median_of

program, root, table, switch, *names = sys.argv[1:]
script = f"{root}/scripts/gpt.lua"
hosts, runs = Hosts(program, script, switch, names), Runs(program, root)
torch = os.environ.get("ORRERY_TORCH")
os.environ["UCX_TLS"] = "tcp"
MBIT, ROUNDS, STEPS = 100, 3, 8
FRAGMENTS, TAU, SHARE = 6, 5, 0.6
CODECS = {"none": {}, "int8": {"script.codec": "int8"},
          "sign": {"script.codec": "sign", "script.feedback": "true"},
          "powersgd/8": {"script.codec": "powersgd/8", "script.feedback": "true"}}
BARS = {"int8": 0.8, "sign": 0.7, "powersgd/8": 0.7}
MODEL = {**PLAIN, "data.tokens_per_sequence": 128, "train.sequences_per_step": 4, "script.model": "llama",
         "script.layers": 6, "script.embed": 384, "script.heads": 6, "script.mlp": 1024, "script.qk_norm": "true"}


def progress(text):
    print(text, file=sys.stderr, flush=True)


def bytes_of(sets):
    """What a rank sends in a step, as `orrery check` lists it, over the axis of data parallelism."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    listed = re.findall(r"over dp: \d+ a step, ([\d.]+) (\w+) sent", runs.of_script("check", sets))
    return sum(float(number) * units[unit] for number, unit in listed)


def communication_of(folder):
    """Seconds of a step in which the rank sent, or waited for what is sent."""
    with open(f"{folder}/run.json", encoding="utf-8") as record:
        parts = json.load(record)["time_s"]
    return (parts.get("communication dp", 0) + parts.get("waiting", 0)) / STEPS


def codecs(lines):
    """Whether a bar was missed."""
    hosts.shape(MBIT)
    cases = [(transport, name, {**MODEL, **more, "mesh.dp": 2, "train.steps": STEPS, "run.transport": transport})
             for transport in ("gloo", "ucx") for name, more in CODECS.items()]
    found = {case[:2]: [] for case in cases}
    peer = []
    for turn in range(ROUNDS):
        for transport, name, sets in cases:
            folder = f"runs/{transport}-{name.replace('/', '')}-{turn}"
            hosts.run(sets, folder)
            found[transport, name].append((communication_of(folder), median_of(folder, sets)))
            progress(f"round {turn + 1}: {transport} {name}: {found[transport, name][-1]}")
        if torch:
            shared = ["env", "WORLD_SIZE=2", "MASTER_ADDR=10.79.0.1", "MASTER_PORT=29880", "GLOO_SOCKET_IFNAME=veth-h"]
            said = hosts.together([[*shared, f"RANK={i}", torch, f"{root}/bench/links_torch.py", "--steps", str(STEPS)]
                                   for i in range(len(names))], "PyTorch")
            peer.append(json.loads(said[0].splitlines()[-1]))
            progress(f"round {turn + 1}: {peer[-1]}")
    missed = False
    tokens = MODEL["data.tokens_per_sequence"] * MODEL["train.sequences_per_step"]
    lines.append(f"{MBIT} Mbit/s each way, dp 2, medians of {ROUNDS} interleaved runs of {STEPS} steps")
    lines.append(f"{'':18} {'MiB/step':>9} {'fewer':>7} {'communication':>14} {'less':>7} {'of that':>8} "
                 f"{'tokens/s':>9}")
    for transport, name, sets in cases:
        plain = {**sets, "script.codec": "none", "script.feedback": "false"}
        sent = {"none": bytes_of(plain), name: bytes_of(sets)}
        seconds = {of: statistics.median(each[0] for each in found[transport, of]) for of in ("none", name)}
        step = statistics.median(each[1] for each in found[transport, name])
        fewer, less = sent["none"] / sent[name], seconds["none"] / seconds[name]
        missed |= less / fewer < BARS.get(name, 0)
        lines.append(f"{transport + ' ' + name:18} {sent[name] / 2**20:9.2f} {fewer:7.2f} {1e3 * seconds[name]:11.1f} "
                     f"ms {less:7.2f} {less / fewer:8.2f} {tokens / step:9.0f}")
    if peer:
        theirs = statistics.median(each["tok_s"] for each in peer)
        ours = tokens / statistics.median(each[1] for each in found["gloo", "powersgd/8"])
        missed |= ours < 1.2 * theirs
        lines.append(f"{peer[0]['peer']}, DDP, PowerSGD hook of rank 8, gloo: {theirs:.0f} tokens/s; here "
                     f"{ours / theirs:.2f} times that (bar 1.2)")
    else:
        lines.append("PyTorch was not there (ORRERY_TORCH)")
    return missed


def streaming(lines):
    """Whether the bar was missed."""
    # A library of its own: gpt.lua has no key for the number of fragments.
    scripts = os.path.abspath("scripts")
    shutil.copytree(f"{root}/scripts", scripts)
    method = f"{scripts}/orrery/methods/streaming.lua"
    with open(method, encoding="utf-8") as of:
        text = of.read()
    changed = text
    for option, value in (("fragments", FRAGMENTS), ("tau", TAU)):
        changed, count = re.subn(rf"options\.{option} or \d+", f"options.{option} or {value}", changed)
        if count != 1:
            sys.exit(f"streaming.lua has no option {option} with a default any more")
    with open(method, "w", encoding="utf-8") as to:
        to.write(changed)
    every, steps = 30, 90
    sets = {**MODEL, "lua.library": scripts, "mesh.site": 2, "run.transport": "gloo", "train.steps": steps}
    alone = {**sets, "script.method": "local_sgd", "script.sync_every": steps}
    ahead = {**sets, "script.method": "streaming", "script.sync_every": every}

    def step_of(asked, folder):
        """The mean, since fragments come in some steps only."""
        hosts.run(asked, folder)
        with open(f"{folder}/metrics.jsonl", encoding="utf-8") as metrics:
            told = [json.loads(line) for line in metrics]
        took = [line["seconds"] for line in told if "loss" in line and every < line["step"] < steps - 1]
        return statistics.fmean(took)

    if f"program receive{FRAGMENTS}:" not in runs.of_script("check", ahead):
        sys.exit(f"streaming has no {FRAGMENTS} fragments")
    hosts.shape(1000)
    base = step_of(alone, "runs/probe")
    told = runs.of_script("check", {**MODEL, "mesh.dp": 1, "train.steps": 1})
    parameters = int(re.search(r"([\d,]+) parameters", told)[1].replace(",", ""))
    mbit = parameters * 4 / FRAGMENTS * 8 / (SHARE * TAU * base) / 1e6
    hosts.shape(mbit, of_large=True)  # a message is of megabytes, and small packets take the processors of steps
    found = {"alone": [], "streaming": []}
    for turn in range(ROUNDS):
        for name, asked in (("alone", alone), ("streaming", ahead)):
            found[name].append(step_of(asked, f"runs/{name}-{turn}"))
            progress(f"round {turn + 1}: {name}: {found[name][-1]}")
    least, most = (statistics.median(found[name]) for name in ("alone", "streaming"))
    lines.append(f"streaming in {FRAGMENTS} fragments, tau {TAU}, 2 islands, {mbit:.0f} Mbit/s (a fragment takes "
                 f"{SHARE} of tau steps): {1e3 * most:.1f} ms a step, {1e3 * least:.1f} without communication: "
                 f"{100 * (most / least - 1):+.1f} % (bar 5)")
    return most > 1.05 * least


def main():
    lines = [f"two hosts, a rank of one thread each, {os.cpu_count()} processors"]
    missed = [part(lines) for part in (codecs, streaming)]
    finish(lines, table, any(missed))


main()
