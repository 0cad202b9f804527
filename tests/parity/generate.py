#!/usr/bin/env python3
"""Writes the reference numbers of tests/parity: GPT-2, Llama and Qwen2 at small odd sizes.

    python3 generate.py           writes gpt2/, llama/ and qwen2/ beside this file
    python3 generate.py --check   compares a fresh run with the files that are there, writes nothing

Needs torch, numpy and safetensors; README.md says what is in the files. Shape legend: B batch, T time,
C embed, H heads, G kv heads, D head dim.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

ADAMW = dict(steps=10, lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=1.0)
MODELS = dict(
    gpt2=dict(seed=2, vocab=97, batch=3, seq=13, context=16, embed=36, heads=4, kv_heads=4, layers=3, mlp=50,
              norm_eps=1e-5, tied=True),
    llama=dict(seed=3, vocab=97, batch=3, seq=13, context=16, embed=40, heads=4, kv_heads=2, layers=2, mlp=50,
               norm_eps=1e-5, rope_theta=10000.0, tied=False),
    qwen2=dict(seed=5, vocab=89, batch=3, seq=13, context=16, embed=36, heads=6, kv_heads=2, layers=3, mlp=50,
               norm_eps=1e-6, rope_theta=1000000.0, tied=True),
)


# ---- the models, over a dictionary of parameters under the published names -------------------------------------------

def attention(q_BTHD, k_BTGD, v_BTGD):
    """Causal attention; head h reads kv head h / (H / G)."""
    T, D = q_BTHD.shape[1], q_BTHD.shape[3]
    share = q_BTHD.shape[2] // k_BTGD.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q_BTHD, k_BTGD, v_BTGD))
    k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    return (scores.masked_fill(future, -math.inf).softmax(-1) @ v).transpose(1, 2)


def gpt2(w, cfg, tokens):
    """GPT-2: pre-LN, learned positions, Conv1D weights [in, out], tanh gelu, tied head."""
    B, T = tokens.shape
    C, H, eps = cfg["embed"], cfg["heads"], cfg["norm_eps"]
    norm = lambda x, name: F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], eps)
    conv = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][:T]
    for i in range(cfg["layers"]):
        h = f"h.{i}."
        q, k, v = (p.view(B, T, H, C // H) for p in conv(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, dim=2))
        x = x + conv(attention(q, k, v).reshape(B, T, C), h + "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def rope(x_BTHD, theta):
    """Rotates pairs (d, d + D/2) by position * theta^(-2d/D)."""
    T, D = x_BTHD.shape[1], x_BTHD.shape[3]
    rate = theta ** (-torch.arange(0, D, 2, dtype=x_BTHD.dtype) / D)
    angle = (torch.arange(T, dtype=x_BTHD.dtype)[:, None] * rate)[None, :, None, :]
    a, b = x_BTHD.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def llama(w, cfg, tokens):
    """Llama and Qwen2: RMSNorm, rotary positions, SwiGLU, grouped kv heads; biases where the weights have them."""
    B, T = tokens.shape
    H, G, eps = cfg["heads"], cfg["kv_heads"], cfg["norm_eps"]
    norm = lambda x, name: x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name + ".weight"]
    linear = lambda x, name: F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(cfg["layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q = rope(linear(y, h + "self_attn.q_proj").view(B, T, H, -1), cfg["rope_theta"])
        k = rope(linear(y, h + "self_attn.k_proj").view(B, T, G, -1), cfg["rope_theta"])
        v = linear(y, h + "self_attn.v_proj").view(B, T, G, -1)
        x = x + linear(attention(q, k, v).reshape(B, T, -1), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        x = x + linear(F.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj"), h + "mlp.down_proj")
    head = "model.embed_tokens.weight" if cfg["tied"] else "lm_head.weight"
    return norm(x, "model.norm") @ w[head].T


FORWARD = dict(gpt2=gpt2, llama=llama, qwen2=llama)


# ---- weights and data ------------------------------------------------------------------------------------------------

def shapes_gpt2(c):
    C, M = c["embed"], c["mlp"]
    yield "wte.weight", (c["vocab"], C)
    yield "wpe.weight", (c["context"], C)
    for i in range(c["layers"]):
        h = f"h.{i}."
        yield from ((h + "ln_1.weight", (C,)), (h + "ln_1.bias", (C,)))
        yield from ((h + "attn.c_attn.weight", (C, 3 * C)), (h + "attn.c_attn.bias", (3 * C,)))
        yield from ((h + "attn.c_proj.weight", (C, C)), (h + "attn.c_proj.bias", (C,)))
        yield from ((h + "ln_2.weight", (C,)), (h + "ln_2.bias", (C,)))
        yield from ((h + "mlp.c_fc.weight", (C, M)), (h + "mlp.c_fc.bias", (M,)))
        yield from ((h + "mlp.c_proj.weight", (M, C)), (h + "mlp.c_proj.bias", (C,)))
    yield from (("ln_f.weight", (C,)), ("ln_f.bias", (C,)))


def shapes_llama(c, biases=False):
    C, M, D = c["embed"], c["mlp"], c["embed"] // c["heads"]
    yield "model.embed_tokens.weight", (c["vocab"], C)
    for i in range(c["layers"]):
        h = f"model.layers.{i}."
        yield h + "input_layernorm.weight", (C,)
        for name, heads in (("q", c["heads"]), ("k", c["kv_heads"]), ("v", c["kv_heads"])):
            yield h + f"self_attn.{name}_proj.weight", (heads * D, C)
            if biases:
                yield h + f"self_attn.{name}_proj.bias", (heads * D,)
        yield h + "self_attn.o_proj.weight", (C, c["heads"] * D)
        yield h + "post_attention_layernorm.weight", (C,)
        yield from ((h + "mlp.gate_proj.weight", (M, C)), (h + "mlp.up_proj.weight", (M, C)))
        yield h + "mlp.down_proj.weight", (C, M)
    yield "model.norm.weight", (C,)
    if not c["tied"]:
        yield "lm_head.weight", (c["vocab"], C)


SHAPES = dict(gpt2=shapes_gpt2, llama=shapes_llama, qwen2=lambda c: shapes_llama(c, biases=True))


def draw(kind, cfg):
    """float32 weights and int32 tokens [B, T+1], a function of the seed alone."""
    rng = np.random.default_rng(cfg["seed"])
    weights = {}
    for name, shape in SHAPES[kind](cfg):
        x = rng.standard_normal(shape)
        if len(shape) == 1:
            x = 0.1 * x + (1.0 if name.endswith("weight") else 0.0)          # gains near 1, biases near 0
        elif name.startswith(("wte", "wpe", "model.embed")):
            x = 0.2 * x
        else:
            fan_in = shape[0] if kind == "gpt2" else shape[1]
            x = x / math.sqrt(fan_in)
        weights[name] = x.astype(np.float32)
    tokens = rng.integers(0, cfg["vocab"], (cfg["batch"], cfg["seq"] + 1), dtype=np.int32)
    return weights, tokens


# ---- reference -------------------------------------------------------------------------------------------------------

def loss_and_grads(kind, cfg, w, tokens, targets):
    for p in w.values():
        p.grad = None
        p.requires_grad_(True)
    logits = FORWARD[kind](w, cfg, tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return logits.detach(), loss.item(), {n: p.grad.detach().clone() for n, p in w.items()}


def run(kind, cfg, weights, batch, dtype):
    """One forward and backward, then ADAMW['steps'] updates on the same batch, all in `dtype`."""
    a = ADAMW
    w = {n: torch.tensor(x, dtype=dtype) for n, x in weights.items()}        # a copy: updated in place
    m = {n: torch.zeros_like(p) for n, p in w.items()}
    v = {n: torch.zeros_like(p) for n, p in w.items()}
    tokens = torch.from_numpy(batch.astype(np.int64))
    out = dict(losses=[], grad_norms=[])
    for step in range(1, a["steps"] + 1):
        logits, loss, grads = loss_and_grads(kind, cfg, w, tokens[:, :-1], tokens[:, 1:])
        norm = math.sqrt(sum(g.double().square().sum().item() for g in grads.values()))
        out["losses"].append(loss)
        out["grad_norms"].append(norm)
        if step == 1:
            out.update(logits=logits, grads=grads)
        scale = min(1.0, a["clip"] / norm)
        with torch.no_grad():
            for n, p in w.items():
                g = grads[n] * scale
                m[n].mul_(a["beta1"]).add_(g, alpha=1 - a["beta1"])
                v[n].mul_(a["beta2"]).add_(g * g, alpha=1 - a["beta2"])
                if p.dim() >= 2:
                    p.mul_(1 - a["lr"] * a["decay"])
                p.sub_(a["lr"] * (m[n] / (1 - a["beta1"] ** step))
                       / ((v[n] / (1 - a["beta2"] ** step)).sqrt() + a["eps"]))
    out["after"] = {n: p.detach() for n, p in w.items()}
    return out


def check_against_torch(kind, cfg, weights, batch, ref):
    """The updates above must be torch.optim.AdamW's, and the attention scaled_dot_product_attention's."""
    a = ADAMW
    w = {n: torch.from_numpy(x).double().requires_grad_(True) for n, x in weights.items()}
    groups = [dict(params=[p for p in w.values() if (p.dim() >= 2) == matrix], weight_decay=a["decay"] * matrix)
              for matrix in (True, False)]
    opt = torch.optim.AdamW(groups, lr=a["lr"], betas=(a["beta1"], a["beta2"]), eps=a["eps"])
    tokens = torch.from_numpy(batch.astype(np.int64))
    for _ in range(a["steps"]):
        opt.zero_grad()
        F.cross_entropy(FORWARD[kind](w, cfg, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(w.values(), a["clip"])
        opt.step()
    keys = skipped(kind, cfg)
    for n, p in w.items():
        worst = (p.detach() - ref["after"][n]).abs()
        if n in keys:
            worst[slice(*keys[n])] = 0
        assert worst.max().item() < 1e-7, (kind, n, worst.max().item())
    q, k, v = torch.randn(2, 5, 6, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)
    sdpa = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True, enable_gqa=True)
    assert torch.allclose(attention(q, k, v), sdpa.transpose(1, 2), atol=1e-6)


def skipped(kind, cfg):
    """Elements whose gradient is exactly zero in theory (a key bias without rotary positions): tensor -> [from, to)."""
    C = cfg["embed"]
    return {f"h.{i}.attn.c_attn.bias": [C, 2 * C] for i in range(cfg["layers"])} if kind == "gpt2" else {}


def fp32_error(ref, low, skip):
    """How far the same code in float32 is from float64: what a correct float32 implementation should come near."""
    every = math.sqrt(sum(g.square().sum().item() for g in ref["grads"].values()))
    grads = {n: (low["grads"][n].double() - g).norm().item() for n, g in ref["grads"].items()}
    allowed = {n: 1e-5 * g.norm().item() + 1e-6 * every for n, g in ref["grads"].items()}
    worst = max(grads, key=lambda n: grads[n] / allowed[n])
    after = {}
    for n, p in ref["after"].items():
        d = (low["after"][n].double() - p).abs()
        if n in skip:
            d[slice(*skip[n])] = 0
        after[n] = d.max().item()
    far = max(after, key=after.get)
    return dict(logits_max_abs=(low["logits"].double() - ref["logits"]).abs().max().item(),
                loss_abs=abs(low["losses"][0] - ref["losses"][0]),
                gradient_worst=worst, gradient_worst_part_of_tolerance=grads[worst] / allowed[worst],
                gradient_worst_relative=max(grads[n] / ref["grads"][n].norm().item() for n in grads if n not in skip),
                after_worst=far, after_max_abs=after[far],
                losses_max_abs=max(abs(x - y) for x, y in zip(low["losses"], ref["losses"])))


def reference(kind):
    cfg = MODELS[kind]
    weights, batch = draw(kind, cfg)
    ref = run(kind, cfg, weights, batch, torch.float64)
    low = run(kind, cfg, weights, batch, torch.float32)
    check_against_torch(kind, cfg, weights, batch, ref)
    skip = skipped(kind, cfg)
    f32 = lambda x: np.ascontiguousarray(x.numpy().astype(np.float32))
    expected = dict(tokens=np.ascontiguousarray(batch[:, :-1]), targets=np.ascontiguousarray(batch[:, 1:]),
                    logits=f32(ref["logits"]), loss=np.array(ref["losses"][0], np.float32),
                    losses=np.array(ref["losses"], np.float32))
    expected.update({"grad." + n: f32(g) for n, g in ref["grads"].items()})
    expected.update({"after." + n: f32(p) for n, p in ref["after"].items()})
    config = dict(model=kind, **cfg, parameters=sum(x.size for x in weights.values()),
                  optimizer=dict(name="adamw", **ADAMW, decay_of="parameters of two dims",
                                 clip_rule="gradients times min(1, clip / global norm)"),
                  expected=dict(losses=ref["losses"], grad_norms=ref["grad_norms"]),
                  skip_after=skip, float32_error=fp32_error(ref, low, skip))
    return weights, expected, config


def main():
    here = pathlib.Path(__file__).resolve().parent
    torch.set_num_threads(1)
    for kind in MODELS:
        weights, expected, config = reference(kind)
        folder = here / kind
        if "--check" in sys.argv[1:]:
            old = {**load_file(folder / "model.safetensors"), **load_file(folder / "expected.safetensors")}
            new = {**weights, **expected}
            assert old.keys() == new.keys(), (kind, old.keys() ^ new.keys())
            skip = {"after." + n: r for n, r in config["skip_after"].items()}
            for n, x in new.items():
                far = np.atleast_1d(np.abs(old[n].astype(np.float64) - x))
                if n in skip:
                    far[slice(*skip[n])] = 0
                assert far.max() <= 1e-6, (kind, n, far.max())
            print(f"{kind}: {len(new)} tensors agree")
            continue
        folder.mkdir(exist_ok=True)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        save_file(expected, folder / "expected.safetensors")
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        e = config["float32_error"]
        print(f"{kind}: {config['parameters']} parameters, loss {config['expected']['losses'][0]:.6f} -> "
              f"{config['expected']['losses'][-1]:.6f}, gradient norm {config['expected']['grad_norms'][0]:.3f}")
        print("  float32:", ", ".join(f"{k} {v:.2e}" if isinstance(v, float) else f"{k} {v}" for k, v in e.items()))


if __name__ == "__main__":
    main()
