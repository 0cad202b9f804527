#!/usr/bin/env python3
"""Published models against transformers: random shapes of each architecture, read by Orrery on every mesh.

    scripts/conformance/models.py [--count 20] [--seed 1] [--tests build/equivalence_tests] [--keep FOLDER]

Two more have 50,257 words, which neither 2 nor 4 divides. Each model is saved by `save_pretrained`; its logits
(float64) and 20 losses of AdamW (of a mixture of experts 10, its gradients and params) are compared with ours on one
rank, pp=2, dp=2 with ZeRO-3, and tp=2 and 4 where that divides it (tests/transformers/README.md). Needs torch,
transformers and safetensors, and equivalence_tests built. Exit code 1: something differs.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/transformers"))
import generate  # noqa: E402

KINDS = ["GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss", "DeepseekV3"]
EXPERTS = KINDS[5:]


def rotary(draw):
    theta = draw.choice([50.0, 10000.0, 500000.0])
    kind = draw.choice(["default", "linear", "llama3"])
    if kind == "linear":
        return dict(rope_type=kind, rope_theta=theta, factor=draw.choice([1.0, 2.0, 3.7]))
    if kind == "llama3":
        return dict(rope_type=kind, rope_theta=theta, factor=draw.choice([4.0, 8.0]), low_freq_factor=1.0,
                    high_freq_factor=draw.choice([2.0, 4.0]), original_max_position_embeddings=draw.choice([16, 128]))
    return dict(rope_type=kind, rope_theta=theta)


def spec_of(number, draw):
    kind = KINDS[number % len(KINDS)]
    old = kind != "GPT2" and draw.random() < 0.4
    spec = dict(kind=kind, seed=1000 + number, old=old, shard=draw.choice(["1GB", "9KB"]),
                dtype=draw.choice([torch.float32, torch.bfloat16, torch.float16]))
    heads = draw.choice([2, 3, 5, 6])
    if kind == "GPT2":
        bare = draw.random() < 0.5
        return dict(spec, bare=bare, masks=bare and draw.random() < 0.5, shard="1GB" if bare else spec["shard"],
                    config=dict(
            vocab_size=draw.randint(20, 45), n_embd=heads * draw.choice([3, 5, 8]), n_head=heads,
            n_layer=draw.choice([2, 3]), n_positions=draw.choice([13, 29]), n_inner=draw.choice([None, 26]),
            layer_norm_epsilon=draw.choice([1e-5, 1e-3])))
    apart = kind not in ("Qwen2", "Qwen2Moe", "DeepseekV3") and draw.random() < 0.5
    config = dict(vocab_size=draw.randint(20, 45), num_attention_heads=heads, hidden_size=heads * draw.choice([4, 6]),
                  intermediate_size=draw.randint(15, 40), num_hidden_layers=draw.choice([2, 3]),
                  num_key_value_heads=draw.choice([k for k in range(1, heads + 1) if heads % k == 0]),
                  max_position_embeddings=256, tie_word_embeddings=draw.random() < 0.5,
                  rms_norm_eps=draw.choice([1e-6, 1e-3]), rope_parameters=rotary(draw))
    if apart or kind in ("Qwen3", "Qwen3Moe", "GptOss"):
        config["head_dim"] = draw.choice([4, 10, 14])
    if kind in ("Llama", "Qwen3", "Qwen3Moe", "DeepseekV3"):
        config["attention_bias"] = draw.random() < 0.5
    if kind in EXPERTS:
        config.update(experts_of(kind, config, draw))
    if kind in ("Mistral", "Mixtral"):
        config["sliding_window"] = draw.choice([None, 1, 6, 13, 4096])
    return dict(spec, config=config)


def experts_of(kind, config, draw):
    experts, layers = draw.choice([4, 6, 8]), config["num_hidden_layers"]
    keys = dict(num_experts_per_tok=draw.choice([1, 2, 3] if kind.startswith("Qwen") else [2, 3]))
    keys["n_routed_experts" if kind == "DeepseekV3" else "num_experts" if kind.startswith("Qwen") else
         "num_local_experts"] = experts
    if kind not in ("Mixtral", "GptOss"):
        keys.update(moe_intermediate_size=draw.randint(8, 20), norm_topk_prob=draw.random() < 0.5)
    if keys["num_experts_per_tok"] == 1:  # else its weight is always 1, and AdamW makes full steps of rounding noise
        keys["norm_topk_prob"] = False
    if kind.startswith("Qwen"):
        keys.update(decoder_sparse_step=draw.choice([1, 2]), mlp_only_layers=draw.choice([[], [layers - 1]]))
        keys["mlp_only_layers"] = [] if keys["decoder_sparse_step"] == 2 else keys["mlp_only_layers"]
    if kind == "Qwen2Moe":
        keys.update(shared_expert_intermediate_size=draw.randint(8, 20))
    if kind == "GptOss":
        keys.update(sliding_window=draw.choice([1, 6, 4096]), swiglu_limit=draw.choice([0.5, 7.0]))
    if kind == "DeepseekV3":
        groups = draw.choice([1, 2])
        keys.update(n_group=groups, topk_group=draw.randint(1, groups), num_experts_per_tok=2,
                    num_key_value_heads=config["num_attention_heads"], first_k_dense_replace=draw.choice([0, 1]),
                    n_shared_experts=draw.choice([1, 2]), q_lora_rank=draw.choice([None, 9]),
                    kv_lora_rank=draw.randint(6, 12), qk_rope_head_dim=draw.choice([2, 6]),
                    qk_nope_head_dim=draw.randint(3, 8), v_head_dim=draw.randint(3, 8),
                    rope_interleave=draw.random() < 0.5, routed_scaling_factor=draw.choice([1.0, 2.5]))
    return keys


def write(spec, folder):
    """With another seed where a choice of experts is within rounding of a tie."""
    for seed in range(spec["seed"], spec["seed"] + 10000, 1000):
        try:
            return generate.write(dict(spec, seed=seed), folder)
        except AssertionError as problem:
            print(f"{folder.name}: {problem}", flush=True)


def wide(kind):
    """GPT-2's vocabulary, and heads and kv heads that tp=4 divides."""
    spec = dict(kind=kind, seed=2, old=False, shard="1GB", dtype=torch.float32)
    if kind == "GPT2":
        return dict(spec, bare=False, masks=False,
                    config=dict(vocab_size=50257, n_embd=12, n_head=4, n_layer=2, n_positions=13))
    return dict(spec, config=dict(vocab_size=50257, num_attention_heads=4, hidden_size=16, intermediate_size=20,
                                  num_hidden_layers=2, num_key_value_heads=4, max_position_embeddings=64,
                                  tie_word_embeddings=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", default=str(root / "build/equivalence_tests"))
    parser.add_argument("--keep", help="a folder for the models, which stay there")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(asked.keep or scratch)
        for number in range(asked.count):
            spec = spec_of(number, draw)
            write(spec, folder / f"{number:03d}_{spec['kind'].lower()}")
        for kind in ("GPT2", "Llama"):
            generate.write(wide(kind), folder / f"words_{kind.lower()}")
        print(f"transformers {transformers.__version__}, torch {torch.__version__}: {asked.count} models, seed {asked.seed}",
              flush=True)
        return subprocess.run([asked.tests, "[transformers]"],
                              env=dict(os.environ, ORRERY_PUBLISHED=str(folder))).returncode


if __name__ == "__main__":
    sys.exit(main())
