#!/usr/bin/env python3
"""Attention by index against PyTorch's with an explicit mask, number by number, in float64.

    scripts/conformance/attention.py [--program build/unit_tests] [--table FILE]

The unit tests' program draws 200 attentions (documents, padding, windows, grouped heads, another head dim of values,
rows out of order) and prints them with what the reference kernels compute. PyTorch computes o by
scaled_dot_product_attention with a boolean mask [queries, keys], lse by logsumexp of the masked scores, and the
gradients of sum(o do) + sum(lse dlse) by autograd. Needs torch, no GPU. Exit code 1: a number differs by more than
1e-10 of the largest of its array.
"""
import argparse
import datetime
import math
import pathlib
import subprocess
import sys

import torch

root = pathlib.Path(__file__).resolve().parents[2]
arrays = ("o", "lse", "dq", "dk", "dv")
names = ("sizes", "scale", "documents", "positions", "key_documents", "key_positions", "q", "k", "v", "do", "dlse")


def cases(program):
    """Yields a dict by case: name -> list of floats."""
    printed = subprocess.run([program, "[.drawn]"], check=True, capture_output=True, text=True).stdout
    case = {}
    for line in printed.splitlines():
        name, *numbers = line.split() or [""]
        if name not in (*names, *arrays):
            continue  # Catch2's own lines
        case[name] = [float(n) for n in numbers]
        if name == arrays[-1]:
            yield case
            case = {}


def theirs(case):
    batch, queries, keys, heads, groups, head_dim, value_dim, causal, window = (int(n) for n in case["sizes"])

    def tensor(name, *shape, grad=False):
        return torch.tensor(case[name], dtype=torch.float64).reshape(shape).requires_grad_(grad)

    q = tensor("q", batch, queries, heads, head_dim, grad=True)
    k = tensor("k", batch, keys, groups, head_dim, grad=True)
    v = tensor("v", batch, keys, groups, value_dim, grad=True)
    documents, positions = tensor("documents", batch, queries, 1), tensor("positions", batch, queries, 1)
    key_documents, key_positions = tensor("key_documents", batch, 1, keys), tensor("key_positions", batch, 1, keys)
    mask = (documents == key_documents) & (documents >= 0)
    if causal:
        mask &= key_positions <= positions
    if window:
        mask &= positions - key_positions < window
    mask = mask[:, None]  # [batch, 1, queries, keys]
    sees = mask.any(-1).expand(batch, heads, queries)
    repeated = [x.repeat_interleave(heads // groups, 2) for x in (k, v)]
    by_head = [x.transpose(1, 2) for x in (q, *repeated)]
    scale = case["scale"][0]
    # A query that sees no key sees all of them here, and its result is 0 times that.
    open_mask = mask | ~mask.any(-1, keepdim=True)
    o = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=open_mask, scale=scale)
    o = torch.where(sees[..., None], o, 0.0).transpose(1, 2)
    scores = (by_head[0] @ by_head[1].transpose(2, 3) * scale).masked_fill(~open_mask, -math.inf)
    lse = torch.logsumexp(scores, -1)
    d_lse = tensor("dlse", batch, heads, queries)
    ((o * tensor("do", batch, queries, heads, value_dim)).sum() + torch.where(sees, lse * d_lse, 0.0).sum()).backward()
    lse = torch.where(sees, lse, -math.inf)
    return dict(zip(arrays, (o, lse, q.grad, k.grad, v.grad))), int((~sees).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=root / "build" / "unit_tests", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    asked = parser.parse_args()
    worst, count, blind, bad = dict.fromkeys(arrays, 0.0), 0, 0, 0
    for case in cases(asked.program):
        expected, unseen = theirs(case)
        count, blind = count + 1, blind + unseen
        for name in arrays:
            a, b = torch.tensor(case[name], dtype=torch.float64), expected[name].detach().flatten()
            finite = torch.isfinite(b)
            if not torch.equal(a[~finite], b[~finite]) or a.shape != b.shape:
                bad += 1
                print(f"case {count}: {name} has infinities at other elements")
                continue
            off = float((a - b)[finite].abs().max() / b[finite].abs().max().clamp(min=1)) if finite.any() else 0.0
            worst[name] = max(worst[name], off)
            if off > 1e-10:
                bad += 1
                print(f"case {count}: {name} differs by {off:.2g} of its largest number")
    lines = [f"# Against torch {torch.__version__.split('+')[0]}", "",
             f"{datetime.date.today()}, `scripts/conformance/attention.py`: {count} attentions by documents and "
             f"positions in float64, {blind} queries that see no key.", "",
             "| array | largest difference relative to its largest number |", "|---|---|"]
    lines += [f"| {name} | {worst[name]:.1e} |" for name in arrays]
    print("\n".join(lines))
    if asked.table:
        asked.table.write_text("\n".join(lines) + "\n")
    print(f"{count} attentions, {bad} differ")
    return 1 if bad or count != 200 else 0


if __name__ == "__main__":
    sys.exit(main())
