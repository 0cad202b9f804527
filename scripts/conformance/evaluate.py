#!/usr/bin/env python3
"""`orrery evaluate` against transformers and lm-eval, on small models with random weights and trained tokenizers.

    scripts/conformance/evaluate.py [--orrery build/orrery] [--table scripts/conformance/evaluate.md]

Perplexity in windows with strides against the loop of transformers' guide (within 1e-4 of its own), and the
log-likelihoods of 200 choices against lm-eval's through a local task (within 1e-3, acc and acc_norm equal). Needs
torch, transformers and lm-eval with its extra "hf" (`pip install lm-eval accelerate peft`), no network. Exit code 1:
something differs.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import random
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lm_eval  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
TASK = """task: local_choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{endings}}}}"
doc_to_target: label
metric_list:
  - metric: acc
  - metric: acc_norm
"""
MODELS = {
    "gpt2": lambda ids: transformers.GPT2Config(vocab_size=ids, n_embd=48, n_head=3, n_layer=3, n_positions=256,
                                                initializer_range=0.25),
    "llama3": lambda ids: transformers.LlamaConfig(
        vocab_size=ids, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.25),
    "llama2": lambda ids: transformers.LlamaConfig(
        vocab_size=ids, hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=5, max_position_embeddings=256, initializer_range=0.25, tie_word_embeddings=True),
    "qwen2": lambda ids: transformers.Qwen2Config(
        vocab_size=ids, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.25),
}
WINDOWS = [(256, 128), (200, 31), (64, 63), (33, 10)]


def write_model(name, folder):
    file = str(root / "tests/tokenizer" / f"{name}.json")
    known = json.load(open(file))["added_tokens"]
    special = [token["content"] for token in known if token["special"]]
    end = next((t for t in special if t in ("<|endoftext|>", "</s>", "<|end_of_text|>")), None)
    begin = next((t for t in special if t in ("<s>", "<|begin_of_text|>")), None)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file, eos_token=end, bos_token=begin)
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name](len(tokenizer))).eval()
    for config in (model.config, model.generation_config):  # not those of the published sizes
        config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def perplexity(model, ids, size, stride):
    """The loop of transformers' guide; each window's mean counts as often as it has predicted."""
    nats, count, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + size, len(ids))
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, : window.shape[1] - (end - before)] = -100
        predicted = int((labels[:, 1:] != -100).sum())
        if predicted:
            with torch.no_grad():
                nats += model(window, labels=labels).loss.double().item() * predicted
            count += predicted
        before = end
        if end == len(ids):
            break
    return math.exp(nats / count), count


def choices(draw, text):
    """Contexts and endings of all sorts: spaces at the end, none, several endings, other alphabets, empty contexts."""
    words, lines = text.split(), []
    for number in range(200):
        at = draw.randrange(len(words) - 60)
        context = " ".join(words[at: at + draw.choice([1, 4, 12, 40])])
        context += draw.choice(["", "", "", " ", "  ", "\n", "\u3000", ":"])
        if number % 23 == 0:
            context = ""
        endings = [" ".join(words[i: i + draw.randint(1, 5)]) + draw.choice(["", ".", " caf\u00e9", " \u6f22\u5b57"])
                   for i in (draw.randrange(len(words) - 6) for _ in range(draw.randint(2, 5)))]
        lines.append(dict(context=context, endings=endings, label=draw.randrange(len(endings))))
    return lines


def orrery(program, *arguments):
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out.json"
        done = subprocess.run([program, "evaluate", *map(str, arguments), "-o", str(out)], capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"orrery evaluate {' '.join(map(str, arguments))}: {done.stderr}")
        return json.load(open(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", default=str(root / "build/orrery"))
    parser.add_argument("--table", help="write the table to this file, too")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    draw, wrong = random.Random(1), 0
    text = (root / "scripts/README.md").read_text()[:12000]
    rows = [f"transformers {transformers.__version__}, torch {torch.__version__}, lm-eval {lm_eval.__version__}, "
            f"Python {platform.python_version()}. `scripts/conformance/evaluate.py` wrote this.", "",
            "| tokenizer, model | what | theirs | ours | difference | at most |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        held, questions = pathlib.Path(scratch) / "held.txt", pathlib.Path(scratch) / "choices.jsonl"
        held.write_text(text)
        lines = choices(draw, text)
        questions.write_text("\n".join(json.dumps(line) for line in lines))
        (pathlib.Path(scratch) / "task.yaml").write_text(TASK.format(file=questions))
        tasks = TaskManager(include_path=scratch, include_defaults=False)
        for name in MODELS:
            folder = pathlib.Path(scratch) / name
            write_model(name, folder)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            ids = tokenizer(text)["input_ids"]
            for size, stride in WINDOWS:
                theirs, count = perplexity(model, ids, size, stride)
                mine = orrery(asked.orrery, folder, held, "--window", size, "--stride", stride)["text"]
                apart = abs(mine["perplexity"] - theirs) / theirs
                bad = apart > 1e-4 or mine["predicted"] != count
                wrong += bad
                rows.append(f"| {name} | perplexity of {count} tokens, window {size}, stride {stride} | {theirs:.6f} | "
                            f"{mine['perplexity']:.6f} | {apart:.1e} of theirs | 1e-4{' WRONG' if bad else ''} |")
            result = lm_eval.simple_evaluate(HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, max_length=256),
                                             tasks=["local_choices"], task_manager=tasks, log_samples=True,
                                             bootstrap_iters=0)
            samples = sorted(result["samples"]["local_choices"], key=lambda sample: sample["doc_id"])
            theirs = [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples]
            mine = orrery(asked.orrery, folder, "--choices", questions, "--window", 256)["choices"]
            apart = max(abs(a - b) for one, two in zip(theirs, mine["log_likelihoods"]) for a, b in zip(one, two))
            alike = [len(one) for one in theirs] == [len(one) for one in mine["log_likelihoods"]]
            largest = max(abs(a) for one in theirs for a in one)
            bad = apart > 1e-3 or not alike
            wrong += bad
            rows.append(f"| {name} | log-likelihoods of {sum(map(len, theirs))} endings, 200 choices | down to "
                        f"{-largest:.1f} | | {apart:.1e} | 1e-3{' WRONG' if bad else ''} |")
            for metric in ("acc", "acc_norm"):
                other = result["results"]["local_choices"][f"{metric},none"]
                bad = abs(other - mine[metric]) > 1e-12
                wrong += bad
                rows.append(f"| {name} | {metric} | {other:.4f} | {mine[metric]:.4f} | {abs(other - mine[metric]):.0e} "
                            f"| 0{' WRONG' if bad else ''} |")
    print("\n".join(rows))
    if asked.table:
        pathlib.Path(asked.table).write_text("# evaluate against transformers and lm-eval\n\n" + "\n".join(rows) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
