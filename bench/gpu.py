#!/usr/bin/env python3
"""Training steps on one GPU, bf16, beside PyTorch's: tokens/s, share of the matrix rate, memory.

    python3 bench/gpu.py [--build build] [--torch PYTHON] [--models gpt2_124m,gpt2_1558m,llama_1100m] [--limit SECONDS]
                         [--torch-mode blocks|model|eager] [--compile]

A line a model: Orrery's median tokens/s over the steps after the capture, its MFU (model flops over the rate of an
8192-cubed bf16 product of the same process, and over the data sheet's), the GPU's used memory; the same of PyTorch
(torch.compile, flash attention, fused AdamW) with --torch; the ratio, and whether the bars hold (ratio 1.1; MFU 55 % of
the two larger models; memory no more, and steady within 4 MiB). A PyTorch that was asked for and fails is a missed bar.
Below a line: the arenas that the plan needs, which kernels run by other code than the vendor's and why, and how
PyTorch compiled. --torch-mode: of gpu_torch.py, whose head says what its modes are. Each of the two may take 200 s a
model. --limit: all ends after so many seconds: what runs then is called cut, what has not begun is called not run, and
both are failures. --compile: only lets PyTorch compile, for TORCHINDUCTOR_CACHE_DIR to keep, which other work may run
alongside.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_S = 200
STEADY_MIB = 4  # what a driver or library may take beside a step's own, which allocates nothing
MODELS = {
    "gpt2_124m": dict(model="gpt", layers=12, embed=768, heads=12, mlp=3072, seq=1024, batch=32, vocab=50304),
    "gpt2_1558m": dict(model="gpt", layers=48, embed=1600, heads=25, mlp=6400, seq=1024, batch=16, vocab=50304),
    "llama_1100m": dict(model="llama", layers=22, embed=2048, heads=32, kv_heads=4, mlp=5632, seq=2048, batch=8,
                        vocab=32000),
}


def tokens_file(folder, m):
    path = os.path.join(folder, f"tokens_{m['vocab']}.bin")
    if not os.path.exists(path):
        draw = random.Random(1)
        count = 4 * m["batch"] * (m["seq"] + 1)
        with open(path, "wb") as f:
            f.write(struct.pack(f"<{count}H", *(draw.randrange(m["vocab"]) for _ in range(count))))
    return path


def command(build, m, run, steps, data, sets=()):
    """Also for scripts/gpu_check's trajectories: `sets` comes last. No checkpoint of gigabytes, the store in memory."""
    all_sets = {
        "run.folder": run, "run.device": "cuda", "train.steps": steps, "train.precision": "bf16",
        "train.sequences_per_step": m["batch"], "data.path": data, "data.tokens_per_sequence": m["seq"],
        "data.vocab": m["vocab"], "data.validation": 0, "script.model": m["model"], "script.layers": m["layers"],
        "run.store": "memory", "checkpoint.final": "false", "script.embed": m["embed"], "script.heads": m["heads"],
        "script.mlp": m["mlp"],
    }
    if "kv_heads" in m:
        all_sets["script.kv_heads"] = m["kv_heads"]
    all_sets.update(sets)
    line = [os.path.join(build, "orrery"), "run", os.path.join(ROOT, "scripts", "gpt.lua")]
    for key, value in all_sets.items():
        line += ["--set", f"{key}={value}"]
    return line


def lines_of(run):
    with open(os.path.join(run, "metrics.jsonl")) as f:
        return [line for line in map(json.loads, f) if "tok/s" in line]


class Cut(RuntimeError):
    """A command was ended, since its time was over."""


def told_by(line, seconds=MOST_S, errors=subprocess.STDOUT):
    """Runs a command; what it printed, or a RuntimeError with its last lines. Also for scripts/gpu_check."""
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=max(1, seconds))
    except subprocess.TimeoutExpired as late:
        told = late.stdout or ""
        told = told.decode(errors="replace") if isinstance(told, bytes) else told
        raise Cut(" | ".join([f"cut after {max(1, seconds):.0f} s", *told.strip().splitlines()[-2:]])) from late
    if done.returncode != 0:
        raise RuntimeError(" | ".join((done.stderr or done.stdout).strip().splitlines()[-3:]))
    return done.stdout.splitlines()


def orrery(build, name, steps, folder, seconds):
    m = MODELS[name]
    run = tempfile.mkdtemp(dir=folder)
    told = told_by(command(build, m, run, steps, tokens_file(folder, m)), seconds)
    lines = lines_of(run)[3:]                                            # issued, captured, and one more
    mib = [x["memory"] / 2**20 for x in lines]
    notes = [text for text in told if text.startswith(("memory: ", "the step is not captured"))]
    notes += [text.strip() for text in told if text.startswith("  kernel ") and "own kernel" in text]
    return dict(tok_s=statistics.median(x["tok/s"] for x in lines), mfu=statistics.median(x["MFU"] for x in lines),
                nominal=statistics.median(x.get("MFU_nominal", 0) for x in lines),
                mib=max(mib), steady=max(mib) - min(mib) <= STEADY_MIB,
                captured=any("the step is captured" in text for text in told), notes=notes)


def torch(python, name, steps, mode, seconds, more=()):
    line = [python, os.path.join(ROOT, "bench", "gpu_torch.py"), "--model", name, "--steps", str(steps), "--mode", mode]
    line += more
    peer = json.loads(told_by(line, seconds, subprocess.PIPE)[-1])
    peer["notes"] = [f"{peer['peer']}, {mode}: {peer['graphs']} graphs, the first step took {peer['compile_s']:.0f} s"]
    return peer


def compile_all(python, names, mode):
    """A short run of each model. What the compiler timed is forgotten: other work may have disturbed it."""
    failed = False
    for name in names:
        peer, _ = attempt(f"{name} of PyTorch", lambda: torch(python, name, 1, mode, MOST_S, ["--warmup", "0"]))
        failed |= not peer
        print("".join(f"{name}: {note}\n" for note in (peer["notes"] if peer else [])), end="", flush=True)
    for chosen in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        chosen.unlink()
    return 1 if failed else 0


def attempt(what, work):
    """What `work` gave, and "", or None and the word for it."""
    try:
        return work(), ""
    except (RuntimeError, OSError, ValueError, IndexError, KeyError) as failure:
        print(f"gpu.py: {what} failed: {failure}", file=sys.stderr)
        return None, "cut" if isinstance(failure, Cut) else "failed"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--torch")
    p.add_argument("--torch-mode", choices=("blocks", "model", "eager"), default="blocks")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--limit", type=float, default=1e9)
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    if unknown := [name for name in a.models.split(",") if name not in MODELS]:
        p.error(f"--models: no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if a.compile:
        if not (a.torch and os.environ.get("TORCHINDUCTOR_CACHE_DIR")):
            p.error("--compile needs --torch PYTHON and TORCHINDUCTOR_CACHE_DIR, a folder of its own")
        return compile_all(a.torch, a.models.split(","), a.torch_mode)
    end, failed = time.time() + a.limit, False

    def left():
        return min(MOST_S, end - time.time())

    print(f"{'model':<12} {'tok/s':>8} {'MFU':>6} {'nominal':>7} {'MiB':>7} {'graph':>5}   {'torch':>8} {'MiB':>7}   "
          f"{'ratio':>6}  bars")
    with tempfile.TemporaryDirectory() as folder:
        for name in a.models.split(","):
            if left() <= 0:
                print(f"{name:<12} not run: {a.limit:.0f} s are over")
                failed = True
                continue
            ours, word = attempt(f"{name} of orrery", lambda: orrery(a.build, name, a.steps, folder, left()))
            peer, peer_word = None, "not run" if a.torch else "-"
            if a.torch and left() > 0:
                peer, peer_word = attempt(f"{name} of PyTorch",
                                          lambda: torch(a.torch, name, a.steps, a.torch_mode, left()))
            row = f"{name:<12} "
            nominal = f"{100 * ours['nominal']:.1f}%" if ours and ours["nominal"] > 0 else "-"
            row += (f"{ours['tok_s']:>8.0f} {100 * ours['mfu']:>5.1f}% {nominal:>7} "
                    f"{ours['mib']:>7.0f} {'yes' if ours['captured'] else 'NO':>5}   " if ours
                    else f"{word:>8} {'':>6} {'':>7} {'':>7} {'':>5}   ")
            row += f"{peer['tok_s']:>8.0f} {peer['memory_mib']:>7.0f}   " if peer else f"{peer_word:>8} {'-':>7}   "
            bars = []
            if ours and peer:
                ratio = ours["tok_s"] / peer["tok_s"]
                row += f"{ratio:>6.2f}  "
                bars += [("speed", ratio >= 1.1), ("memory", ours["mib"] <= peer["memory_mib"])]
            else:
                row += f"{'-':>6}  "
            if ours:
                bars += [("MFU", ours["mfu"] >= 0.55)] if name != "gpt2_124m" else []
                bars += [("graph", ours["captured"]), ("steady memory", ours["steady"])]
            if a.torch and not peer:
                bars += [("PyTorch", False)]
            failed |= not ours or not all(good for _, good in bars)
            print(row + ", ".join(f"{what} {'ok' if good else 'MISSED'}" for what, good in bars))
            notes = (ours["notes"] if ours else []) + (peer["notes"] if peer else [])
            print("".join(f"  {name}: {note}\n" for note in notes), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
