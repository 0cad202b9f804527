#!/usr/bin/env python3
"""The PyTorch peer of the training-step benchmark: one configuration a process, one JSON line on stdout.

    python3 step_torch.py --model gpt --threads 2 --dtype fp32 --mode compile --steps 10

--model  gpt         6 layers, 384 wide, 6 heads, 256 tokens, batch 16, vocab 256 (bytes)
         gpt_rope    the same with rotary positions, RMSNorm, SwiGLU, no biases, own head (scripts/quickstart)
         gpt2_124m   12 layers, 768 wide, 12 heads, 512 tokens, batch 2, vocab 50257
         mixtral     transformers' model of gpt's sizes with 8 experts 512 wide, 2 of a token
         qwen3_moe   the same with 32 experts 256 wide, 4 of a token
--dtype  fp32; bf16 (weights and activations bf16, fp32 masters and moments); autocast (torch.autocast, fp32 weights)
--mode   eager; compile (torch.compile of the loss); either with transformers' grouped products of experts, as in
         eager:grouped_mm; gemm (fp32 or bf16 matrix rate only, square and model-like)

A step is forward, backward, clipping by global norm and fused AdamW. tok_s is from the median step after the warm-up;
cpu_s is every thread's processor time in a step, which says more on a busy machine; peak_rss_mib is the process's peak
during the timed steps (the kernel's mark is reset after the warm-up).

On a processor without bf16 instructions PyTorch's bf16 is some 20 times slower than its fp32 (an AVX2 machine: 41
against 950 tokens of `gpt` per second of processor time): there fp32 is the peer to beat, and --batch keeps a bf16 step
within seconds.
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = dict(
    gpt=dict(layers=6, embed=384, heads=6, seq=256, batch=16, vocab=256, rope=False),
    gpt_rope=dict(layers=6, embed=384, heads=6, seq=256, batch=16, vocab=256, rope=True),
    gpt2_124m=dict(layers=12, embed=768, heads=12, seq=512, batch=2, vocab=50257, rope=False),
    mixtral=dict(layers=6, embed=384, heads=6, seq=256, batch=16, vocab=256, experts=8, chosen=2, hidden=512),
    qwen3_moe=dict(layers=6, embed=384, heads=6, seq=256, batch=16, vocab=256, experts=32, chosen=4, hidden=256),
)


def make_norm(width, rope):
    return nn.RMSNorm(width, eps=1e-5) if rope else nn.LayerNorm(width, eps=1e-5)


def rotate(x_BTHD, cos, sin):
    a, b = x_BTHD.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, rope = c["embed"], c["rope"]
        self.heads, self.rope = c["heads"], rope
        self.norm1, self.norm2 = make_norm(width, rope), make_norm(width, rope)
        self.qkv = nn.Linear(width, 3 * width, bias=not rope)
        self.proj = nn.Linear(width, width, bias=not rope)
        hidden = 8 * width // 3 if rope else 4 * width
        self.up = nn.Linear(width, 2 * hidden if rope else hidden, bias=not rope)   # SwiGLU: gate and up side by side
        self.down = nn.Linear(hidden, width, bias=not rope)

    def forward(self, x_BTC, angles):
        B, T, C = x_BTC.shape
        q, k, v = self.qkv(self.norm1(x_BTC)).view(B, T, 3, self.heads, C // self.heads).unbind(2)
        if self.rope:
            q, k = rotate(q, *angles), rotate(k, *angles)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x_BTC = x_BTC + self.proj(y.transpose(1, 2).reshape(B, T, C))
        y = self.up(self.norm2(x_BTC))
        if self.rope:
            gate, up = y.chunk(2, -1)
            return x_BTC + self.down(F.silu(gate) * up)
        return x_BTC + self.down(F.gelu(y, approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, head_dim = c["embed"], c["embed"] // c["heads"]
        self.tokens = nn.Embedding(c["vocab"], width)
        self.positions = None if c["rope"] else nn.Embedding(c["seq"], width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = make_norm(width, c["rope"])
        self.head = nn.Linear(width, c["vocab"], bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        if not c["rope"]:
            self.head.weight = self.tokens.weight
        rate = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angle = (torch.arange(c["seq"])[:, None] * rate)[None, :, None, :]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Mixture(nn.Module):
    """A mixture of experts of transformers; how: its implementation of experts."""

    def __init__(self, model, c, how):
        super().__init__()
        import transformers
        kind = {"mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe"}[model]
        sizes = {"mixtral": dict(num_local_experts=c["experts"], intermediate_size=c["hidden"]),
                 "qwen3_moe": dict(num_experts=c["experts"], moe_intermediate_size=c["hidden"], norm_topk_prob=True)}
        config = getattr(transformers, kind + "Config")(
            hidden_size=c["embed"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
            num_key_value_heads=c["heads"], head_dim=c["embed"] // c["heads"], vocab_size=c["vocab"],
            max_position_embeddings=c["seq"], num_experts_per_tok=c["chosen"], use_cache=False,
            attn_implementation="sdpa", experts_implementation=how, **sizes[model])
        self.net = getattr(transformers, kind + "ForCausalLM")(config)

    def active(self, c):
        """Parameters of matrix products that a token uses."""
        experts = sum(p.numel() for name, p in self.net.named_parameters() if ".experts." in name)
        rest = sum(p.numel() for name, p in self.net.named_parameters() if ".experts." not in name and p.dim() > 1)
        return rest - self.net.get_input_embeddings().weight.numel() + experts * c["chosen"] // c["experts"]

    def forward(self, tokens, targets):
        return F.cross_entropy(self.net(tokens).logits.flatten(0, 1), targets.flatten())


class Adam:
    """Fused AdamW; for bf16 weights it updates fp32 masters and copies them back."""

    def __init__(self, params):
        self.params = list(params)
        self.master = [p.detach().float().requires_grad_(True) if p.dtype != torch.float32 else p for p in self.params]
        groups = [dict(params=[m for m in self.master if m.dim() >= 2], weight_decay=0.1),
                  dict(params=[m for m in self.master if m.dim() < 2], weight_decay=0.0)]
        self.inner = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def step(self):
        copied = self.master[0] is not self.params[0]
        if copied:
            for m, p in zip(self.master, self.params):
                m.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.master, 1.0)
        self.inner.step()
        if copied:
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.master)
        self.inner.zero_grad(set_to_none=True)


def gemm_gflops(dtype, m, n, k, seconds=1.0):
    """Rate of y[m,n] = a[m,k] b[n,k]^T in GFLOP/s (median)."""
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        t = time.perf_counter()
        F.linear(a, b)
        times.append(time.perf_counter() - t)
    return 2 * m * n * k / statistics.median(times) / 1e9


def flops_per_token(c, params):
    """6 per parameter of a matrix product, plus causal attention: T/2 keys, 4 forward and 8 backward for each of C."""
    return 6 * params + 12 * c["layers"] * c["embed"] * c["seq"] / 2


def peak_mib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def reset_peak():
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--model", choices=MODELS, default="gpt")
    arg.add_argument("--threads", type=int, default=2)
    arg.add_argument("--dtype", choices=("fp32", "bf16", "autocast"), default="fp32")
    arg.add_argument("--mode", default="eager",
                     choices=("eager", "compile", "eager:grouped_mm", "compile:grouped_mm", "gemm"))
    arg.add_argument("--steps", type=int, default=10)
    arg.add_argument("--warmup", type=int, default=3)
    arg.add_argument("--batch", type=int, default=0, help="sequences a step; 0: as above")
    o = arg.parse_args()
    c = MODELS[o.model] | (dict(batch=o.batch) if o.batch else {})
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    line = dict(peer="torch " + torch.__version__, **vars(o))
    if o.mode == "gemm":
        dtype = torch.float32 if o.dtype == "fp32" else torch.bfloat16
        line["gflops_2048"] = round(gemm_gflops(dtype, 2048, 2048, 2048), 1)
        line["gflops_mlp"] = round(gemm_gflops(dtype, c["batch"] * c["seq"], 4 * c["embed"], c["embed"]), 1)
        print(json.dumps(line))
        return
    mode, _, how = o.mode.partition(":")
    if "experts" in c:
        net = Mixture(o.model, c, how or "eager")
        used = net.active(c)
    elif how:
        arg.error(f"--mode {o.mode}: {o.model} has no experts\n  use {mode}")
    else:
        net = GPT(c)
        # Tied or not, the head is a matrix product; the embedding and positions alone are looked up.
        used = sum(p.numel() for b in net.blocks for p in b.parameters()) + net.head.weight.numel()
    if o.dtype == "bf16":
        net = net.to(torch.bfloat16)
    adam = Adam(net.parameters())
    loss_of = torch.compile(net) if mode == "compile" else net
    tokens = torch.randint(0, c["vocab"], (c["batch"], c["seq"] + 1))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.dtype == "autocast"):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        adam.step()
        return loss.item()

    for _ in range(o.warmup):
        step()
    reset_peak()
    times, cpu = [], []
    for _ in range(o.steps):
        t, p = time.perf_counter(), time.process_time()
        loss = step()
        times.append(time.perf_counter() - t)
        cpu.append(time.process_time() - p)
    assert math.isfinite(loss)
    median = statistics.median(times)
    count = c["batch"] * c["seq"]
    line.update(params=sum(p.numel() for p in net.parameters()), step_s=round(median, 4), min_s=round(min(times), 4),
                cpu_s=round(statistics.median(cpu), 4), tok_s=round(count / median, 1), loss=round(loss, 4),
                model_gflops=round(count / median * flops_per_token(c, used) / 1e9, 1), peak_rss_mib=round(peak_mib()),
                peak_rss_with_warmup_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    print(json.dumps(line))


if __name__ == "__main__":
    main()
