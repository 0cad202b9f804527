#!/usr/bin/env python3
"""Peak memory of a training process against the plan's peak, with at least 1 GB of model state.

    python3 bench/memory.py [--set train.precision=\\"bf16\\"] [--steps 2]

The plan's peak is the sum of the lines that `orrery check` prints. The baseline, all that is there before the arenas, is
the peak of `orrery check` itself: the same libraries, script and plan, and no arena. Both are peaks of resident memory,
from the kernel's accounts of finished processes. Fails when the difference is more than 5 % away from the plan.
"""
import argparse
import os
import re
import struct
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = dict(layers=10, embed=896, heads=14, mlp=3584)
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Every line of the summary that is a part of the total; gaps lie between buffers and are never touched.
PARTS = {"params", "optimizer", "gradients", "activations", "workspaces", "workspace", "inputs", "results"}


def peak_of(command):
    """Text that the command prints, and the largest resident memory of it and the processes it waited for, in bytes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(write, 1)
        os.execv(command[0], command)
    os.close(write)
    with os.fdopen(read) as out:
        text = out.read()
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{text}")
    return text, usage.ru_maxrss * 1024


def planned(text):
    total, parts = 0, {}
    for name, amount, unit in re.findall(r"^  (\w+) +([\d.]+) (B|KiB|MiB|GiB)$", text, re.M):
        if name not in PARTS:
            continue
        if unit == "GiB":
            sys.exit(f"{name} is too large to be printed exactly; choose a smaller model")
        parts[name] = float(amount) * UNITS[unit]
        total += parts[name]
    return total, parts


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--set", action="append", default=[], help="a setting of orrery run, KEY=VALUE")
    arguments.add_argument("--steps", type=int, default=2)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        with open(tokens, "wb") as f:
            f.write(struct.pack("<60000H", *(i * 7919 % 256 for i in range(60000))))
        settings = [f"train.steps={asked.steps}", "train.sequences_per_step=1", "data.tokens_per_sequence=64",
                    f'data.path="{tokens}"', "data.vocab=256", f'run.folder="{folder}/run"',
                    "train.evaluate_batches=1"]
        settings += [f"script.{key}={value}" for key, value in SIZES.items()] + asked.set
        flags = [flag for setting in settings for flag in ("--set", setting)]
        orrery, script = os.path.join(ROOT, "build/orrery"), os.path.join(ROOT, "scripts/gpt.lua")
        text, baseline = peak_of([orrery, "check", script, *flags])
        plan, parts = planned(text)
        state = parts.get("params", 0) + parts.get("optimizer", 0)
        _, peak = peak_of([orrery, "run", script, *flags])
        share = (peak - baseline) / plan
        for name, amount in parts.items():
            print(f"  {name:<12} {amount / 2**20:9.1f} MiB")
        print(f"plan {plan / 2**20:.1f} MiB, of which state {state / 1e9:.2f} GB; process {peak / 2**20:.1f} MiB, "
              f"baseline {baseline / 2**20:.1f} MiB: {share:.3f} of the plan")
        if state < 1e9:
            sys.exit("less than 1 GB of state: choose a larger model")
        if abs(share - 1) > 0.05:
            sys.exit("more than 5 % away from the plan")


if __name__ == "__main__":
    main()
