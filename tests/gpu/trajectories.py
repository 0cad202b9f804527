#!/usr/bin/env python3
"""20 steps of GPT-2 124M in bf16 on the GPU, again, and on the processor: python3 trajectories.py BUILD FOLDER

The noise of bf16 is what the losses may differ by (1e-2 of each). Both runs on the GPU share the file of chosen
algorithms, as those of one user do, and must give the same losses bit for bit; without it they may differ in the last
bits. Exit code 1 where they do not.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import gpu

STEPS, BAR = 20, 1e-2


def main():
    build, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    m = dict(gpu.MODELS["gpt2_124m"], seq=512, batch=2)
    data = gpu.tokens_file(folder, m)
    cache = {"device.cuda.cache": os.path.join(folder, "cache")}
    losses = {}
    for name, sets in (("gpu", cache), ("again", cache), ("cpu", {"run.device": "cpu"})):
        run = os.path.join(folder, name)
        try:
            gpu.told_by(gpu.command(build, m, run, STEPS, data, sets))
        except RuntimeError as failure:
            sys.exit(f"{name}: {failure}")
        losses[name] = [x["loss"] for x in gpu.lines_of(run)]
        print(name, *losses[name], flush=True)
    worst = max(abs(a - b) / b for a, b in zip(losses["gpu"], losses["cpu"]))
    same = losses["gpu"] == losses["again"]
    print(f"{STEPS} losses of GPT-2 124M bf16: worst {worst:.1e} of the CPU's (bar {BAR:.0e}), "
          f"repetition {'bit-equal' if same else 'DIFFERS'}")
    return 0 if worst < BAR and same and all(len(row) == STEPS for row in losses.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
