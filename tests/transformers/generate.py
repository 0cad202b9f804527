#!/usr/bin/env python3
"""Writes the folders of tests/transformers: tiny models as `save_pretrained` lays them, and what transformers computes.

    python3 generate.py           writes the folders beside this file, and sinks.safetensors
    python3 generate.py --check   compares a fresh run with the files that are there, writes nothing

Needs torch, transformers and safetensors; README.md says what is in the files.
"""
import copy
import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

STEPS = 20                                                # half as many of a mixture: its params are compared, too
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
SMALL = dict(vocab_size=38, hidden_size=24, intermediate_size=22, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64)

# mtp_weight: of the loss of a module of multi-token prediction, the layer after the last, which transformers lacks.
# kind: of transformers' classes. bare: saved without its head, so without the prefix of its names. masks: with the
# buffers that old files have. old: config.json in the spelling of transformers 4.
MODELS = dict(
    gpt2=dict(kind="GPT2", seed=1, config=dict(vocab_size=38, n_embd=18, n_head=6, n_layer=2, n_positions=16)),
    gpt2_bare=dict(kind="GPT2", seed=2, bare=True, masks=True, config=dict(
        vocab_size=31, n_embd=15, n_head=3, n_layer=2, n_positions=13, n_inner=23,
        activation_function="gelu_pytorch_tanh", layer_norm_epsilon=1e-3)),
    llama=dict(kind="Llama", seed=3, dtype=torch.bfloat16, shard="7KB", config=dict(
        SMALL, hidden_size=18, head_dim=10, rope_parameters=dict(LLAMA3, rope_theta=100.0))),
    llama_old=dict(kind="Llama", seed=4, old=True, config=dict(
        SMALL, num_key_value_heads=6, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3,
        rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=500.0))),
    llama_yarn=dict(kind="Llama", seed=8, config=dict(
        SMALL, head_dim=16, max_position_embeddings=64, rope_parameters=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=100.0, beta_fast=4.0,
            beta_slow=0.5, mscale=0.8, mscale_all_dim=1.3, truncate=False))),
    mistral=dict(kind="Mistral", seed=5, config=dict(
        SMALL, hidden_size=18, num_attention_heads=3, num_key_value_heads=1, sliding_window=5, rope_parameters=dict(rope_type="default", rope_theta=50.0))),
    qwen2=dict(kind="Qwen2", seed=6, dtype=torch.float16, config=dict(
        SMALL, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    qwen2_windows=dict(kind="Qwen2", seed=9, config=dict(
        SMALL, num_hidden_layers=3, use_sliding_window=True, sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=32, rope_theta=1e4))),
    qwen3=dict(kind="Qwen3", seed=7, shard="20KB", config=dict(
        SMALL, hidden_size=18, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    mixtral=dict(kind="Mixtral", seed=11, dtype=torch.bfloat16, shard="16KB", config=dict(
        SMALL, intermediate_size=10, num_local_experts=4, num_experts_per_tok=2, sliding_window=6,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    deepseek_v3=dict(kind="DeepseekV3", seed=20, packed="fp8", config=dict(
        SMALL, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, n_routed_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=8, n_shared_experts=2, n_group=4, topk_group=2, first_k_dense_replace=1,
        rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=100.0,
                             beta_fast=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=0.8))),
    deepseek_v3_mtp=dict(kind="DeepseekV3", seed=50, packed="fp8", mtp_weight=0.3, config=dict(
        SMALL, hidden_size=16, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=10, kv_lora_rank=12,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=8, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1,
        num_nextn_predict_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    gpt_oss=dict(kind="GptOss", seed=30, dtype=torch.bfloat16, config=dict(
        SMALL, hidden_size=16, head_dim=8, num_attention_heads=4, intermediate_size=10, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=5, swiglu_limit=1.5, rope_parameters=dict(
            rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, truncate=False, rope_theta=50.0,
            original_max_position_embeddings=16))),
    gpt_oss_mxfp4=dict(kind="GptOss", seed=40, dtype=torch.bfloat16, packed="mxfp4", config=dict(
        SMALL, hidden_size=32, head_dim=8, num_attention_heads=2,
        intermediate_size=32, num_local_experts=3, num_experts_per_tok=2, sliding_window=128,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    qwen2_moe=dict(kind="Qwen2Moe", seed=12, config=dict(
        SMALL, moe_intermediate_size=8, shared_expert_intermediate_size=14, num_experts=4, num_experts_per_tok=2,
        decoder_sparse_step=2, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    qwen3_moe=dict(kind="Qwen3Moe", seed=17, config=dict(
        SMALL, num_hidden_layers=3, hidden_size=18, head_dim=8, moe_intermediate_size=8, num_experts=6,
        num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1], attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))),
)


def prediction(config):
    """A layer of DeepSeek-V3 with the other params of its module of multi-token prediction."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
    layer, width = deepseek.DeepseekV3DecoderLayer(config, config.num_hidden_layers), config.hidden_size
    layer.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
    layer.shared_head = torch.nn.Module()
    layer.enorm, layer.hnorm, layer.shared_head.norm = (
        deepseek.DeepseekV3RMSNorm(width, config.rms_norm_eps) for _ in range(3))
    return layer


def predicted(model, tokens):
    """The logits of the token after the next, [B, T - 1, V], of tokens [B, T + 1] with the last one (DeepSeek-V3's
    report, section 2.2). The module reads the last norm's output, as in vLLM and Megatron."""
    inner, layer = model.model, model.model.layers[-1]
    hidden = inner(tokens[:, :-1]).last_hidden_state[:, :-1]
    both = torch.cat((layer.enorm(inner.embed_tokens(tokens[:, 1:-1])), layer.hnorm(hidden)), -1)
    positions = torch.arange(both.shape[1])[None]
    unseen = torch.full((both.shape[1],) * 2, -math.inf, dtype=both.dtype).triu(1)[None, None]
    x = layer(layer.eh_proj(both), attention_mask=unseen, position_ids=positions,
              position_embeddings=inner.rotary_emb(both, positions))
    return model.lm_head(layer.shared_head.norm(x))


def make(spec):
    """The model, drawn by its seed so that everything in it matters: gains near 1, biases near 0, wide logits."""
    config = getattr(transformers, spec["kind"] + "Config")(**spec["config"])
    config._attn_implementation = config._experts_implementation = "eager"
    head = "LMHeadModel" if spec["kind"] == "GPT2" else "ForCausalLM"
    model = getattr(transformers, spec["kind"] + head)(config)
    if "mtp_weight" in spec:
        model.model.layers.append(prediction(config))
    draw = torch.Generator().manual_seed(spec["seed"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=draw, dtype=torch.float64)
            if p.dim() == 1:
                x = 0.2 * x + (0.0 if name.endswith("bias") else 1.0)
            elif any(part in name for part in ("embed_tokens", "wte", "wpe")):
                x = 0.5 * x
            else:
                x = x / math.sqrt(p.shape[0] if spec["kind"] == "GPT2" else p.shape[-1])
            if spec.get("packed") and is_packed(spec["packed"], name, p):
                x = rounded_to_mxfp4(x) if spec["packed"] == "mxfp4" else (32 * x).to(torch.float8_e4m3fn).double() / 32
            p.copy_(x.to(spec.get("dtype", torch.float32)))                    # rounded as it will be saved
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                x = 0.2 * torch.randn(b.shape, generator=draw, dtype=torch.float64)
                b.copy_(x.to(spec.get("dtype", torch.float32)))
    return model


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float32)


def mxfp4(x):
    """Blocks and scales of x [E, in, out] of rounded_to_mxfp4."""
    rows = x.float().transpose(1, 2).unflatten(2, (-1, 32))                    # [E, out, G, 32]
    scales = exponents(rows)
    codes = ((rows / 2.0 ** scales[..., None]).abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (rows < 0)
    blocks = codes[..., 0::2] + 16 * codes[..., 1::2]
    return blocks.to(torch.uint8).contiguous(), (scales + 127).to(torch.uint8).contiguous()


def exponents(rows):
    """The exponent of each group of 32, so that its largest element is at most 6."""
    return torch.ceil(torch.log2(rows.abs().amax(-1) / 6))


def is_packed(kind, name, x):
    """mxfp4: the experts' matrices, as in gpt-oss; fp8: all matrices of layers but the router's and those of
    multi-token prediction, as in DeepSeek-V3."""
    if kind == "mxfp4":
        return x.dim() == 3
    whole = ("mlp.gate.weight", "eh_proj.weight", "embed_tokens.weight", "head.weight")
    return ".layers." in name and x.dim() >= 2 and not name.endswith(whole)


def pack(kind, folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in [name for name, x in tensors.items() if is_packed(kind, name, x)]:
        x = tensors.pop(name)
        if kind == "mxfp4":
            tensors[name + "_blocks"], tensors[name + "_scales"] = mxfp4(x)
        else:
            tensors[name] = (32 * x).to(torch.float8_e4m3fn)
            tensors[name + "_scale_inv"] = torch.full([math.ceil(n / 128) for n in x.shape], 1 / 32)
    save_file(tensors, file, metadata={"format": "pt"})
    how = dict(quant_method="mxfp4") if kind == "mxfp4" else dict(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])
    file = folder / "config.json"
    file.write_text(json.dumps(dict(json.loads(file.read_text()), quantization_config=how), indent=2) + "\n")


def rounded_to_mxfp4(x):
    rows = x.float().transpose(1, 2).unflatten(2, (-1, 32))
    scale = 2.0 ** exponents(rows)[..., None]
    nearest = E2M1[((rows / scale).abs()[..., None] - E2M1).abs().argmin(-1)]
    # The largest element stays the largest of its group, so that its scale is found again.
    nearest[..., 0] = 6.0
    return (rows.sign() * nearest * scale).flatten(2).transpose(1, 2)


def save(model, spec, folder):
    # A copy: the model itself keeps its rotary numbers in f32, as one that is loaded has them.
    inner = copy.deepcopy(model.base_model if spec.get("bare") else model).to(spec.get("dtype", torch.float32))
    inner.save_pretrained(folder, max_shard_size=spec.get("shard", "1GB"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if spec.get("masks"):
        file = folder / "model.safetensors"
        tensors = load_file(file)
        size = spec["config"]["n_positions"]
        for i in range(spec["config"]["n_layer"]):
            tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, size, size, dtype=torch.bool).tril()
            tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, file, metadata={"format": "pt"})
    if "mtp_weight" in spec:                                                  # published files repeat what it shares
        file, layer = folder / "model.safetensors", f"model.layers.{spec['config']['num_hidden_layers']}."
        tensors = load_file(file)
        tensors[layer + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[layer + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
        save_file(tensors, file, metadata={"format": "pt"})
    if spec.get("packed"):
        pack(spec["packed"], folder)
    if spec.get("old"):
        file = folder / "config.json"
        config = json.loads(file.read_text())
        config["torch_dtype"] = config.pop("dtype")
        rotary = config.pop("rope_parameters")
        config["rope_theta"] = rotary.pop("rope_theta")
        config["rope_scaling"] = dict(type=rotary.pop("rope_type"), **rotary)
        file.write_text(json.dumps(config, indent=2) + "\n")


def named(model, prefix, values):
    """{ prefix + published name: f32 } of one value for each param, as save_pretrained names and splits params."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        inner = copy.deepcopy(model).float()
        for p, value in zip(inner.parameters(), values):
            p.copy_(value)
        inner.save_pretrained(folder)
        return {prefix + name: x for name, x in load_file(pathlib.Path(folder) / "model.safetensors").items()}


def gap(router, logits):
    """Between the scores of the last expert that is chosen and of the next; with groups of experts between any two."""
    if not hasattr(router, "e_score_correction_bias"):
        return torch.topk(logits.softmax(-1), router.top_k + 1)[0][:, -2:].diff().abs().min().item()
    scores = logits.sigmoid() + router.e_score_correction_bias.double()
    groups = scores.unflatten(-1, (router.num_group, -1)).topk(2)[0].sum(-1)
    return 10 * min(x.sort()[0].diff(dim=-1).min().item() for x in (scores, groups) if x.shape[-1] > 1)


def expected(model, spec, batch=2, seq=13):
    """Logits in float64 and the losses of AdamW steps on one batch, from the weights as they were saved. Of a mixture
    of experts also the gradients of the first step, and the params at the end. Its choices must be beyond rounding: the
    smallest gap between the score of the last expert that is chosen and the next is at least 1e-4 (between any two of
    DeepSeek's: 1e-5)."""
    model = model.double().eval()                                             # eval: no dropout
    draw = torch.Generator().manual_seed(100 + spec["seed"])
    tokens = torch.randint(0, spec["config"]["vocab_size"], (batch, seq + 1), generator=draw)
    groups = [dict(params=[p for p in model.parameters() if (p.dim() >= 2) == matrix], weight_decay=0.1 * matrix)
              for matrix in (True, False)]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses, first, more, gaps, ahead = [], None, {}, [], []
    routers = [m for name, m in model.named_modules() if type(m).__name__.endswith("Router")]
    for router in routers:
        router.register_forward_hook(lambda router, _, out: gaps.append(gap(router, out[0].double())))
    for step in range(STEPS // 2 if routers else STEPS):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1]).logits
        if first is None:
            first = logits.detach().clone()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), tokens[:, 1:].flatten())
        if "mtp_weight" in spec:                                              # of all tokens, as the loss itself
            mtp = predicted(model, tokens)
            each = torch.nn.functional.cross_entropy(mtp.flatten(0, 1), tokens[:, 2:].flatten(), reduction="sum")
            more.setdefault("mtp_logits", mtp.detach().float().contiguous())
            ahead.append(each.item() / tokens[:, 2:].numel())
            loss = loss + spec["mtp_weight"] * each / tokens[:, 1:].numel()
        loss.backward()
        if routers and step == 0:
            more |= named(model, "grad.", [p.grad for p in model.parameters()])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    if ahead:
        more |= dict(mtp_losses=torch.tensor(ahead, dtype=torch.float32), mtp_weight=torch.tensor([spec["mtp_weight"]]))
    if routers:
        more |= named(model, "after.", [p.detach() for p in model.parameters()])
    assert not gaps or min(gaps) >= 1e-4, f"a gap between scores of {min(gaps)}: choose another seed"
    return dict(tokens=tokens[:, :-1].int().contiguous(), targets=tokens[:, 1:].int().contiguous(),
                logits=first.float().contiguous(), losses=torch.tensor(losses, dtype=torch.float32), **more)


def write(spec, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    model = make(spec)
    save(model, spec, folder)
    numbers = expected(model, spec)
    save_file(numbers, folder / "expected.safetensors")
    return numbers


def sinks():
    """An attention of gpt-oss in float64 with a window, biases and yarn: its input, params, output y, and gradients of
    the sum of y's squares."""
    from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
    config = transformers.GptOssConfig(
        hidden_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_hidden_layers=1, sliding_window=4,
        layer_types=["sliding_attention"], attention_dropout=0.0, max_position_embeddings=64, rope_parameters=dict(
            rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, truncate=False, rope_theta=50.0,
            original_max_position_embeddings=16))
    config._attn_implementation = "eager"
    attention = gpt_oss.GptOssAttention(config, 0).double()
    draw = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) / math.sqrt(p.shape[-1]))
    x = torch.randn(2, 9, 12, generator=draw, dtype=torch.float64)
    positions = torch.arange(9)[None]
    rotary = gpt_oss.GptOssRotaryEmbedding(config)
    back = positions[0][:, None] - positions[0][None]
    mask = torch.where((back >= 0) & (back < config.sliding_window), 0.0, -math.inf).double()[None, None]
    y = attention(x, position_embeddings=rotary(x, positions), attention_mask=mask)[0]
    y.square().sum().backward()
    found = dict(x=x, y=y.detach())
    for name, p in attention.named_parameters():
        ours = name.replace("_proj", "")                                       # weights [in, out]
        for key, value in ((ours, p.detach()), ("grad." + ours, p.grad)):
            found[key] = (value.T if value.dim() == 2 else value).contiguous()
    return found


def tensors(folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            found.update({(file.name, name): opened.get_tensor(name) for name in opened.keys()})
    return found


def main():
    here = pathlib.Path(__file__).resolve().parent
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    file, numbers = here / "sinks.safetensors", sinks()
    if "--check" in sys.argv[1:]:
        old = load_file(file)
        assert old.keys() == numbers.keys() and all(torch.allclose(old[k], x, rtol=1e-9) for k, x in numbers.items())
        print(f"sinks: {len(numbers)} tensors agree")
    else:
        save_file(numbers, file)
    for name, spec in MODELS.items():
        if "--check" in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as fresh:
                write(spec, pathlib.Path(fresh))
                old, new = tensors(here / name), tensors(pathlib.Path(fresh))
            assert old.keys() == new.keys(), (name, old.keys() ^ new.keys())
            for key, x in new.items():
                assert torch.allclose(old[key].double(), x.double(), rtol=1e-6, atol=1e-6), (name, key)
            print(f"{name}: {len(new)} tensors agree")
            continue
        numbers = write(spec, here / name)
        size = sum(file.stat().st_size for file in (here / name).iterdir())
        print(f"{name}: {size} bytes, logits up to {numbers['logits'].abs().max():.2f}, "
              f"loss {numbers['losses'][0]:.4f} -> {numbers['losses'][-1]:.4f}")


if __name__ == "__main__":
    main()
