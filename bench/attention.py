#!/usr/bin/env python3
"""Attention over packed documents compared with PyTorch's scaled_dot_product_attention with an explicit mask.

    scripts/build bench_attention
    PYTHON bench/attention.py [--tokens 4096] [--threads 2] [--rounds 7]

PYTHON is an interpreter that has torch. Both compute the forward pass and the gradient of 6 heads of 64 elements in f32
over one row of documents (142 tokens in the mean), which build/bench/bench_attention draws. PyTorch gets a boolean mask
[tokens, tokens]. A round is one run of each in turn; medians of the rounds count.
"""
import argparse
import pathlib
import statistics
import subprocess
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", default=str(ROOT / "build" / "bench" / "bench_attention"))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    ours = subprocess.Popen([asked.program, str(asked.tokens), str(asked.threads), "serve"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    lengths = [int(n) for n in ours.stdout.readline().split()]
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = (document[:, None] == document[None, :]).tril()
    q, k, v = (torch.rand(1, 6, asked.tokens, 64, requires_grad=True) for _ in range(3))
    d_o = torch.rand(1, 6, asked.tokens, 64)

    def theirs():
        begin = time.perf_counter()
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        middle = time.perf_counter()
        torch.autograd.grad(o, (q, k, v), d_o)
        return middle - begin, time.perf_counter() - middle

    def served():
        ours.stdin.write("go\n")
        ours.stdin.flush()
        return tuple(float(s) for s in ours.stdout.readline().split())

    theirs(), served()
    rounds = [(theirs(), served()) for _ in range(asked.rounds)]
    ours.stdin.close()
    ours.wait()
    print(f"torch {torch.__version__}, {asked.tokens} tokens, {len(lengths)} documents, threads {asked.threads}, "
          f"medians of {asked.rounds} rounds")
    print(f"{'':<10}{'PyTorch ms':>12}{'Orrery ms':>12}{'ratio':>8}")
    for name, of in (("forward", lambda t: t[0]), ("gradient", lambda t: t[1]), ("both", sum)):
        torch_s, own_s = (statistics.median(of(r[i]) for r in rounds) for i in (0, 1))
        print(f"{name:<10}{1e3 * torch_s:>12.2f}{1e3 * own_s:>12.2f}{torch_s / own_s:>8.1f}")


if __name__ == "__main__":
    main()
