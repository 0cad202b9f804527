"""Runs of scripts/gpt.lua on this machine, timed by their own metrics, for the tests that hold predictions against them."""
import json
import statistics
import subprocess
import sys

# One thread a rank, no checkpoint, little evaluation: what a step takes, and as little else as can be.
PLAIN = {"run.seed": 5, "run.threads_per_rank": 1, "run.resume": "never", "data.path": "text.txt",
         "data.validation": 0.1, "train.log_every": 1000000, "train.evaluate_batches": 1, "checkpoint.final": "false",
         "script.warmup": 5}


class Runs:
    def __init__(self, program, root):
        self.program, self.script = program, f"{root}/scripts/gpt.lua"

    def tried(self, arguments):
        """The exit code, and all that it said."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def call(self, arguments):
        code, out, said = self.tried(arguments)
        if code != 0:
            sys.exit(f"{' '.join(arguments)}\nended with {code}\n{(out + said)[-3000:]}")
        return out

    def of_script(self, command, sets, *more):
        """What a command says of the script with these settings."""
        return self.call([command, self.script, *flags(sets), *more])

    def legal(self, sets):
        return self.tried(["check", self.script, *flags(sets)])[0] == 0

    def median_step(self, sets, folder):
        """Runs it: the median over the steps behind the first quarter, in seconds."""
        self.of_script("run", {**sets, "run.folder": folder})
        return median_of(folder, sets)

    def interleaved(self, configurations, rounds, inside):
        """Rounds over all (name, sets), so that what else the machine does falls on all alike. By name the rounds'
        (seconds, folder)."""
        found = {name: [] for name, _ in configurations}
        for turn in range(rounds):
            for name, sets in configurations:
                folder = f"{inside}/{name.replace(' ', '-').replace('=', '')}-{turn}"
                found[name].append((self.median_step(sets, folder), folder))
                print(f"round {turn + 1} of {rounds}: {name}: {1e3 * found[name][-1][0]:.2f} ms", file=sys.stderr,
                      flush=True)
        return found


def median_of(folder, sets):
    """Of the steps of a run behind its first quarter, in seconds."""
    tokens = sets["train.sequences_per_step"] * sets["data.tokens_per_sequence"]
    first = max(1, sets["train.steps"] // 4)
    took = []
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as metrics:
        for line in metrics:
            step = json.loads(line)
            if "loss" in step and step["step"] > first:
                took.append(tokens / step["tok/s"])
    return statistics.median(took)


def named(more):
    """Settings by keyword: keys of [script], or with __ for a dot."""
    return {key.replace("__", ".") if "__" in key else f"script.{key}": value for key, value in more.items()}


def finish(lines, table, missed, hint=""):
    """Prints the lines and leaves them in `table`. A missed bar is an error there alone: the short form has too few
    steps to judge anything by."""
    print("\n".join(lines))
    if not table:
        return
    with open(table, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    if missed:
        sys.exit("a bar is missed: was the machine left alone?" + hint)


def flags(sets):
    out = []
    for key, value in sets.items():
        out += ["--set", f"{key}={value}"]
    return out
