#!/usr/bin/env python3
"""The PyTorch peer of tests/sweeps/coded_links.py: the GPT of configs/quickstart.toml under DDP over gloo, its
gradients sent by DDP's PowerSGD hook. One JSON line a rank.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 \\
        python3 links_torch.py --rank 8 --steps 8

--rank  of the factors; 0: DDP's own all-reduce. tok_s: of all ranks, from the median step after the first quarter.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from step_torch import GPT, MODELS, Adam
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--rank", type=int, default=8)
    arg.add_argument("--steps", type=int, default=8)
    o = arg.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    c = MODELS["gpt_rope"] | dict(seq=128, batch=2)
    # One bucket: with several, the hook's later messages begin in another order on each rank, and gloo mixes them up.
    model = torch.nn.parallel.DistributedDataParallel(GPT(c), bucket_cap_mb=100)
    if o.rank:
        state = power_sgd.PowerSGDState(None, matrix_approximation_rank=o.rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, power_sgd.powerSGD_hook)
    optimizer, took = Adam(model.parameters()), []
    for _ in range(o.steps):
        words = torch.randint(0, c["vocab"], (c["batch"], c["seq"] + 1))
        began = time.perf_counter()
        loss = model(words[:, :-1], words[:, 1:])
        loss.backward()
        optimizer.step()
        loss.item()
        took.append(time.perf_counter() - began)
    step = statistics.median(took[max(2, o.steps // 4):])
    tokens = dist.get_world_size() * c["batch"] * c["seq"]
    print(json.dumps(dict(peer="torch " + torch.__version__, rank=o.rank, step_s=step, tok_s=tokens / step)))
    dist.destroy_process_group()


main()
