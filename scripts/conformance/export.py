#!/usr/bin/env python3
"""Exports against transformers 4 and 5: random models, trained some steps on a mesh, exported and loaded.

    scripts/conformance/export.py [--count 12] [--seed 1] [--four PYTHON] [--five PYTHON] [--build build] [--table FILE]

Each model is imported from a folder of random weights (`hf.lua`), or made by its options (`gpt.lua`), trained three
steps on dp=2 tp=2 pp=2, or dp=2 pp=2 with ZeRO-3 where tp=2 does not divide it, and exported in f32. Then, for each of
the two transformers: no key is missing, left over or of another shape; logits in float64 agree with each other's, and
with those that equivalence_tests computes of the export on every mesh, within 1e-5 of the largest; the 64 tokens of
`orrery sample` at temperature 0 are the likeliest, where the two best are not within 1e-4. Without rope_theta and
rope_scaling transformers 4 must go wrong wherever they say another thing than theta = 10,000. PYTHON: of an environment
with torch, safetensors and that transformers (--four: before 5). Needs `orrery` and equivalence_tests built. Exit code
1: something differs.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
SEQ, TOKENS = 80, 64
PLAIN = dict(rope_type="default", rope_theta=10000.0)


def look(folders, out):
    """In an environment of either version: what transformers says of each folder, and its logits."""
    import torch
    import transformers
    from safetensors.torch import save_file
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    said, logits = {"version": transformers.__version__, "torch": torch.__version__}, {}
    for folder in map(pathlib.Path, folders):
        wanted = json.loads((folder.parent / "wanted.json").read_text())
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager")
        keys = {name: sorted(map(str, told[name])) for name in ("missing_keys", "unexpected_keys", "mismatched_keys")}
        tokens = torch.tensor([wanted["greedy"]])
        with torch.no_grad():
            found = model.double().eval()(tokens[:, :-1]).logits[0]
        margins = []                                          # of the likeliest over the one that was drawn
        for at in range(wanted["given"] - 1, found.shape[0]):
            margins.append(float(found[at].max() - found[at][tokens[0, at + 1]]))
        said[str(folder)] = dict(keys=keys, margin=max(margins), kind=type(model).__name__)
        logits[str(folder)] = found.contiguous()
    save_file(logits, out + ".safetensors")
    pathlib.Path(out + ".json").write_text(json.dumps(said))


def expect(folders):
    """Logits and losses beside each export, for equivalence_tests; in the environment of transformers 5."""
    import torch
    import transformers
    from safetensors.torch import save_file
    sys.path.insert(0, str(root / "tests/transformers"))
    import generate
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for number, folder in enumerate(map(pathlib.Path, folders)):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        spec = dict(seed=number, config=dict(vocab_size=model.config.vocab_size))
        save_file(generate.expected(model, spec), folder / "expected.safetensors")


def generate_folder(number, seed, folder):
    """A published folder of random weights; in the environment of transformers 5."""
    sys.path.insert(0, str(root / "tests/transformers"))
    sys.path.insert(0, str(root / "scripts/conformance"))
    import generate
    import models
    draw = random.Random(f"{seed} {number}")
    spec = models.spec_of(int(number), draw)
    if spec["kind"] == "GPT2":
        spec["config"]["n_positions"] = SEQ + 3
    if int(number) < 10 and spec["kind"] != "GPT2":            # sizes that tp = 2 divides
        spec["config"].update(num_attention_heads=6, num_key_value_heads=draw.choice([2, 6]), intermediate_size=26)
        spec["config"]["hidden_size"] = draw.choice([18, 24]) if "head_dim" in spec["config"] else 24
    generate.save(generate.make(spec), spec, pathlib.Path(folder))


def made(draw):
    """Options of gpt.lua, with the architecture that they make."""
    sizes = dict(layers=2, embed=24, heads=6, mlp=26)
    family = dict(sizes, kv_heads=draw.choice([2, 6]))
    return [("gpt2", dict(sizes, model="gpt")),
            ("llama", dict(family, model="llama")),
            ("mistral", dict(family, model="llama", window=7, tied="yes")),
            ("qwen3", dict(family, model="llama", qk_norm="true")),
            ("qwen2", dict(family, model="qwen2"))]


class Checks:
    def __init__(self, asked, folder):
        self.asked, self.folder, self.rows, self.bad = asked, folder, [], 0
        self.orrery = str(pathlib.Path(asked.build).resolve() / "orrery")
        self.draw = random.Random(asked.seed)

    def command(self, *words, python=None):
        done = subprocess.run([*map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"))
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def train(self, name, script, sets, vocab, divides):
        """Trains, exports and samples; returns the export."""
        at = self.folder / name
        at.mkdir(parents=True, exist_ok=True)
        ids = at / "ids.bin"
        ids.write_bytes(bytes(b for _ in range(16000) for b in (self.draw.randrange(vocab), 0)))
        mesh = ["mesh.dp=2", "mesh.tp=2", "mesh.pp=2"] if divides else ["mesh.dp=2", "mesh.pp=2", "script.zero=3"]
        sets = [*sets, *mesh, f"run.folder={at}/run", f"data.path={ids}", "data.token_bytes=2", f"data.vocab={vocab}",
                f"data.tokens_per_sequence={SEQ}", "data.validation=0.1", "train.sequences_per_step=8",
                "train.microbatches=2", "train.steps=3", "train.evaluate_batches=1", "script.lr=0.01",
                "script.warmup=1", "run.timeout_s=100"]
        self.command(self.orrery, "run", root / "scripts" / script, *[word for s in sets for word in ("--set", s)])
        self.command(self.orrery, "export", at / "run", at / "export", "--dtype", "f32",
                     "--shard-gb", self.draw.choice(["5", "0.00001"]))
        given = [self.draw.randrange(vocab) for _ in range(4)]
        words = self.command(self.orrery, "sample", at / "run", "-n", TOKENS, "-t", 0,
                             "--prompt", " ".join(map(str, given))).splitlines()[-1].split()  # behind the summary
        (at / "wanted.json").write_text(json.dumps(dict(greedy=[int(word) for word in words], given=len(given))))
        return dict(name=name, export=at / "export", mesh=" ".join(m.split(".")[1] for m in mesh))

    def models(self):
        five = self.asked.five
        here = pathlib.Path(__file__).resolve()
        for number in range(self.asked.count):
            source = self.folder / f"source_{number:02d}"
            source.mkdir()
            self.command(five, here, "--generate", number, self.asked.seed, source)
            config = json.loads((source / "config.json").read_text())
            heads = config.get("num_attention_heads", config.get("n_head"))
            split = [heads, config.get("num_key_value_heads", heads),
                     config.get("intermediate_size", config.get("n_inner") or 2)]
            name = f"{number:02d}_{config['model_type']}"
            yield self.train(name, "hf.lua", [f"checkpoint.load={source}"],
                             config["vocab_size"], all(n % 2 == 0 for n in split))
        for kind, options in made(self.draw):
            model = self.train(f"made_{kind}", "gpt.lua", [f"script.{key}={value}" for key, value in options.items()],
                               2 * self.draw.randint(10, 22), True)
            found = json.loads((model["export"] / "config.json").read_text())["model_type"]
            if found != kind:
                sys.exit(f"{model['name']} is a {found}")
            yield model

    def look(self, python, folders, out):
        self.command(python, pathlib.Path(__file__).resolve(), "--look", out, *folders)
        return json.loads((self.folder / (out + ".json")).read_text())

    def ablate(self, model):
        """The export without the old spelling, where that says something."""
        config = json.loads((model["export"] / "config.json").read_text())
        if config.get("rope_parameters", PLAIN) == PLAIN:
            return None
        copy = model["export"].parent / "new_spelling"
        shutil.copytree(model["export"], copy)
        del config["rope_theta"], config["rope_scaling"]
        (copy / "config.json").write_text(json.dumps(config))
        return copy

    def run(self):
        from safetensors import safe_open
        models = list(self.models())
        folders = [model["export"] for model in models]
        for model in models:
            model["ablated"] = self.ablate(model)
        ablated = [model["ablated"] for model in models if model["ablated"]]
        self.command(self.asked.five, pathlib.Path(__file__).resolve(), "--expect", *folders)
        four, five = (self.look(python, folders + ablated, out)
                      for python, out in ((self.asked.four, "four"), (self.asked.five, "five")))
        if not four["version"].startswith("4.") or not five["version"].startswith("5."):
            sys.exit(f"transformers {four['version']} and {five['version']}, expected 4 and 5")
        ours = self.ours(models)
        with safe_open(self.folder / "four.safetensors", "pt") as a, \
                safe_open(self.folder / "five.safetensors", "pt") as b:
            def apart(left, right):
                return float((left - right).abs().max() / right.abs().max())
            for model in models:
                key = str(model["export"])
                keys = sum(len(names) for said in (four, five) for names in said[key]["keys"].values())
                logits = apart(a.get_tensor(key), b.get_tensor(key))
                margin = max(four[key]["margin"], five[key]["margin"])
                wrong = apart(a.get_tensor(str(model["ablated"])), b.get_tensor(key)) if model["ablated"] else None
                good = keys == 0 and logits <= 1e-5 and ours[model["name"]] <= 1e-5 and margin <= 1e-4 and \
                    (wrong is None or wrong > 1e-5)
                self.bad += not good
                self.rows.append([model["name"], model["mesh"], five[key]["kind"], str(keys), f"{logits:.1e}",
                                  f"{ours[model['name']]:.1e}", f"{margin:.1e}",
                                  "" if wrong is None else f"{wrong:.1e}", "" if good else "DIFFERS"])
        self.table(four, five)

    def ours(self, models):
        """Of Orrery's logits on every mesh the farthest from transformers', of the largest."""
        at = self.folder / "exports"
        at.mkdir()
        for model in models:
            (at / model["name"]).symlink_to(model["export"])
        done = subprocess.run([str(pathlib.Path(self.asked.build).resolve() / "equivalence_tests"), "[transformers]"],
                              env=dict(os.environ, ORRERY_PUBLISHED=str(at)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout[-6000:])
        found, name = {}, None
        for line in done.stdout.splitlines():
            title = re.match(r"(\S+?)(, .*)? against transformers", line.replace(",  ", ", "))
            name = title[1].rstrip(",") if title else name
            number = re.match(r"\s*logits\b.*?(\d\.?\d*e[-+]\d+)", line)
            if name and number:
                found[name] = max(found.get(name, 0.0), float(number[1]))
        return found

    def table(self, four, five):
        head = ["model", "mesh", "class", "keys missing, left over or misshapen", "logits, 4 and 5", "logits, Orrery's",
                "64 greedy tokens", "4 without the old spelling", ""]
        lines = ["# Exports in transformers 4 and 5", "",
                 f"{datetime.date.today()}, `scripts/conformance/export.py --count {self.asked.count} "
                 f"--seed {self.asked.seed}`, transformers {four['version']} and {five['version']}, "
                 f"torch {five['torch']}.",
                 "Logits: distance from transformers 5's in float64, of the largest; Orrery's in f32, of the "
                 "export, the worst", "of its meshes. Tokens: by how much the likeliest logit is above that of the "
                 "token that `orrery sample RUN` drew. The last: how", "wrong logits become.", "",
                 "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        text = "\n".join(lines) + "\n"
        print(text)
        if self.asked.table:
            pathlib.Path(self.asked.table).write_text(text)


def main():
    if sys.argv[1:2] == ["--look"]:
        return look(sys.argv[3:], sys.argv[2])
    if sys.argv[1:2] == ["--expect"]:
        return expect(sys.argv[2:])
    if sys.argv[1:2] == ["--generate"]:
        return generate_folder(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--four", required=True)
    parser.add_argument("--five", required=True)
    parser.add_argument("--build", default=str(root / "build"))
    parser.add_argument("--table", help="a file for the table")
    parser.add_argument("--keep", help="a new folder for what is made, which stays")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(asked.keep or scratch).resolve()
        folder.mkdir(exist_ok=True)
        checks = Checks(asked, folder)
        checks.run()
    return 1 if checks.bad else 0


if __name__ == "__main__":
    sys.exit(main())
