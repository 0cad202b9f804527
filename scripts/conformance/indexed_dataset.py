#!/usr/bin/env python3
"""Megatron's pairs against megatron-core: its IndexedDataset reads ours, and we read its own.

    scripts/conformance/indexed_dataset.py [--program build/orrery] [--documents 2000] [--seed 1] [--table FILE]

Ours are written by `orrery tokenize`, of bytes and of two vocabularies (u16 and i32). Its own are built by
IndexedDatasetBuilder, several sequences a document, empty ones among them, and printed whole by `orrery data --ids`.
Pairs of other types and of several kinds of data must be refused. Needs megatron-core 0.16 and torch, no GPU. Exit code
1: something differs.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import warnings

import numpy

warnings.filterwarnings("ignore")
import megatron.core  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
rows, bad = [], 0

SCRIPT = """
local o = require "orrery"
local data = o.data.file {}
local program = o.trace("sum", data.signature, function(batch)
  return batch.tokens:embedding(o.nn.table("a", { "vocab", 70000 }, { "embed", 1 }, 0.1)):sum(), o.constant(1)
end)
program:train_with(o.optim.sgd { lr = 0, momentum = 0 })
program:compile():train(data)
"""


def tell(what, kind, documents, tokens, wrong):
    global bad
    bad += wrong > 0
    rows.append((what, kind, f"{documents:,}", f"{tokens:,}", str(wrong)))


def alphabet():
    """GPT-2's letters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


LETTERS = alphabet()


def vocabularies(folder):
    """Folders of GPT-2's fixture, and of the same with words that no text has, for ids of four bytes."""
    fixture = json.loads((root / "tests/tokenizer/gpt2.json").read_text())
    for name, size in (("small", 0), ("large", 70000)):
        grown = json.loads(json.dumps(fixture))
        vocab = grown["model"]["vocab"]
        for i in range(len(vocab), size):
            vocab["\u0101" * 9 + "".join(chr(97 + int(d)) for d in str(i))] = i
        grown["added_tokens"] = [t for t in grown["added_tokens"] if t["id"] < len(fixture["model"]["vocab"])]
        (folder / name).mkdir()
        (folder / name / "tokenizer.json").write_text(json.dumps(grown))
        yield folder / name, {i: t for t, i in vocab.items()}


def texts(draw, count):
    words = "the of and wheel angle 17 \u00e9t\u00e9 \u4e2d\u6587 \U0001f600 \n\t  Its isn't 1999 x_y".split(" ")
    return [" ".join(draw.choice(words) for _ in range(draw.choice([0, 1, 7, 40, 300]))) for _ in range(count)]


def ours(program, folder, draw, count):
    lines = texts(draw, count)
    (folder / "lines.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in lines))
    kinds = [("bytes", None, None)] + [(f.name, f, words) for f, words in vocabularies(folder)]
    for name, tokenizer, words in kinds:
        command = [program, "tokenize", folder / "lines.jsonl", "--field", "text", "-o", folder / f"ours_{name}"]
        command += ["--tokenizer", tokenizer, "--end", "<|endoftext|>"] if tokenizer else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        data = IndexedDataset(str(folder / f"ours_{name}"))
        wrong = int(len(data) != count or len(data.document_indices) != count + 1)
        for i, text in enumerate(lines[:len(data)]):
            ids = data[i].tolist()
            if words:
                end, ids = ids[-1], ids[:-1]
                wrong += words.get(end) not in (None, "<|endoftext|>")
                found = bytes(LETTERS[c] for i in ids for c in words[i])
            else:
                found = bytes(ids)
            wrong += found != text.encode()
        tell("ours, read by IndexedDataset", f"{name}, {data.index.dtype.__name__}", len(data),
             int(data.sequence_lengths.sum()), wrong)


def build(prefix, dtype, draw, count, multimodal=False):
    builder = IndexedDatasetBuilder(str(prefix) + ".bin", dtype=dtype, multimodal=multimodal)
    flat, documents = [], []
    greatest = 65000 if dtype == numpy.uint16 else 69999 if dtype == numpy.int32 else 100
    for i in range(count):
        lengths = [draw.choice([0, 1, 5, 33, 200]) for _ in range(draw.choice([1, 1, 2, 4]))]
        ids = numpy.array([draw.randint(0, greatest) for _ in range(sum(lengths))], dtype=dtype)
        builder.add_document(ids, lengths, [0] * len(lengths) if multimodal else None)
        flat += ids.tolist()
        documents += [i] * len(ids)
    builder.finalize(str(prefix) + ".idx")
    return flat, documents


def theirs(program, folder, draw, count):
    (folder / "script.lua").write_text(SCRIPT)
    sequence, batch = 24, 64

    def asked(prefix, step):
        settings = {"data.path": f"{prefix}.bin", "data.tokens_per_sequence": sequence, "data.validation": 0,
                    "train.sequences_per_step": batch, "train.steps": 1, "data.vocab": 70000}
        sets = [a for key, value in settings.items() for a in ("--set", f"{key}={value}")]
        return subprocess.run([program, "data", folder / "script.lua", "--step", str(step), "--ids", *sets],
                              capture_output=True, text=True, cwd=folder)

    for dtype in (numpy.uint16, numpy.int32):
        prefix = folder / f"theirs_{dtype.__name__}"
        flat, documents = build(prefix, dtype, draw, count)
        width = numpy.dtype(dtype).itemsize
        samples, seen, wrong = (len(flat) - 1) // sequence, set(), 0
        for step in range(1, samples // batch + 1):
            got = asked(prefix, step)
            lines = got.stdout.splitlines()
            wrong += got.returncode != 0 or len(lines) != 1 + 2 * batch
            for head, ids in zip(lines[1::2], lines[2::2]):
                at = re.search(r"byte (\d+): sample (\d+), token (\d+) in document (\d+);", head)
                byte, sample, token, document = map(int, at.groups())
                wrong += [int(i) for i in ids.split()] != flat[token:token + sequence]
                wrong += byte != token * width or token != sample * sequence or document != documents[token]
                seen.add(sample)
        wrong += len(seen) != samples // batch * batch
        tell("its own, printed by `orrery data`", dtype.__name__, count, len(seen) * sequence, wrong)
    for dtype in (numpy.uint8, numpy.int8, numpy.int16, numpy.int64, numpy.float32, numpy.float64):
        prefix = folder / f"other_{dtype.__name__}"
        flat, _ = build(prefix, dtype, draw, 20)
        got = asked(prefix, 1)
        named = f"{prefix}.idx, byte 17: " in got.stderr and f", {dtype.__name__}; supported are" in got.stderr
        tell("its own, refused", dtype.__name__, 20, len(flat), int(got.returncode != 2 or not named))
    flat, _ = build(folder / "modes", numpy.int32, draw, 20, multimodal=True)
    got = asked(folder / "modes", 1)
    tell("its own, refused", "int32 with modes", 20, len(flat),
         int(got.returncode != 2 or "modes of sequences" not in got.stderr))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default=str(root / "build/orrery"))
    options.add_argument("--documents", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--table", help="write the table here, too")
    given = options.parse_args()
    draw = random.Random(given.seed)
    program = os.path.abspath(given.program)
    with tempfile.TemporaryDirectory() as folder:
        ours(program, pathlib.Path(folder), draw, given.documents)
        theirs(program, pathlib.Path(folder), draw, given.documents)
    head = (f"# Against megatron-core {megatron.core.__version__}\n\n{datetime.date.today()}, "
            f"`scripts/conformance/indexed_dataset.py`, numpy {numpy.__version__}, Python {sys.version.split()[0]}.\n\n"
            "| pairs | tokens are | documents | tokens | differ |\n|---|---|---|---|---|\n")
    table = head + "".join("| " + " | ".join(row) + " |\n" for row in rows)
    print(table, end="")
    if given.table:
        pathlib.Path(given.table).write_text(table)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
