#!/usr/bin/env python3
"""Peak memory of training processes against what `orrery simulate` says that a rank takes.

    python3 bench/memory.py [--set script.embed=512] [--steps 2] [--only dp]

Several strategies by gloo, since ranks of shm map each other's arenas. The baseline, all that is there before the
arenas, is the peak of `orrery check` itself: the same libraries, script and plan, and no arena. Both are peaks of
resident memory of one process, from the kernel's accounts of finished ones; of several ranks of the largest. Fails
when one is more than 3 % away from the plan.
"""
import argparse
import json
import os
import struct
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORRERY, SCRIPT = os.path.join(ROOT, "build/orrery"), os.path.join(ROOT, "scripts/gpt.lua")
SIZES = dict(layers=10, embed=896, heads=14, mlp=3584)
BAR = 0.03
LEAST = 400e6  # bytes of a rank's arenas: what libraries allocate beside them stays below the bar
CASES = {
    "one rank, f32": [],
    "one rank, bf16": ['train.precision="bf16"'],
    "one rank, recompute": ['script.recompute="all"', "train.sequences_per_step=8"],
    "dp2": ["mesh.dp=2"],
    "dp2 zero1": ["mesh.dp=2", "script.zero=1"],
    "dp2 zero3": ["mesh.dp=2", "script.zero=3"],
    "tp2 sequence": ["mesh.tp=2", "script.sequence=true"],
    "pp2 1f1b": ["mesh.pp=2", "train.microbatches=2"],
}


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


def flags_of(settings):
    return [flag for setting in settings for flag in ("--set", setting)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--set", action="append", default=[], help="a setting of orrery run, KEY=VALUE")
    arguments.add_argument("--steps", type=int, default=2)
    arguments.add_argument("--only", default="", help="cases with this word")
    asked = arguments.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tokens, costs = os.path.join(folder, "tokens.bin"), os.path.join(folder, "costs.json")
        with open(tokens, "wb") as f:
            f.write(struct.pack("<60000H", *(i * 7919 % 256 for i in range(60000))))
        # Of times nothing is asked; a forecast has some table.
        peak_of([ORRERY, "calibrate", "--threads", "1", "--seconds", "2", "--transports", "gloo", "--ranks", "2", "-o",
                 costs])
        print(f"{'':22} {'predicted':>12} {'measured':>12} {'off':>7}")
        for name, own in CASES.items():
            if asked.only not in name:
                continue
            flags = flags_of([f"train.steps={asked.steps}", "train.sequences_per_step=2", "data.tokens_per_sequence=64",
                              f'data.path="{tokens}"', "data.vocab=256", f'run.folder="{folder}/{len(missed)}{name}"',
                              "train.evaluate_batches=1", "run.transport=gloo", "run.threads_per_rank=1",
                              "checkpoint.final=false", *(f"script.{key}={value}" for key, value in SIZES.items()),
                              *own, *asked.set])
            told = json.loads(peak_of([ORRERY, "simulate", SCRIPT, *flags, "--table", costs, "--json"])[0])
            plan = told["memory_bytes"]
            _, baseline = peak_of([ORRERY, "check", SCRIPT, *flags])
            _, peak = peak_of([ORRERY, "run", SCRIPT, *flags])
            off = plan / (peak - baseline) - 1
            print(f"{name:22} {plan / 2**20:8.1f} MiB {(peak - baseline) / 2**20:8.1f} MiB {100 * off:+6.2f}%",
                  flush=True)
            if plan < LEAST:
                sys.exit(f"less than {LEAST / 1e6:.0f} MB of arenas: choose a larger model")
            if abs(off) > BAR:
                missed.append(name)
    if missed:
        sys.exit(f"more than {100 * BAR:.0f} % away from the plan: {', '.join(missed)}")


if __name__ == "__main__":
    main()
