#!/usr/bin/env python3
"""What checkpoints cost a training: beside the steps, holding them, and none.

    python3 bench/checkpoint.py [--rounds 5] [--steps 300] [--every 100] [--torch VENV] [--set KEY=VALUE]

Runs of configs/quickstart.toml on two ranks, interleaved: without checkpoints, with one every so many steps beside the
steps (checkpoint.async), and with one that holds them. Tells the time of all steps from first to last, what a step that
snapshots is held against a memcpy of the same bytes, the median step beside a save and without one, and the resident
memory against the plan's peak. With --torch, a folder of a virtual environment that has torch, PyTorch's DCP saves the
same bytes from one process, as save and as async_save. Nothing else may run meanwhile.
"""
import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORRERY = os.path.join(ROOT, "build/orrery")
SCRIPT, CONFIG = (os.path.join(ROOT, name) for name in ("scripts/gpt.lua", "configs/quickstart.toml"))
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

DCP = """
import sys, time, tempfile, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
size, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
state = {f"w{i}": torch.randn(size // 4 // 48) for i in range(48)}
for n in range(rounds):
    for name in ("save", "async_save"):
        began = time.perf_counter()
        work = getattr(dcp, name)(state, checkpoint_id=f"{folder}/{name}{n}")
        held = time.perf_counter() - began
        if name == "async_save":
            work.result()
        print(name, held, time.perf_counter() - began, flush=True)
"""


def flags_of(settings):
    return [flag for setting in settings for flag in ("--set", setting)]


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def train(asked, folder, settings):
    """Step lines of metrics.jsonl, the record's checkpoints, and what the run printed."""
    command = [ORRERY, "run", SCRIPT, "--config", CONFIG,
               *flags_of([f"run.folder={json.dumps(folder)}", f"train.steps={asked.steps}", "train.evaluate_every=0",
                          "train.evaluate_batches=1", "checkpoint.final=false", "metrics.tensorboard=false",
                          *settings, *asked.set])]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        steps = [line for line in map(json.loads, lines) if "seconds" in line]
    with open(os.path.join(folder, "run.json")) as record:
        return steps, json.load(record).get("checkpoints", {}), done.stdout


def baseline(asked):
    """All that a rank has before its arenas: the peak of `orrery check`."""
    child = subprocess.Popen([ORRERY, "check", SCRIPT, "--config", CONFIG, *flags_of(asked.set)], cwd=ROOT,
                             stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status != 0:
        sys.exit("orrery check failed")
    return usage.ru_maxrss * 1024


def memcpy_s(size):
    """Of touched memory, the best of five."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memset(source, 1, size)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        ctypes.memmove(target, source, size)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def beside(steps, asked):
    """Seconds of the steps after a save, and of those far from one; the first ten are warming up."""
    after = [s["seconds"] for s in steps if s["step"] > 10 and s["step"] % asked.every == 1]
    others = [s["seconds"] for s in steps if s["step"] > 10 and s["step"] % asked.every > asked.every // 2]
    return after, others


def torch_rows(asked, size, folder):
    python = os.path.join(asked.torch, "bin/python")
    done = subprocess.run([python, "-c", DCP, str(size), str(asked.rounds), folder], text=True, capture_output=True)
    if done.returncode != 0:
        print(f"DCP: skipped, {python} failed: {done.stderr.strip().splitlines()[-1:]}")
        return
    times = {}
    for line in done.stdout.splitlines():
        if (words := line.split()) and words[0] in ("save", "async_save"):
            times.setdefault(words[0], []).append((float(words[1]), float(words[2])))
    for name, rows in times.items():
        held, whole = (statistics.median(column) for column in zip(*rows))
        print(f"DCP {name}, one process, {size / 1e6:.0f} MB: held {1e3 * held:.1f} ms, durable after {whole:.3f} s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--every", type=int, default=100)
    arguments.add_argument("--torch", default="", help="folder of a virtual environment with torch, for DCP's saves")
    arguments.add_argument("--set", action="append", default=[], help="a setting of orrery run, KEY=VALUE")
    asked = arguments.parse_args()
    every = f"checkpoint.every_steps={asked.every}"
    text = None
    if not os.path.exists(os.path.join(ROOT, "data/bible.txt")) and not any(s.startswith("data.path") for s in asked.set):
        text = tempfile.NamedTemporaryFile("w", suffix=".txt")
        text.writelines(f"{i * i % 997} follows {i * 7919 % 1009} and so it is written\n" for i in range(120000))
        text.flush()
        asked.set.append(f"data.path={json.dumps(text.name)}")
        print("data/bible.txt is not there: lines of numbers instead")
    cases = {"none": ["checkpoint.every_steps=0"], "async": [every], "blocking": [every, "checkpoint.async=false"]}
    walls, held, after, others, whole = ({name: [] for name in cases} for _ in range(5))
    resident, size, said = 0, 0, ""
    for n in range(asked.rounds):
        for name, settings in cases.items():
            with tempfile.TemporaryDirectory() as folder:
                steps, saves, said_now = train(asked, folder, settings)
            walls[name].append(steps[-1]["time"] - steps[9]["time"])
            near, far = beside(steps, asked)
            after[name] += near
            others[name] += far
            if saves:
                held[name].append(saves["held_s"] / saves["saved"])
            if name == "async":
                said = said_now
                resident = max(resident, max(s["memory"] for s in steps))
                whole[name] += map(float, re.findall(r"read back in ([0-9.]+) s beside", said))
                size = int(bytes_of(re.search(r"from a copy of ([0-9.]+ \w+)", said).group(1)))
            print(f"round {n + 1} {name}: {walls[name][-1]:.3f} s", flush=True)
    base = statistics.median(walls["none"])
    print(f"\n{'':10} {'steps s':>9} {'cost':>7} {'held ms':>9} {'step after ms':>14} {'others ms':>10} {'ratio':>6}")
    for name in cases:
        wall = statistics.median(walls[name])
        if name == "none":
            print(f"{name:10} {wall:9.3f} {'':7} {'':9} {'':14} {1e3 * statistics.median(others[name]):10.2f}")
            continue
        near, far = statistics.median(after[name]), statistics.median(others[name])
        print(f"{name:10} {wall:9.3f} {wall / base - 1:7.1%} {1e3 * statistics.median(held[name]):9.2f} {1e3 * near:14.2f} "
              f"{1e3 * far:10.2f} {near / far:6.2f}")
    copy = memcpy_s(size)
    hold = statistics.median(held["async"])
    print(f"snapshot of {size / 1e6:.0f} MB a rank: held {1e3 * hold:.2f} ms, memcpy {1e3 * copy:.2f} ms: "
          f"{hold / copy:.2f} times; of a blocking save's {statistics.median(held['blocking']):.3f} s the "
          f"{statistics.median(held['blocking']) / hold:.0f}th part; durable after {statistics.median(whole['async']):.3f} s")
    if peak := re.search(r", ([0-9.]+ \w+) in all, for the snapshot", said):
        plan = bytes_of(peak.group(1))
        own = resident - baseline(asked)
        print(f"resident memory of rank 0 beyond `orrery check`: {own / 1e6:.0f} MB, the plan's peak with its snapshot "
              f"{plan / 1e6:.0f} MB: {own / plan - 1:+.1%}")
    if asked.torch:
        with tempfile.TemporaryDirectory() as folder:
            torch_rows(asked, size, folder)
    else:
        print("DCP: skipped, no --torch VENV")


if __name__ == "__main__":
    main()
