"""Meshes that `orrery plan` keeps against what it finds on them among all: see kept_mesh.sh."""
import json
import os
import subprocess
import sys

program, root, table = sys.argv[1:4]
JOBS = os.environ.get("KEPT_MESH_JOBS", "2")
LLAMA = {"script.model": '"llama"', "script.embed": 4096, "script.heads": 32, "script.kv_heads": 8, "script.mlp": 14336,
         "data.vocab": 32000, "data.tokens_per_sequence": 4096}
GPT = {"script.embed": 2048, "script.heads": 16, "data.vocab": 50304, "data.tokens_per_sequence": 1024}
CELLS = [
    # name, ranks, batch, settings; meshes in the short form
    ("gpt of 8 layers, 8 ranks", 8, 64, {**GPT, "script.layers": 8}, 2),
    ("gpt of 16 layers, 16 ranks", 16, 512, {**GPT, "script.layers": 16}, 0),
    ("llama of 16 layers, 32 ranks", 32, 128, {**LLAMA, "script.layers": 16}, 0),
]


def plan(ranks, batch, sets, *more):
    every = {"train.steps": 10, "train.sequences_per_step": batch, "train.precision": '"bf16"', **sets}
    words = [program, "plan", f"{root}/scripts/gpt.lua", "--cluster", f"{root}/configs/clusters/h100.toml",
             "--cluster-nodes", str(max(1, ranks // 8)), "--json", "--jobs", JOBS, *more]
    for key, value in every.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def mesh_of(choice):
    return choice["pp"], choice["dp"], choice["tp"]


def cell(name, ranks, batch, sets, short):
    among, best = plan(ranks, batch, sets), {}
    for choice in among["choices"]:
        if choice["fits"] and choice["cp"] == 1:
            now = best.setdefault(mesh_of(choice), choice["step_s"])
            best[mesh_of(choice)] = min(now, choice["step_s"])
    lines = [f"{name}: {among['compiled']} compiled, {len(best)} meshes with a choice that fits"]
    slower = 0
    for (pp, dp, tp), step_s in list(sorted(best.items(), key=lambda one: one[1]))[:None if table else short]:
        start = {"mesh.pp": pp, "mesh.dp": dp, "mesh.tp": tp, "train.microbatches": batch // dp}
        kept = plan(ranks, batch, {**sets, **start}, "--keep", "mesh", "--ranks", str(ranks))
        first = kept["choices"][0]
        assert mesh_of(first) == (pp, dp, tp) and first["fits"], first
        slower += first["step_s"] > step_s * (1 + 1e-9)
        lines.append(f"pp={pp:<3} dp={dp:<3} tp={tp:<2} {1e3 * step_s:9.2f} {1e3 * first['step_s']:9.2f} "
                     f"{100 * (first['step_s'] / step_s - 1):6.1f} % {kept['compiled']:4}")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines, len(lines) - 1, slower


def main():
    lines, meshes, slower = [f"{'mesh':17} {'among all':>9} {'alone':>9} {'':>8} compiled; ms a step, predicted"], 0, 0
    for one in CELLS if table else CELLS[:1]:
        of_cell, searched, behind = cell(*one)
        lines += of_cell
        meshes += searched
        slower += behind
    lines.append(f"{meshes} meshes, {slower} slower alone than among all")
    print("\n".join(lines))
    if table:
        with open(table, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
    if slower or not meshes:
        sys.exit("a mesh alone is slower")


main()
