#!/usr/bin/env python3
"""The PyTorch peer of restart.py: a tiny GPT under torchrun, gloo, DDP, DCP's async_save every 10 steps.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # restart.py says why
    torchrun --standalone --nproc-per-node 4 --max-restarts 3 restart_torch.py FOLDER

Rank 0 writes steps.jsonl: which start, step, time. Goes on from the newest checkpoint that is whole.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

LAYERS, WIDE, HEADS, WORDS, TOKENS, EVERY = 2, 48, 3, 256, 32, 10


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDE), torch.nn.LayerNorm(WIDE)
        self.qkv, self.out = torch.nn.Linear(WIDE, 3 * WIDE), torch.nn.Linear(WIDE, WIDE)
        self.up, self.down = torch.nn.Linear(WIDE, 4 * WIDE), torch.nn.Linear(4 * WIDE, WIDE)

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDE), torch.nn.Embedding(TOKENS, WIDE)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = torch.nn.LayerNorm(WIDE), torch.nn.Linear(WIDE, WORDS)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places.weight)))


def newest(folder):
    """The newest step whose metadata, which DCP writes last, is there; 0: none."""
    steps = [int(name) for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, ".metadata"))]
    return max(steps, default=0)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("gloo")
    savers = dist.new_group()  # beside the gradients of the default one they would wait for each other
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    saves = os.path.join(sys.argv[1], "saves")
    os.makedirs(saves, exist_ok=True)
    model = torch.nn.parallel.DistributedDataParallel(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    at = [newest(saves)]
    dist.broadcast_object_list(at)
    step = at[0]
    if step:
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=os.path.join(saves, str(step)))
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    said = open(os.path.join(sys.argv[1], "steps.jsonl"), "a") if dist.get_rank() == 0 else None
    under_way = None
    while True:
        step += 1
        text = torch.randint(0, WORDS, (1, TOKENS + 1))
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if said:
            said.write(json.dumps({"start": start, "step": step, "time": time.time()}) + "\n")
            said.flush()
        if step % EVERY == 0:
            if under_way:
                under_way.result()
            weights, moments = get_state_dict(model, optimizer)
            under_way = dcp.async_save({"model": weights, "optimizer": moments},
                                       checkpoint_id=os.path.join(saves, str(step)), process_group=savers)


if __name__ == "__main__":
    main()
