#!/usr/bin/env python3
"""What checkpoints cost a training: beside the steps, holding them, and none.

    python3 bench/checkpoint.py [--rounds 5] [--steps 300] [--every 100] [--torch VENV] [--set KEY=VALUE]

Runs of configs/quickstart.toml on two ranks, interleaved: without checkpoints, with one every so many steps beside
the steps (checkpoint.async), and with one that holds them. Tells the time of all steps from the tenth to the last,
what a step that snapshots is held against a memcpy of the same bytes, the median step that copies, of those until a
save is durable, and far from one, the processor time that runs with saves take more, spread over the processors,
and the resident memory against the plan's peak. With --torch, a folder of a virtual environment that has torch,
PyTorch's DCP saves the same bytes from two ranks that train meanwhile (checkpoint_torch.py). Nothing else may run
meanwhile.
"""
import argparse
import ctypes
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORRERY = os.path.join(ROOT, "build/orrery")
SCRIPT, CONFIG = (os.path.join(ROOT, name) for name in ("scripts/gpt.lua", "configs/quickstart.toml"))
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def flags_of(settings):
    return [flag for setting in settings for flag in ("--set", setting)]


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def command_of(asked, folder, steps, settings):
    return [ORRERY, "run", SCRIPT, "--config", CONFIG,
            *flags_of([f"run.folder={json.dumps(folder)}", f"train.steps={steps}", "train.evaluate_every=0",
                       "train.evaluate_batches=1", "checkpoint.final=false", "metrics.tensorboard=false", *settings,
                       *asked.set])]


def train(asked, folder, settings):
    """Step lines of metrics.jsonl, the record's checkpoints, what the run printed, and its processor time."""
    command = command_of(asked, folder, asked.steps, settings)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        steps = [line for line in map(json.loads, lines) if "seconds" in line]
    with open(os.path.join(folder, "run.json")) as record:
        return steps, json.load(record).get("checkpoints", {}), done.stdout, processor_s


def baseline(asked):
    """All that a rank has before its arenas: the peak of `orrery check`. A child's peak is at least its parent's."""
    child = subprocess.Popen([ORRERY, "check", SCRIPT, "--config", CONFIG, *flags_of(asked.set)], cwd=ROOT,
                             stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status != 0:
        sys.exit("orrery check failed")
    return usage.ru_maxrss * 1024


def resident_of(asked, folder):
    """Bytes of rank 0 while it trains and has saved: its own pages and files, of what it shares its part."""
    command = command_of(asked, folder, 100000, ["checkpoint.every_steps=20"])
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        saves = 0
        for line in run.stdout:
            saves += "committed and read back" in line
            if saves == 2:
                break
        ranks = subprocess.run(["pgrep", "-P", str(run.pid)], text=True, capture_output=True).stdout.split()
        ranks = ranks or [str(run.pid)]  # one rank is the process itself
        total = 0
        for name, keys in (("status", ("RssAnon", "RssFile")), ("smaps_rollup", ("Pss_Shmem",))):
            with open(f"/proc/{min(ranks, key=int)}/{name}") as lines:
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.split(":")[0] in keys)
        run.kill()
        subprocess.run(["kill", "-KILL", *ranks], stderr=subprocess.DEVNULL)
    return total


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


def beside(steps, asked, durable_s):
    """Seconds of the steps that copy, of all until the save is durable, and of those far from one; the first ten are
    warming up. `durable_s`: of each save."""
    after = [s["seconds"] for s in steps if s["step"] > 10 and s["step"] % asked.every == 1]
    until = []
    for save, whole_s in enumerate(durable_s, 1):
        left = whole_s
        for s in steps[save * asked.every:]:  # the first line is of step 1
            if left > 0:
                until.append(s["seconds"])
            left -= s["seconds"]
    others = [s["seconds"] for s in steps if s["step"] > 10 and s["step"] % asked.every > asked.every // 2]
    return after, until, others


def torch_rows(asked, size, step_s, folder):
    torchrun = os.path.join(asked.torch, "bin/torchrun")
    script = os.path.join(ROOT, "bench/checkpoint_torch.py")
    done = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "2", script, str(size), str(asked.rounds),
                           folder, str(step_s)], text=True, capture_output=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        print(f"DCP: skipped, {torchrun} failed: {done.stderr.strip().splitlines()[-1:]}")
        return
    m = json.loads(rows[-1])
    print(f"DCP of the same bytes, two ranks that train, steps of {1e3 * m['others']:.0f} ms: save holds "
          f"{1e3 * m['save']:.0f} ms; async_save holds {1e3 * m['held']:.1f} ms, durable after {m['durable']:.3f} s, "
          f"steps beside it {m['beside'] / m['others']:.2f} times as long")


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
    named = any(s.startswith("data.path") for s in asked.set)
    if not named and not os.path.exists(os.path.join(ROOT, "data/bible.txt")):
        text = tempfile.NamedTemporaryFile("w", suffix=".txt")
        text.writelines(f"{i * i % 997} follows {i * 7919 % 1009} and so it is written\n" for i in range(120000))
        text.flush()
        asked.set.append(f"data.path={json.dumps(text.name)}")
        print("data/bible.txt is not there: lines of numbers instead")
    cases = {"none": ["checkpoint.every_steps=0"], "async": [every], "blocking": [every, "checkpoint.async=false"]}
    bare = baseline(asked)
    walls, held, after, until, others, whole, processor = ({name: [] for name in cases} for _ in range(7))
    size, said = 0, ""
    for n in range(asked.rounds):
        for name, settings in cases.items():
            with tempfile.TemporaryDirectory() as folder:
                steps, saves, said_now, processor_s = train(asked, folder, settings)
            processor[name].append(processor_s)
            walls[name].append(steps[-1]["time"] - steps[9]["time"])
            durable_s = list(map(float, re.findall(r"read back in ([0-9.]+) s async", said_now)))
            near, slow, far = beside(steps, asked, durable_s)
            after[name] += near
            until[name] += slow
            others[name] += far
            whole[name] += durable_s
            if saves:  # each save's own: the record also counts the wait for the last one, where the run ends
                held[name] += map(float, re.findall(
                    r"blocked for ([0-9.]+) s" if name == "async" else r"read back in ([0-9.]+) s:", said_now))
            if name == "async":
                said = said_now
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
        print(f"{name:10} {wall:9.3f} {wall / base - 1:7.1%} {1e3 * statistics.median(held[name]):9.2f} "
              f"{1e3 * near:14.2f} {1e3 * far:10.2f} {near / far:6.2f}")
    if until["async"]:
        slow = statistics.median(until["async"])
        print(f"steps until a save is durable: {len(until['async']) / len(whole['async']):.1f} a save, "
              f"{1e3 * slow:.2f} ms: {slow / statistics.median(others['async']):.2f} times the others")
    count = len(os.sched_getaffinity(0))
    for name in ("async", "blocking"):
        more = statistics.median(processor[name]) - statistics.median(processor["none"])
        print(f"{name}: {more:.2f} s more of processors than without saves, {more / count / base:.1%} of the steps' "
              f"time on {count}")
    copy = memcpy_s(size)
    hold = statistics.median(held["async"])
    part = f"the {statistics.median(held['blocking']) / hold:.0f}th part" if hold > 0 else "nothing"
    print(f"snapshot of {size / 1e6:.0f} MB a rank: held {1e3 * hold:.2f} ms, memcpy {1e3 * copy:.2f} ms: "
          f"{hold / copy:.2f} times; of a blocking save's {statistics.median(held['blocking']):.3f} s {part}; "
          f"durable after {statistics.median(whole['async']):.3f} s")
    if peak := re.search(r", ([0-9.]+ \w+) in all, for the snapshot", said):
        plan = bytes_of(peak.group(1))
        with tempfile.TemporaryDirectory() as folder:
            own = resident_of(asked, folder) - bare
        print(f"resident memory of rank 0 beyond `orrery check`: {own / 1e6:.0f} MB, the plan's peak with its snapshot "
              f"{plan / 1e6:.0f} MB: {own / plan - 1:+.1%}")
    if asked.torch:
        with tempfile.TemporaryDirectory() as folder:
            torch_rows(asked, size, statistics.median(others["none"]), folder)
    else:
        print("DCP: skipped, no --torch VENV")


if __name__ == "__main__":
    main()
