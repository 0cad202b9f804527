#!/usr/bin/env python3
"""The PyTorch peer of bench/gpu.py: one model a process, one JSON line on stdout.

    python3 gpu_torch.py --model gpt2_124m --steps 20

bf16 autocast over fp32 weights, torch.compile, scaled_dot_product_attention (flash), fused AdamW, clipping by global
norm. tok_s is from the median step; memory_mib is what cudaMemGetInfo says is used after the steps, as Orrery's is.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from gpu import MODELS


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, self.heads, self.groups = c["embed"], c["heads"], c.get("kv_heads") or c["heads"]
        self.llama = c["model"] == "llama"
        self.dim, bias = width // c["heads"], not self.llama
        norm = nn.RMSNorm if self.llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.groups) * self.dim, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, 2 * c["mlp"] if self.llama else c["mlp"], bias=bias)
        self.down = nn.Linear(c["mlp"], width, bias=bias)

    def forward(self, x_BTC, cos, sin):
        B, T, C = x_BTC.shape
        q, k, v = self.qkv(self.norm1(x_BTC)).view(B, T, -1, self.dim).split(
            [self.heads, self.groups, self.groups], 2)
        if self.llama:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                           enable_gqa=self.groups != self.heads)
        x_BTC = x_BTC + self.proj(y.transpose(1, 2).reshape(B, T, C))
        y = self.up(self.norm2(x_BTC))
        if self.llama:
            gate, up = y.chunk(2, -1)
            return x_BTC + self.down(F.silu(gate) * up)
        return x_BTC + self.down(F.gelu(y, approximate="tanh"))


def rotate(x_BTHD, cos, sin):
    a, b = x_BTHD.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x_BTHD.dtype)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, self.llama = c["embed"], c["model"] == "llama"
        self.tokens = nn.Embedding(c["vocab"], width)
        self.positions = None if self.llama else nn.Embedding(c["seq"], width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(width, eps=1e-5) if self.llama else nn.LayerNorm(width, eps=1e-5)
        self.head = nn.Linear(width, c["vocab"], bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        if not self.llama:
            self.head.weight = self.tokens.weight
        dim = width // c["heads"]
        angle = torch.arange(c["seq"])[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", angle.cos()[None, :, None, :])
        self.register_buffer("sin", angle.sin()[None, :, None, :])

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--model", choices=MODELS, default="gpt2_124m")
    arg.add_argument("--steps", type=int, default=20)
    arg.add_argument("--warmup", type=int, default=4)
    arg.add_argument("--mode", choices=("compile", "eager"), default="compile")
    o = arg.parse_args()
    c = MODELS[o.model]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    net = Model(c).cuda()
    groups = [dict(params=[p for p in net.parameters() if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in net.parameters() if p.dim() < 2], weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    loss_of = torch.compile(net) if o.mode == "compile" else net
    tokens = torch.randint(0, c["vocab"], (c["batch"], c["seq"] + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss.item()                                               # waits for the step, as Orrery does

    for _ in range(o.warmup):
        step()
    times = []
    for _ in range(o.steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info()
    print(json.dumps(dict(peer="torch " + torch.__version__, mode=o.mode, memory_mib=(total - free) / 2**20,
                          tok_s=c["batch"] * c["seq"] / statistics.median(times))))


if __name__ == "__main__":
    main()
