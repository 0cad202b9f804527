#!/usr/bin/env python3
"""Ids and texts of core/tokenizer against the package `tokenizers`, on megabytes.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install tokenizers==0.23.3
    scripts/build tokenizer_frames
    /tmp/peers/bin/python tests/tokenizer/conformance.py [--scale 1] [--table tests/tokenizer/conformance.md]

Trains four tokenizers of 16,000 tokens by the published pipelines of GPT-2, Llama 3, Qwen2 and Llama 2 on English, C
and rst of this machine, then compares on 10 MB of English, 10 MB of C and rst, 5 MB of random characters of Unicode 14,
every added token in every neighbourhood, and decoded random ids, at once and one by one. Of what is newer than Unicode
14 it says how much differs. Ends with 1 when anything of the former does. --scale 0.1 takes a tenth of the texts.
"""
import argparse
import datetime
import gzip
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import generate

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(path):
    try:
        raw = gzip.open(path).read() if str(path).endswith(".gz") else open(path, "rb").read()
        return raw.decode()
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


def files_below(folders, endings):
    for folder in folders:
        for here, below, names in os.walk(folder):
            below.sort()
            for name in sorted(names):
                if any(name.endswith(e) for e in endings):
                    yield os.path.join(here, name)


def cut(text, rng):
    """Documents of many lengths."""
    at, out = 0, []
    while at < len(text):
        length = rng.choice([20, 200, 2000, 20000])
        out.append(text[at:at + length])
        at += length
    return out


def english(size, rng):
    """The King James Bible where it is, then documentation of this machine."""
    text = ""
    try:
        text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True).stdout
    except OSError:
        pass
    parts, total = [text], len(text)
    for path in files_below(["/usr/share/doc", "/usr/share/common-licenses", "/usr/share/perl", "/usr/lib/python3"],
                            ("README", "README.gz", "copyright", ".txt", ".txt.gz", ".pod", "NEWS.gz", "changelog.gz")):
        if total > size:
            break
        parts.append(read(path))
        total += len(parts[-1])
    return cut("".join(parts)[:size], rng)


def code(size, rng):
    out, total = [], 0
    sources = [files_below(["/usr/include", "/usr/share/doc"], (".rst", ".rst.gz", ".rst.txt")),
               files_below(["/usr/include"], (".h", ".hpp", ".c", ".cpp"))]
    for files, share in ((sources[0], size // 3), (sources[1], size)):
        for path in files:
            if total > share:
                break
            out.append(read(path)[:200000])
            total += len(out[-1])
    return cut("".join(out)[:size], rng)


def unicode_texts(size, rng, assigned):
    """Characters drawn evenly from all that are assigned, and from small alphabets, in runs."""
    out, total = [], 0
    marks = [c for c in assigned if unicodedata.combining(c)]
    while total < size:
        text = generate.anything(rng, 60) if rng.random() < 0.2 else ""
        text = "".join(c for c in text if unicodedata.category(c) != "Cn")
        while len(text) < 400:
            kind = rng.random()
            if kind < 0.5:
                text += "".join(rng.choice(assigned) for _ in range(rng.randint(1, 12)))
            elif kind < 0.65:
                text += rng.choice(assigned) + "".join(rng.choice(marks) for _ in range(rng.randint(1, 4)))
            elif kind < 0.8:
                text += rng.choice(["'s", "'T", "'LL", " ", "  \n", "\r\n", "\t", "12", "0", "-", "'ſ", "\u00a0", "\u3000"])
            else:
                low = rng.choice(assigned[:3000])
                text += low * rng.randint(1, 5)
        out.append(text)
        total += len(text.encode())
    return out


def each_character():
    """What NFC, \\w, \\s and \\p{L}, \\p{N} make of each assigned character."""
    out = []
    for c in (chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000):
        if unicodedata.category(c) != "Cn" and not 0x3500 < ord(c) < 0x4D00 and not 0x20100 < ord(c) < 0x2A000:
            out.append(f"{c}<single_word>{c}<lstrip>a{c}<rstrip>{c} 1{c}2 a\u0345{c}\u0334\u0301 {c}{c}'s{c}")
    return out


def frame(texts):
    return b"".join(struct.pack("<I", len(raw)) + raw for raw in (t.encode() for t in texts))


def ours(program, file, how, frames):
    done = subprocess.run([program, file, how], input=frames, capture_output=True)
    if done.returncode:
        sys.exit(f"conformance: {done.stderr.decode()}")
    return done.stdout


def ids_of(program, file, how, texts):
    raw, out, at = ours(program, file, how, frame(texts)), [], 0
    while at < len(raw):
        (count,) = struct.unpack_from("<I", raw, at)
        if count == 0xFFFFFFFF:
            sys.exit("conformance: a text was refused")
        out.append(list(struct.unpack_from(f"<{count}i", raw, at + 4)))
        at += 4 + 4 * count
    return out


def texts_of(program, file, how, lists):
    raw = ours(program, file, how, b"".join(struct.pack(f"<I{len(l)}i", len(l), *l) for l in lists))
    out, at = [], 0
    while at < len(raw):
        (count,) = struct.unpack_from("<I", raw, at)
        out.append(raw[at + 4:at + 4 + count].decode())
        at += 4 + count
    return out


def differing(name, what, texts, mine, theirs):
    wrong = [i for i in range(len(texts)) if mine[i] != theirs[i]]
    for i in wrong[:0 if what.startswith("newer") else 3]:
        print(f"{name}, {what}: {texts[i]!r:.200}\n  {mine[i]!r:.300}\n  {theirs[i]!r:.300}", file=sys.stderr)
    return len(wrong)


def compare(name, tokenizer, file, program, corpora, rng):
    rows, bad = [], 0
    all_sets = list(corpora.items()) + [("added tokens in every neighbourhood", generate.neighbours(tokenizer))]
    if name == "qwen2":  # the one that composes
        all_sets.append(("every character alone, between marks and beside added tokens", each_character()))
    for what, texts in all_sets:
        for how, template_too in (("encode", False), ("encode_with", True)):
            if template_too and not what.startswith("added"):
                continue
            mine = ids_of(program, file, how, texts)
            theirs = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=template_too)]
            wrong = differing(name, what, texts, mine, theirs)
            newer = what.startswith("newer")
            bad += 0 if newer else wrong
            size = sum(len(t.encode()) for t in texts)
            rows.append((name, what + (", with template" if template_too else ""), f"{size / 1e6:.2f} MB",
                         f"{len(texts):,}", f"{sum(map(len, theirs)):,}", wrong))
    known = sorted(tokenizer.get_vocab().values())
    lists = [[rng.choice(known if rng.random() < 0.6 else known[:400]) for _ in range(rng.randint(0, 40))]
             for _ in range(20000)]
    for how, skip in (("decode", False), ("decode_without", True), ("stream", False)):
        mine = texts_of(program, file, how, lists)
        theirs = [tokenizer.decode(l, skip_special_tokens=skip) for l in lists]
        wrong = differing(name, how, lists, mine, theirs)
        bad += wrong
        what = {"decode": "random ids decoded", "decode_without": "the same without special tokens",
                "stream": "the same one by one"}[how]
        rows.append((name, what, f"{sum(len(t.encode()) for t in theirs) / 1e6:.2f} MB", f"{len(lists):,}",
                     f"{sum(map(len, lists)):,}", wrong))
    return rows, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--table")
    parser.add_argument("--program", default=str(ROOT / "build" / "tests" / "tokenizer" / "tokenizer_frames"))
    asked = parser.parse_args()
    rng = random.Random(14)
    # Python's own tables say what is assigned; those of 3.11 are Unicode 14's.
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"conformance: wants a Python with Unicode 14 (3.11), this has {unicodedata.unidata_version}")
    every = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    assigned = [c for c in every if unicodedata.category(c) not in ("Cn", "Co")]
    unassigned = [c for c in every if unicodedata.category(c) == "Cn"]
    mb = int(1e6 * asked.scale)
    corpora = {"English": english(10 * mb, rng), "C and rst": code(10 * mb, rng),
               "random Unicode 14": unicode_texts(5 * mb, rng, assigned)}
    train_on = corpora["English"][::4] + corpora["C and rst"][::4] + corpora["random Unicode 14"][::40]
    corpora["newer than Unicode 14, or none"] = [
        "".join(rng.choice(unassigned if rng.random() < 0.3 else assigned) for _ in range(60)) for _ in range(2000)]
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, pipeline in generate.PIPELINES.items():
            tokenizer = pipeline(train_on, 16000)
            tokenizer.add_tokens(generate.flags())
            file = os.path.join(folder, name + ".json")
            tokenizer.save(file)
            more, wrong = compare(name, tokenizers.Tokenizer.from_file(file), file, asked.program, corpora, rng)
            rows += more
            bad += wrong
            print(f"{name}: {wrong} differ", flush=True)
    lines = [f"# Against the package tokenizers {tokenizers.__version__}", "",
             f"{datetime.date.today()}, `tests/tokenizer/conformance.py`, libonig 6.9.8, libutf8proc 2.8.0, Python "
             f"{sys.version.split()[0]}. Vocabularies of 16,000.", "",
             "| tokenizer | texts | size | how many | ids | differ |", "|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.table:
        pathlib.Path(asked.table).write_text(text)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
