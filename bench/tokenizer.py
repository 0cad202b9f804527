#!/usr/bin/env python3
"""Encoding English text beside the package `tokenizers`, interleaved: MB/s, medians of rounds.

    scripts/build tokenizer_frames
    PYTHON bench/tokenizer.py [--megabytes 10] [--rounds 5] [--tokenizers gpt2,llama3,qwen2,llama2]

PYTHON is an interpreter that has the package. Both encode the same documents (of some 2 kB, and of 200 kB) with the same
file, trained by tests/tokenizer/generate.py's pipelines on a part of the text; the package by encode_batch_fast, without
offsets, on one thread (RAYON_NUM_THREADS=1), Orrery by `Encoders` on one and on two. A round is one pass of each in
turn; the word caches of both begin empty in each pass of Orrery, and warm in the package from its second pass on.
`ratio` is of one thread each, `of one` Orrery's two threads against its one, `by work` what that would be on two
processors that nothing else uses: twice the processor seconds of one thread over those of two.
"""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tokenizer"))
import tokenizers  # noqa: E402

import conformance  # noqa: E402
import generate  # noqa: E402


class Program:
    """tokenizer_frames, kept running."""

    def __init__(self, program, file, frames, threads):
        self.process = subprocess.Popen([program, file, "time", frames, str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def seconds(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds, ids, processor = self.process.stdout.readline().split()
        return float(seconds), int(ids), float(processor)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, tokenizer, file, texts, folder, asked):
    frames = os.path.join(folder, "frames")
    pathlib.Path(frames).write_bytes(conformance.frame(texts))
    size = sum(len(t.encode()) for t in texts) / 1e6
    programs = [Program(asked.program, file, frames, threads) for threads in (1, 2)]
    times, worked = [[], [], []], [[], []]
    for _ in range(asked.rounds):
        begin = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        times[0].append(time.perf_counter() - begin)
        count = sum(len(e.ids) for e in encoded)
        del encoded
        for i, program in enumerate(programs):
            seconds, ids, processor = program.seconds()
            if ids != count:
                sys.exit(f"tokenizer.py: {name}: {ids} ids, the package has {count}")
            times[1 + i].append(seconds)
            worked[i].append(processor)
    for program in programs:
        program.end()
    package, one, two = (size / statistics.median(t) for t in times)
    return (name, f"{statistics.mean(len(t.encode()) for t in texts) / 1000:.1f} kB", f"{count / size / 1000:.0f}",
            f"{package:.1f}", f"{one:.1f}", f"{one / package:.1f}", f"{two:.1f}", f"{two / one:.2f}",
            f"{2 * statistics.median(worked[0]) / statistics.median(worked[1]):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--tokenizers", default="gpt2,llama3,qwen2,llama2")
    parser.add_argument("--program", default=str(ROOT / "build" / "tests" / "tokenizer" / "tokenizer_frames"))
    asked = parser.parse_args()
    whole = "".join(conformance.english(int(asked.megabytes * 1e6), random.Random(1)))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.tokenizers.split(","):
            train_on = [whole[at:at + 2000] for at in range(0, len(whole), 8000)]
            tokenizer = generate.PIPELINES[name](train_on, asked.vocabulary)
            file = os.path.join(folder, name + ".json")
            tokenizer.save(file)
            for length in (2000, 200000):
                texts = [whole[at:at + length] for at in range(0, len(whole), length)]
                rows.append(measure(name, tokenizer, file, texts, folder, asked))
                print(rows[-1], file=sys.stderr, flush=True)
    print(f"tokenizers {tokenizers.__version__}, {asked.megabytes} MB of English, medians of {asked.rounds} rounds, "
          f"vocabularies of {asked.vocabulary}\n")
    print("| tokenizer | documents | ids/kB | package MB/s | Orrery MB/s | ratio | 2 threads MB/s | of one | by work |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
