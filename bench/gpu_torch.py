#!/usr/bin/env python3
"""The PyTorch peer of bench/gpu.py: one model a process, one JSON line on stdout.

    python3 gpu_torch.py --model gpt2_124m --steps 20 [--mode blocks]

bf16 autocast over fp32 weights, torch.compile, scaled_dot_product_attention (flash), fused AdamW, clipping by global
norm. tok_s is from the median step; memory_mib is what cudaMemGetInfo says is used after the steps, as Orrery's is.

--mode  blocks  three graphs: the embedding, one block, whose code all blocks share, and the last norm with the head and
                the loss. PyTorch calls it regional compilation and torchtitan trains so. What it loses to `model` is
                fusion over a block's edge: the sum that ends a block is read again by the next one's norm
        model   one graph of all blocks: the compiler sees each of them, and takes minutes for 48
        eager   no compiler
compile_s is what the first step took, graphs how many the compiler made; it may not fall back to eager code unseen.
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

    def embed(self, tokens):
        x_BTC = self.tokens(tokens)
        return x_BTC if self.positions is None else x_BTC + self.positions.weight[: tokens.shape[1]]

    def loss(self, x_BTC, targets):
        return F.cross_entropy(self.head(self.norm(x_BTC)).flatten(0, 1), targets.flatten())

    def forward(self, tokens, targets):
        x_BTC = self.embed(tokens)
        for block in self.blocks:
            x_BTC = block(x_BTC, self.cos, self.sin)
        return self.loss(x_BTC, targets)

    def compiled(self, mode):
        """Itself, compiled as `mode` says. fullgraph: what the compiler cannot take, or compiles too often, raises."""
        if mode == "model":
            self.compile(fullgraph=True)
        elif mode == "blocks":
            self.embed = torch.compile(self.embed, fullgraph=True)
            self.loss = torch.compile(self.loss, fullgraph=True)
            for block in self.blocks:
                block.compile(fullgraph=True)
        return self


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--model", choices=MODELS, default="gpt2_124m")
    arg.add_argument("--steps", type=int, default=20)
    arg.add_argument("--warmup", type=int, default=4)
    arg.add_argument("--mode", choices=("blocks", "model", "eager"), default="blocks")
    o = arg.parse_args()
    c = MODELS[o.model]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    net = Model(c).cuda().compiled(o.mode)
    groups = [dict(params=[p for p in net.parameters() if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in net.parameters() if p.dim() < 2], weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.randint(0, c["vocab"], (c["batch"], c["seq"] + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss.item()                                               # waits for the step, as Orrery does

    times = []
    for _ in range(1 + o.warmup):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    first, times = times[0], []
    for _ in range(o.steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] if o.mode != "eager" else 0
    print(json.dumps(dict(peer="torch " + torch.__version__, mode=o.mode, memory_mib=(total - free) / 2**20,
                          compile_s=first, graphs=graphs, tok_s=c["batch"] * c["seq"] / statistics.median(times))))


if __name__ == "__main__":
    main()
