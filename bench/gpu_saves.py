#!/usr/bin/env python3
"""What saves beside the steps cost a training on one GPU: GPT-2 124M in bf16, a checkpoint every ten steps.

    python3 bench/gpu_saves.py [--build build] [--rounds 2] [--steps 42] [--micro 8] [--folder FOLDER] [--limit SECONDS]

Runs with and without checkpoints, interleaved, from the end of step 3 on: the seconds of all steps, what they cost
(bar: 1 %), the median of steps that a snapshot is copied beside and of the others, and what steps were held. Losses
must be the same bits in all runs, and in one that is killed behind its first checkpoint and goes on from there. A step
has 32 sequences of 1,024 tokens for each of --micro micro-batches. --folder: where the checkpoints go (2 GB each, three
at once).
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from gpu import MODELS, command, told_by, tokens_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WARM, EVERY = 3, 10


def line_of(asked, folder, name, every):
    m = dict(MODELS["gpt2_124m"], batch=32 * asked.micro)
    sets = {"train.microbatches": asked.micro, "run.store": "posix", "checkpoint.every_steps": every,
            "device.cuda.cache": os.path.join(folder, "cache"), "metrics.tensorboard": "false"}
    data = tokens_file(folder, dict(m, batch=64))
    return command(asked.build, m, os.path.join(folder, name), asked.steps, data, sets)


def train(asked, folder, name, every, end):
    """Lines of the steps by number, and what the run printed."""
    printed = told_by(line_of(asked, folder, name, every), end - time.time())
    with open(os.path.join(folder, name, "metrics.jsonl")) as lines:
        return {line["step"]: line for line in map(json.loads, lines) if "seconds" in line}, "\n".join(printed)


def killed(asked, folder, name, end):
    """Begins the run, and kills it as soon as it says that the first checkpoint is committed."""
    line = line_of(asked, folder, name, EVERY)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as run:
        for text in run.stdout:
            if f"checkpoint of step {EVERY} committed" in text or time.time() > end:
                os.killpg(run.pid, signal.SIGKILL)


def wall(steps):
    return steps[max(steps)]["time"] - steps[WARM]["time"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=42)
    p.add_argument("--micro", type=int, default=8)
    p.add_argument("--folder", default=None)
    p.add_argument("--limit", type=float, default=1e9)
    asked = p.parse_args()
    end = time.time() + asked.limit
    walls, beside, others, held, whole, losses = {0: [], EVERY: []}, [], [], [], [], []
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for n in range(asked.rounds):
            for every in walls:
                steps, printed = train(asked, folder, f"run{n}-{every}", every, end)
                walls[every].append(wall(steps))
                losses.append([steps[i]["loss"] for i in sorted(steps)])
                if every:
                    near = {i for i in steps if i > WARM and i % every == 1}
                    beside += [steps[i]["seconds"] for i in near]
                    others += [steps[i]["seconds"] for i in steps if i > WARM and i not in near]
                    told = re.findall(r"read back in ([0-9.]+) s asynchronously, steps blocked for ([0-9.]+) s", printed)
                    whole += [float(seconds) for seconds, _ in told]
                    held += [float(seconds) for _, seconds in told]
                    size = re.search(r"from a copy of [^,]*, made [^\n]*", printed).group(0)
                    left_out = len(re.findall(r"no checkpoint of step|its checkpoint waited", printed))
                print(f"round {n + 1}, {'a save every 10' if every else 'none'}: {walls[every][-1]:.3f} s", flush=True)
        killed(asked, folder, "resumed", end)
        steps, printed = train(asked, folder, "resumed", EVERY, end)
        went_on = re.search(r"resumed from step (\d+)", printed)
        losses.append([steps[i]["loss"] for i in sorted(steps)])
    same = all(row == losses[0] for row in losses[:-1])
    resumed = bool(went_on) and losses[-1] == losses[0]
    cost = statistics.median(walls[EVERY]) / statistics.median(walls[0]) - 1
    print(f"GPT-2 124M, {32 * asked.micro} sequences a step, {size}")
    print(f"cost of a save every 10 steps: {cost:+.2%} (bar 1 %); step beside a copy "
          f"{1e3 * statistics.median(beside):.1f} ms, others {1e3 * statistics.median(others):.1f} ms")
    print(f"held {1e3 * statistics.median(held):.2f} ms a save, durable after {statistics.median(whole):.2f} s, "
          f"left out or waited: {left_out}")
    print(f"losses of all runs {'bit-equal' if same else 'DIFFER'}; killed, and "
          f"{went_on.group(0) if went_on else 'NOT resumed'}: {'bit-equal' if resumed else 'DIFFERS'}")
    return 0 if cost <= 0.01 and same and resumed else 1


if __name__ == "__main__":
    sys.exit(main())
