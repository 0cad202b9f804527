"""Published folders with the config.json of ten popular small models, at tiny sizes: no package is needed.

    small_models.py FOLDER    writes FOLDER/NAME/config.json and model.safetensors of each, and prints their names

The keys and all values but the sizes are those of each model's page; the weights are drawn here.
"""
import json
import math
import os
import random
import struct
import sys

VOCAB, EMBED, HEADS, KV_HEADS, MLP, LAYERS, POSITIONS = 31, 24, 6, 2, 20, 2, 64

GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 30,
    "embd_pdrop": 0.1, "eos_token_id": 30, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": POSITIONS, "n_embd": EMBED, "n_head": HEADS, "n_layer": LAYERS,
    "n_positions": POSITIONS, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": VOCAB}


def decoder(kind, **more):
    return {"architectures": [kind + "ForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
            "hidden_size": EMBED, "initializer_range": 0.02, "intermediate_size": MLP,
            "max_position_embeddings": POSITIONS, "model_type": kind.lower(), "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-05,
            "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True, "vocab_size": VOCAB, **more}


def qwen2(**more):
    return decoder("Qwen2", attention_dropout=0.0, rms_norm_eps=1e-06, use_mrope=False, use_sliding_window=False,
                   **more)


SMOLLM2 = decoder("Llama", attention_bias=False, attention_dropout=0.0, initializer_range=0.041666666666666664,
                  is_llama_config=True, mlp_bias=False, pad_token_id=2, pretraining_tp=1, rope_interleaved=False,
                  rope_scaling=None, rope_theta=100000, tie_word_embeddings=True,
                  **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}})
MODELS = {
    "Qwen2.5-0.5B": qwen2(max_window_layers=24, rope_theta=1000000.0, sliding_window=32768, tie_word_embeddings=True),
    "DeepSeek-R1-Distill-Qwen-1.5B": qwen2(max_window_layers=21, rope_theta=10000, sliding_window=4096,
                                           tie_word_embeddings=False),
    "SmolLM2-135M": SMOLLM2,
    "SmolLM2-360M": SMOLLM2,
    "distilgpt2": {**GPT2, "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}},
    "TinyLlama-1.1B": decoder("Llama", attention_bias=False, pretraining_tp=1, rope_scaling=None, rope_theta=10000.0,
                              tie_word_embeddings=False),
    "Llama-3.2-1B": decoder("Llama", attention_bias=False, attention_dropout=0.0, head_dim=4, mlp_bias=False,
                            pretraining_tp=1, rope_theta=500000.0, tie_word_embeddings=True, unsloth_fixed=True,
                            rope_scaling={"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                          "original_max_position_embeddings": 8192, "rope_type": "llama3"}),
    "Qwen3-0.6B": decoder("Qwen3", attention_bias=False, attention_dropout=0.0, head_dim=8, max_window_layers=28,
                          rms_norm_eps=1e-06, rope_scaling=None, rope_theta=1000000, sliding_window=None,
                          tie_word_embeddings=True, use_sliding_window=False),
    "Mistral-7B-v0.1": decoder("Mistral", rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False),
    "gpt2": GPT2,
}


def gpt2_shapes():
    yield "wte.weight", [VOCAB, EMBED]
    yield "wpe.weight", [POSITIONS, EMBED]
    for norm in ["ln_f"] + [f"h.{i}.ln_{k}" for i in range(LAYERS) for k in (1, 2)]:
        yield norm + ".weight", [EMBED]
        yield norm + ".bias", [EMBED]
    for i in range(LAYERS):
        yield f"h.{i}.attn.bias", [1, 1, POSITIONS, POSITIONS]  # the causal mask, as the published file has it
        for name, inputs, outputs in [("attn.c_attn", EMBED, 3 * EMBED), ("attn.c_proj", EMBED, EMBED),
                                      ("mlp.c_fc", EMBED, 4 * EMBED), ("mlp.c_proj", 4 * EMBED, EMBED)]:
            yield f"h.{i}.{name}.weight", [inputs, outputs]
            yield f"h.{i}.{name}.bias", [outputs]


def decoder_shapes(config):
    head = config.get("head_dim", EMBED // HEADS)
    yield "model.embed_tokens.weight", [VOCAB, EMBED]
    yield "model.norm.weight", [EMBED]
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", [VOCAB, EMBED]
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for norm in ["input_layernorm", "post_attention_layernorm"]:
            yield f"{layer}{norm}.weight", [EMBED]
        for name, heads in [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)]:
            yield f"{layer}self_attn.{name}_proj.weight", [heads * head, EMBED]
            if config["model_type"] == "qwen2":
                yield f"{layer}self_attn.{name}_proj.bias", [heads * head]
            if config["model_type"] == "qwen3" and name != "v":
                yield f"{layer}self_attn.{name}_norm.weight", [head]
        yield f"{layer}self_attn.o_proj.weight", [EMBED, HEADS * head]
        for name, outputs, inputs in [("gate", MLP, EMBED), ("up", MLP, EMBED), ("down", EMBED, MLP)]:
            yield f"{layer}mlp.{name}_proj.weight", [outputs, inputs]


def write(folder, config):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    draw, header, data = random.Random(7), {"__metadata__": {"format": "pt"}}, b""
    half = config.get("torch_dtype") == "bfloat16"
    for name, shape in gpt2_shapes() if config["model_type"] == "gpt2" else decoder_shapes(config):
        one = "norm" in name or "ln_" in name
        values = [1.0 if one and name.endswith("weight") else draw.gauss(0, 0.1) for _ in range(math.prod(shape))]
        packed = struct.pack(f"<{len(values)}f", *values)
        if half:  # the upper halves
            packed = b"".join(packed[i + 2:i + 4] for i in range(0, len(packed), 4))
        header[name] = {"dtype": "BF16" if half else "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(start)) + start + data)


def main():
    for name, config in MODELS.items():
        write(os.path.join(sys.argv[1], name), config)
        print(name)


if __name__ == "__main__":
    main()
