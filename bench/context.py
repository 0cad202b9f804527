#!/usr/bin/env python3
"""A training step of one long row on two ranks, by method and order of context parallelism, against one rank.

    python3 bench/context.py [--tokens 16384] [--rounds 5] [--steps 6] [--transport threads]

One rank has two threads, two ranks (mesh axis cp) one each. The model is a GPT of 2 layers of 384 with 6 heads in f32.
A round is one process of each kind in turn; the table has the median over rounds of each process' median tokens/s, its
ratio to one rank, and to the ring in natural order.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from step import ROOT, tokens_file

KINDS = {
    "one rank": {"run.threads_per_rank": 2},
    "heads": {"mesh.cp": 2, "script.context": "heads"},
    "gather": {"mesh.cp": 2, "script.context": "gather"},
    "gather zigzag": {"mesh.cp": 2, "script.context": "gather", "script.order": "zigzag"},
    "ring": {"mesh.cp": 2, "script.context": "ring"},
    "ring zigzag": {"mesh.cp": 2, "script.context": "ring", "script.order": "zigzag"},
}


def tokens_per_second(kind, asked, folder):
    run = tempfile.mkdtemp(dir=folder)
    sets = {
        "run.folder": run, "run.threads_per_rank": 1, "run.transport": asked.transport, "train.steps": asked.steps,
        "train.sequences_per_step": 1, "data.path": tokens_file(folder, 256), "data.vocab": 256, "data.validation": 0,
        "data.tokens_per_sequence": asked.tokens, "script.layers": 2, "script.embed": 384, "script.heads": 6,
        **KINDS[kind],
    }
    command = [f"{ROOT}/build/orrery", "run", f"{ROOT}/scripts/gpt.lua"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"context.py: {' '.join(command)} ended with status {done.returncode}")
    with open(f"{run}/metrics.jsonl") as f:
        return statistics.median(json.loads(line)["tok/s"] for line in list(f)[2:])  # two steps of warm-up


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--transport", default="threads")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [{kind: tokens_per_second(kind, asked, folder) for kind in KINDS} for _ in range(asked.rounds)]
    medians = {kind: statistics.median(r[kind] for r in rounds) for kind in KINDS}
    print(f"{asked.tokens} tokens, medians of {asked.rounds} rounds of {asked.steps - 2} steps, {asked.transport}")
    print(f"{'':<15}{'tokens/s':>10}{'of one rank':>13}{'of the ring':>13}")
    for kind, rate in medians.items():
        print(f"{kind:<15}{rate:>10.0f}{rate / medians['one rank']:>13.2f}{rate / medians['ring']:>13.2f}")


if __name__ == "__main__":
    main()
