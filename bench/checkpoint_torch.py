"""checkpoint.py's peer: PyTorch's DCP saves the same bytes on two ranks of one thread each, which train meanwhile.

    torchrun --nproc-per-node 2 bench/checkpoint_torch.py BYTES ROUNDS FOLDER STEP_SECONDS

State of BYTES in 48 tensors, the same on both ranks, as data parallel training has it; steps of about STEP_SECONDS:
products and an all-reduce of a third of the bytes, as gradients. A round: five steps, save (all wait), five steps,
async_save, steps until it is done. Prints a JSON line: medians of what a save holds the training, until it is durable,
and of steps beside it and without.
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def main():
    size, rounds, folder, step_s = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    saves = dist.new_group()  # its rounds must not mix with the steps'
    torch.manual_seed(7)
    state = {f"w{i}": torch.randn(size // 4 // 48) for i in range(48)}
    gradient = torch.zeros(size // 4 // 3)
    a, b = torch.randn(512, 1024), torch.randn(1024, 1024)

    def products(count):
        for _ in range(count):
            a @ b

    products(10)
    began = time.perf_counter()
    products(50)
    count = torch.tensor(max(1, int(step_s / ((time.perf_counter() - began) / 50))))
    dist.broadcast(count, 0)

    def step():
        began = time.perf_counter()
        products(int(count))
        dist.all_reduce(gradient)
        for value in state.values():
            value.add_(1e-6)
        return time.perf_counter() - began

    told = {"save": [], "held": [], "durable": [], "others": [], "beside": []}
    for n in range(rounds):
        told["others"] += [step() for _ in range(5)]
        began = time.perf_counter()
        dcp.save(state, checkpoint_id=f"{folder}/save{n}", process_group=saves)
        told["save"].append(time.perf_counter() - began)
        told["others"] += [step() for _ in range(5)]
        began = time.perf_counter()
        work = dcp.async_save(state, checkpoint_id=f"{folder}/async{n}", process_group=saves)
        ended = []
        work.add_done_callback(lambda _: ended.append(time.perf_counter()))
        told["held"].append(time.perf_counter() - began)
        over = torch.tensor(0)
        while not over:
            told["beside"].append(step())
            over.fill_(bool(ended))
            dist.all_reduce(over, dist.ReduceOp.MIN)
        work.result()
        told["durable"].append(ended[0] - began)
    if dist.get_rank() == 0:
        print(json.dumps({name: statistics.median(times) for name, times in told.items()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
