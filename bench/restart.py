#!/usr/bin/env python3
"""From SIGKILL of a rank to the next step that is finished: `orrery run --restarts` beside torchrun with DCP.

    python3 bench/restart.py [--rounds 20] [--orrery build/orrery] [--torch VENV]

A tiny GPT (2 layers, 48 wide) on 4 ranks of this host, a checkpoint every 10 steps, one kill of a rank by chance a
round, interleaved. Of all the time is taken from the kill until a rank of the next generation has told of its first
step, whichever step that is. With --torch, a folder of a virtual environment that has torch: restart_torch.py under
torchrun, gloo, DCP's async_save, once with torchrun's own way to start ranks (a Python each, which imports torch anew)
and once with its quickest (forked from the agent, which has torch). Nothing else may run meanwhile.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANKS, LIMIT_S = 4, 120
FORKED = ("--run-path", "--start-method", "fork")
# Torchrun's agent keeps one store for all starts, whose keys do not tell starts apart: Gloo's ranks may find addresses
# of dead ones and end with 1 (pytorch issue 135712). With this rank 0 of each start serves a store of its own.
PEER = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}


def lines_of(path):
    try:
        with open(path) as file:
            whole = file.read().rpartition("\n")[0]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole.splitlines()]


def children(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(name))
    return sorted(found)


def wait_for(what, job):
    until = time.time() + LIMIT_S
    while not (found := what()):
        if job.poll() is not None or time.time() > until:
            raise RuntimeError(f"{' '.join(job.args)}: ended with {job.poll()}, or nothing for {LIMIT_S} s")
        time.sleep(0.002)
    return found


def measure(command, steps_of, began_of, folder, **environment):
    """Seconds from a kill to the first step that ranks started behind it have finished; the job is ended."""
    said = os.path.join(folder, "log")
    with open(said, "w") as log:
        job = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True,
                               env=os.environ | environment)
        try:
            wait_for(lambda: steps_of() >= 35, job)
            old = children(job.pid)
            if len(old) != RANKS:
                raise RuntimeError(f"{' '.join(command)}: {len(old)} children, not one for each of {RANKS} ranks")
            victim = random.choice(old)
            killed = time.time()
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: (now := children(job.pid)) and not set(now) & set(old), job)
            return wait_for(began_of, job) - killed
        except RuntimeError as error:
            with open(said) as text:
                sys.exit(f"{error}; its last lines:\n{''.join(text.readlines()[-40:])}")
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGTERM)
            try:
                job.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def orrery(program, text):
    with tempfile.TemporaryDirectory() as folder:
        run, seen = os.path.join(folder, "run"), []
        command = [program, "run", os.path.join(ROOT, "scripts/gpt.lua"), "--restarts", "3"]
        for setting in (f"run.folder={run}", f"mesh.dp={RANKS}", f"data.path={text}", "data.tokens_per_sequence=32",
                        "train.sequences_per_step=4", "train.steps=10000000", "train.evaluate_every=0",
                        "checkpoint.every_steps=10", "script.layers=2", "script.embed=48", "script.heads=3"):
            command += ["--set", setting]

        def last():
            steps = [line["step"] for line in lines_of(os.path.join(run, "metrics.jsonl")) if "seconds" in line]
            return steps[-1] if steps else 0

        def began():
            # The file is cut at what the new ranks go on from, and grows with their first step.
            seen.append((time.time(), last()))
            again = [line["step"] for line in lines_of(os.path.join(run, "events.jsonl"))
                     if line["event"] == "training" and line["generation"] == 2]
            if not again:
                return None
            # The first look behind the last one that did not find such a step.
            grown = None
            for at, step in reversed(seen):
                if step <= again[0]:
                    break
                grown = at
            return grown

        return measure(command, last, began, folder)


def torch(venv, *flags):
    with tempfile.TemporaryDirectory() as folder:
        said = os.path.join(folder, "steps.jsonl")
        command = [os.path.join(venv, "bin/torchrun"), "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts",
                   "3", "--monitor-interval", "0.1", *flags, os.path.join(ROOT, "bench/restart_torch.py"), folder]

        def began():
            again = [line["time"] for line in lines_of(said) if line["start"] > 0]
            return again[0] if again else None

        return measure(command, lambda: len(lines_of(said)), began, folder, **PEER)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--orrery", default=os.path.join(ROOT, "build/orrery"), help="the program to measure")
    arguments.add_argument("--torch", default="", help="folder of a virtual environment with torch")
    asked = arguments.parse_args()
    cases = {"orrery --restarts": lambda: orrery(os.path.abspath(asked.orrery), text.name)}
    if asked.torch:
        venv = os.path.abspath(asked.torch)
        cases["torchrun, DCP"] = lambda: torch(venv)
        cases[f"torchrun {' '.join(FORKED)}, DCP"] = lambda: torch(venv, *FORKED)
    times = {name: [] for name in cases}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.writelines(f"{i % 37} plus {i % 11} makes {i % 37 + i % 11} and so it is written\n" for i in range(1500))
        text.flush()
        for n in range(asked.rounds):
            for name, case in cases.items():
                times[name].append(case())
                print(f"round {n + 1} {name}: {times[name][-1]:.2f} s", flush=True)
    print("\n| SIGKILL to the next finished step, s | median | least | most | rounds | of orrery's median |")
    print("|---|---|---|---|---|---|")
    ours = statistics.median(times["orrery --restarts"])
    for name, row in times.items():
        median = statistics.median(row)
        print(f"| {name} | {median:.2f} | {min(row):.2f} | {max(row):.2f} | {len(row)} | {median / ours:.1f} |")


if __name__ == "__main__":
    main()
