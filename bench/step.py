#!/usr/bin/env python3
"""Training step of Orrery against PyTorch's, interleaved: medians of tokens/s, share of the matrix rate, memory.

    python3 bench/step.py --torch PYTHON [--models gpt,gpt2_124m] [--threads 1,2] [--dtypes f32] [--rounds 3]
    python3 bench/step.py --before TREE                          # against another commit's tree, built there

PYTHON is an interpreter that has PyTorch; without --torch and --before only Orrery is timed. `before` is the ratio to
TREE's medians. A round is one process of each side;
the table has the median over rounds of each process' median step. `dense` is the ratio of a mixture of experts to a
dense model with as many active FLOPs, timed in the same rounds. MFU is model flops (6 N per token plus 12 T C per
token and layer) over the rate of products of the kind that runs. MiB is the peak of the
process: Orrery's from its start, PyTorch's of the timed steps. Two ranks of one thread each are compared with one rank
of two threads in the last column (2x1).
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SMALL = dict(layers=6, embed=384, heads=6, seq=256, batch=16, vocab=256)
# Tokens' embeddings differ enough that experts have nearly even loads from the first step on.
LLAMA = dict(SMALL, script={"model": "llama", "mlp": 1024, "embed_std": 1.0})
QWEN3 = dict(SMALL, script={"model": "llama", "mlp": 1024, "embed_std": 1.0, "qk_norm": "true"})
MODELS = {
    "gpt": SMALL,
    "mixtral": dict(SMALL, dense=LLAMA, script={"model": "mixtral", "mlp": 512, "experts": 8, "top_k": 2,
                                                "embed_std": 1.0}),
    "qwen3_moe": dict(SMALL, dense=QWEN3, script={"model": "qwen3_moe", "expert_mlp": 256, "experts": 32, "top_k": 4,
                                                  "embed_std": 1.0}),
    "gpt2_124m": dict(layers=12, embed=768, heads=12, seq=512, batch=2, vocab=50257),
}


def tokens_file(folder, vocab):
    """A token file of a fixed pseudo-random sequence: the speed of a step does not depend on the text."""
    path = os.path.join(folder, f"tokens_{vocab}.bin")
    if not os.path.exists(path):
        state, tokens = 1, []
        for _ in range(200_000):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            tokens.append((state >> 33) % vocab)
        with open(path, "wb") as f:
            f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    return path


def orrery(m, threads, dtype, ranks, steps, folder, tree=ROOT):
    run = tempfile.mkdtemp(dir=folder)
    sets = {
        "run.folder": run, "run.threads_per_rank": threads, "mesh.dp": ranks, "train.steps": steps,
        "train.precision": dtype, "train.sequences_per_step": m["batch"], "data.path": tokens_file(folder, m["vocab"]),
        "data.tokens_per_sequence": m["seq"], "data.vocab": m["vocab"], "data.validation": 0,
        "script.layers": m["layers"], "script.embed": m["embed"], "script.heads": m["heads"],
    } | {f"script.{key}": value for key, value in m.get("script", {}).items()}
    command = [os.path.join(tree, "build", "orrery"), "run", os.path.join(tree, "scripts", "gpt.lua")]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)                          # of it and the processes that it waited for
    if status != 0:
        sys.exit(f"step.py: {' '.join(command)} ended with status {status}")
    with open(os.path.join(run, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f][2:]                     # two steps of warm-up
    return dict(tok_s=statistics.median(line["tok/s"] for line in lines),
                mfu=statistics.median(line["MFU"] for line in lines), mib=usage.ru_maxrss / 2**10)


def torch(python, model, threads, dtype, mode, steps):
    command = [python, os.path.join(ROOT, "bench", "step_torch.py"), "--model", model, "--threads", str(threads),
               "--dtype", {"f32": "fp32"}.get(dtype, dtype), "--mode", mode, "--steps", str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"step.py: PyTorch's {mode} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    line = json.loads(done.stdout.strip().splitlines()[-1])
    return dict(tok_s=line["tok_s"], mib=line["peak_rss_mib"])


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--torch")
    p.add_argument("--before", metavar="TREE")
    p.add_argument("--models", default="gpt,gpt2_124m")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--dtypes", default="f32")
    p.add_argument("--modes", default="eager,compile")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=8)
    a = p.parse_args()
    print(f"{'model':<10} {'dtype':<5} {'thr':>3} {'orrery':>8} {'MFU':>6} {'MiB':>6}   "
          f"{'torch':>8} {'mode':<8} {'MiB':>6}"
          f"   {'ratio':>6} {'2x1':>6} {'before':>6} {'dense':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for model in a.models.split(","):
            for dtype in a.dtypes.split(","):
                for threads in map(int, a.threads.split(",")):
                    ours, split, before, dense, peers, m = [], [], [], [], {}, MODELS[model]
                    for _ in range(a.rounds):
                        if a.before:
                            before.append(orrery(m, threads, dtype, 1, a.steps, folder, a.before))
                        ours.append(orrery(m, threads, dtype, 1, a.steps, folder))
                        if threads == 2:
                            split.append(orrery(m, 1, dtype, 2, a.steps, folder))
                        if "dense" in m:
                            dense.append(orrery(m["dense"], threads, dtype, 1, a.steps, folder))
                        for mode in a.modes.split(",") if a.torch else []:
                            peer = torch(a.torch, model, threads, dtype, mode, a.steps)
                            if peer:
                                peers.setdefault(mode, []).append(peer)
                    row = (f"{model:<10} {dtype:<5} {threads:>3} {median(ours, 'tok_s'):>8.0f} "
                           f"{100 * median(ours, 'mfu'):>5.1f}% {median(ours, 'mib'):>6.0f}   ")
                    if peers:
                        best = max(peers, key=lambda mode: median(peers[mode], "tok_s"))
                        row += (f"{median(peers[best], 'tok_s'):>8.0f} {best:<8} {median(peers[best], 'mib'):>6.0f}   "
                                f"{median(ours, 'tok_s') / median(peers[best], 'tok_s'):>6.2f}")
                    else:
                        row += f"{'-':>8} {'-':<8} {'-':>6}   {'-':>6}"
                    row += f" {median(split, 'tok_s') / median(ours, 'tok_s'):>6.3f}" if split else f" {'-':>6}"
                    row += f" {median(ours, 'tok_s') / median(before, 'tok_s'):>6.3f}" if before else f" {'-':>6}"
                    row += f" {median(ours, 'tok_s') / median(dense, 'tok_s'):>6.3f}" if dense else f" {'-':>6}"
                    print(row, flush=True)


if __name__ == "__main__":
    sys.exit(main())
