"""What `orrery plan` picks on this machine against the fastest of many ways that were run: see planner_cells.sh."""
import itertools
import json
import os
import random
import statistics
import sys

from timed_runs import PLAIN, Runs, finish, named

program, root, table, rounds, steps, seconds = (*sys.argv[1:4], *map(int, sys.argv[4:7]))
runs = Runs(program, root)
NEAR, MOST = 0.07, 0.20  # in so many of the cells the pick may be slower by so much, and in any
NEAR_SHARE = 0.8
WAYS = 12 if table else 3
# Options that vary, as `orrery plan --keep` names those that do not.
OPTIONS = ["samples", "zero", "schedule", "sequence", "recompute"]
FEW = ["samples", "recompute"]
AXES = ["pp", "dp", "cp", "tp"]
SCHEDULES = [("1f1b", 0), ("interleaved", 2), ("interleaved", 3), ("interleaved", 4), ("zb_h1", 0), ("zbv", 0)]


def cell(name, ranks, transport, keep, batch, seq, micro, layers, embed, heads, **more):
    """`micro`: micro-batches as configured, which count where `samples` is kept. `more`: of [script], or with __ for
    a dot."""
    sets = {**PLAIN, "run.transport": transport, "train.steps": steps, "train.sequences_per_step": batch,
            "data.tokens_per_sequence": seq, "train.microbatches": micro, "script.layers": layers,
            "script.embed": embed, "script.heads": heads}
    return {"name": name, "ranks": ranks, "keep": keep, "sets": sets | named(more)}


CELLS = [
    #    name, ranks, transport, kept, batch, seq, micro, layers, embed, heads
    cell("2 gpt plain", 2, "shm", FEW, 16, 64, 4, 4, 128, 4),
    cell("2 gpt deep, small batch", 2, "shm", [], 4, 64, 1, 10, 80, 4),
    cell("2 gpt wide vocabulary", 2, "shm", FEW, 8, 32, 2, 2, 128, 4, data__vocab=6144),
    cell("2 gpt large batch", 2, "threads", FEW, 64, 32, 4, 2, 96, 4),
    cell("2 gpt wide", 2, "gloo", FEW, 8, 32, 2, 2, 256, 8),
    cell("2 gpt short sequences", 2, "ucx", [], 32, 16, 1, 4, 96, 4),
    cell("2 gpt untied head", 2, "ucx", FEW, 8, 64, 2, 3, 96, 6, data__vocab=4096, tied="no"),
    cell("2 llama plain", 2, "shm", FEW, 16, 64, 4, 4, 96, 4, model="llama"),
    cell("2 llama long sequences", 2, "threads", [], 4, 256, 1, 3, 96, 4, model="llama"),
    cell("2 llama grouped", 2, "gloo", FEW, 12, 64, 3, 4, 128, 8, model="llama", kv_heads=2),
    cell("2 llama wide feed-forward", 2, "shm", FEW, 8, 64, 2, 3, 96, 4, model="llama", mlp=1024),
    cell("2 llama thin and deep", 2, "ucx", FEW, 8, 48, 4, 12, 48, 4, model="llama"),
    cell("2 qwen2 plain", 2, "threads", FEW, 16, 64, 2, 4, 96, 6, model="qwen2", kv_heads=2),
    cell("2 qwen2 long sequences", 2, "shm", FEW, 4, 192, 2, 4, 96, 4, model="qwen2", kv_heads=2),
    cell("2 qwen2 deep", 2, "gloo", [], 8, 48, 1, 8, 64, 4, model="qwen2", kv_heads=4),
    cell("2 qwen2 wide vocabulary", 2, "shm", [], 8, 48, 1, 2, 96, 4, model="qwen2", kv_heads=2, data__vocab=4096),
    cell("4 gpt plain", 4, "shm", FEW, 16, 64, 4, 4, 128, 4),
    cell("4 gpt deep, small batch", 4, "shm", [], 4, 64, 1, 8, 80, 4),
    cell("4 gpt wide vocabulary", 4, "gloo", FEW, 16, 32, 2, 4, 96, 4, data__vocab=4096),
    cell("4 llama plain", 4, "threads", FEW, 16, 48, 4, 4, 96, 4, model="llama"),
    cell("4 llama long sequences", 4, "shm", FEW, 8, 192, 2, 4, 64, 4, model="llama", kv_heads=4),
    cell("4 llama large batch", 4, "ucx", FEW, 48, 32, 3, 4, 96, 4, model="llama"),
    cell("4 qwen2 deep", 4, "shm", FEW, 8, 64, 4, 8, 64, 4, model="qwen2", kv_heads=4),
    cell("4 qwen2 wide", 4, "gloo", [], 8, 32, 1, 4, 192, 8, model="qwen2", kv_heads=4),
]


def calibrating():
    """Runs of no cell's model, from which the table learns what ranks cost each other and what threads' messages take."""
    found = []
    for transport, mesh, more in [("shm", {"dp": 2}, {"zero": 3}), ("shm", {"tp": 2}, {"sequence": "true"}),
                                  ("shm", {"pp": 2}, {}), ("shm", {"dp": 2, "tp": 2}, {"zero": 1}),
                                  ("gloo", {"dp": 2}, {}), ("ucx", {"dp": 2}, {}), ("threads", {"dp": 2}, {"zero": 3}),
                                  ("threads", {"tp": 2}, {"sequence": "true"}), ("threads", {"pp": 2}, {}),
                                  ("threads", {"dp": 4}, {"zero": 1}), ("threads", {"dp": 2, "tp": 2}, {}),
                                  ("shm", {"dp": 2}, {"model": "llama"})]:
        one = cell("", 0, transport, [], 16, 80, 2, 3, 112, 4, **more)["sets"]
        one.update({f"mesh.{axis}": size for axis, size in mesh.items()})
        found.append((f"{transport} {' '.join(f'{a}{n}' for a, n in mesh.items())} {' '.join(map(str, more.values()))}"
                      .strip(), one))
    return found if table else found[:1]


def ways_of(one):
    """Settings of every way to run the cell that may be legal, as `orrery plan` names them, mesh by mesh."""
    batch, ranks, keep = one["sets"]["train.sequences_per_step"], one["ranks"], one["keep"]
    configured = batch // one["sets"]["train.microbatches"]
    meshes = []
    for tp, pp in itertools.product(range(1, ranks + 1), repeat=2):
        if ranks % (tp * pp):
            continue
        dp, ways = ranks // tp // pp, []
        for samples, zero, (schedule, chunks), sequence, recompute in itertools.product(
                [configured] if "samples" in keep else [1, 2, 4, 8, 16],
                range(4) if dp > 1 and "zero" not in keep else [0],
                SCHEDULES if pp > 1 and "schedule" not in keep else SCHEDULES[:1],
                ["false", "true"] if tp > 1 and "sequence" not in keep else ["false"],
                ["none"] if "recompute" in keep else ["none", "attention", "all"]):
            micro = batch // dp // samples
            if batch % (dp * samples) or micro < 1 or (schedule == "interleaved" and micro % pp):
                continue
            way = {"mesh.pp": pp, "mesh.dp": dp, "mesh.tp": tp, "train.microbatches": micro, "script.zero": zero,
                   "script.pipeline": f'"{schedule}"', "script.chunks": chunks, "script.sequence": sequence,
                   "script.recompute": f'"{recompute}"', "script.recompute_layers": 0}
            ways.append({key: str(value) for key, value in way.items() if not held(key, keep)})
        meshes.append(ways)
    return meshes


def held(key, keep):
    return {"script.zero": "zero", "script.pipeline": "schedule", "script.chunks": "schedule",
            "script.sequence": "sequence", "script.recompute": "recompute",
            "script.recompute_layers": "recompute"}.get(key) in keep


def of_plan(sets):
    """--set list of a choice of `orrery plan --json`, as ways_of has them: where there is no pipeline, say, its
    schedule is nothing that varies."""
    way = dict(one.split("=", 1) for one in sets)
    if way["mesh.pp"] == "1" and "script.pipeline" in way:
        way["script.pipeline"], way["script.chunks"] = '"1f1b"', "0"
    if way["mesh.dp"] == "1" and "script.zero" in way:
        way["script.zero"] = "0"
    return way


def words(way):
    """"dp2 samples=4 zero=1": what is not usual of it."""
    out = [f"{axis}{way[f'mesh.{axis}']}" for axis in AXES if way.get(f"mesh.{axis}", "1") != "1"]
    out += [way[key].strip('"') for key in ("script.context", "script.order") if key in way]
    out.append(f"micro={way['train.microbatches']}")
    schedule = way.get("script.pipeline", "").strip('"')
    if way["mesh.pp"] != "1" and schedule:
        out.append(schedule + (f" x{way['script.chunks']}" if schedule == "interleaved" else ""))
    if way.get("script.zero", "0") != "0":
        out.append(f"zero={way['script.zero']}")
    if way.get("script.sequence") == "true":
        out.append("sequence")
    if way.get("script.recompute", '"none"') != '"none"':
        out.append("recompute=" + way["script.recompute"].strip('"'))
    if way.get("script.recompute_layers", "0") != "0":
        out.append(f"layers={way['script.recompute_layers']}")
    return " ".join(out)


def chosen(one, planned):
    """Up to WAYS legal ways, the planner's pick first: all there are, or the best of each mesh as the planner ranks
    them, then in turn its next best and any other, mesh by mesh; the same ones each time."""
    ranked = [of_plan(choice["sets"]) for choice in planned["choices"]]
    all_ways = ways_of(one)
    any_order = random.Random(one["name"])
    for ways in all_ways:
        any_order.shuffle(ways)
    others = [way for turn in itertools.zip_longest(*all_ways) for way in turn if way]
    best_of_mesh, meshes = [], set()
    for way in ranked:
        mesh = tuple(way[f"mesh.{axis}"] for axis in AXES)
        if mesh not in meshes:
            best_of_mesh.append(way)
            meshes.add(mesh)
    queue = ranked[:1] + best_of_mesh
    queue += [way for pair in itertools.zip_longest(ranked, others) for way in pair if way]
    taken, seen = [], set()
    for way in queue:
        if len(taken) == WAYS:
            break
        name = words(way)
        if name in seen:
            continue
        seen.add(name)
        if runs.legal({**one["sets"], **way}):
            taken.append((name, {**one["sets"], **way}))
        elif not taken:
            sys.exit(f"{one['name']}: the planner's pick is refused: {name}")
    return taken, sum(len(ways) for ways in all_ways)


def run_cell(one):
    """The planner's pick and the fastest of the ways, in seconds, and what else the table says."""
    planned = json.loads(runs.of_script("plan", one["sets"], "--ranks", str(one["ranks"]), "--table", "fit.json",
                                        "--json", *(["--keep", ",".join(one["keep"])] if one["keep"] else [])))
    ways, legal = chosen(one, planned)
    predicted = {words(of_plan(choice["sets"])): choice["step_s"] for choice in planned["choices"]}
    print(f"{one['name']}: {planned['compiled']} compiled, {len(ways)} ways of at most {legal}", file=sys.stderr)
    folder = f"runs/{one['name'].replace(' ', '-').replace(',', '')}"
    found = runs.interleaved(ways, rounds, folder)
    took = {name: statistics.median(time for time, _ in of_name) for name, of_name in found.items()}
    pick, best = ways[0][0], min(took, key=took.get)
    with open("ways.jsonl", "a", encoding="utf-8") as out:
        for name in took:
            out.write(json.dumps({"cell": one["name"], "way": name, "predicted_s": predicted.get(name),
                                  "measured_s": took[name], "rounds_s": [time for time, _ in found[name]],
                                  "pick": name == pick, "best": name == best}) + "\n")
    return {"name": one["name"], "ways": len(ways), "pick": pick, "best": best, "pick_s": took[pick],
            "best_s": took[best], "predicted_s": predicted[pick], "over": took[pick] / took[best] - 1}


def judged(found):
    """Lines of the table, and whether a bar is missed."""
    lines = [f"{os.cpu_count()} processors; a way: the median of {rounds} interleaved runs of {steps} steps, ms a step",
             f"{'':28} {'ways':>4} {'predicted':>9} {'pick':>8} {'best':>8} {'over':>7}  pick; best where it is another"]
    for one in found:
        lines.append(f"{one['name']:28} {one['ways']:4} {1e3 * one['predicted_s']:9.2f} {1e3 * one['pick_s']:8.2f} "
                     f"{1e3 * one['best_s']:8.2f} {100 * one['over']:6.1f}%  {one['pick']}"
                     + (f"; {one['best']}" if one["best"] != one["pick"] else ""))
    overs = [one["over"] for one in found]
    near = sum(over <= NEAR for over in overs)
    missed_near, missed_most = near < NEAR_SHARE * len(overs), max(overs) > MOST
    lines.append(f"{near} of {len(overs)} cells within {100 * NEAR:.0f} % of the best measured (bar "
                 f"{100 * NEAR_SHARE:.0f} % of them: {'missed' if missed_near else 'met'})")
    lines.append(f"the worst {100 * max(overs):.1f} % (bar {100 * MOST:.0f} %: {'missed' if missed_most else 'met'}), "
                 f"median {100 * statistics.median(overs):.1f} %")
    return lines, missed_near or missed_most


def main():
    only = os.environ.get("PLANNER_CELLS_ONLY", "")
    cells = [one for one in (CELLS if table else CELLS[:1]) if only in one["name"]]
    for one in cells:  # mistakes show before anything is measured
        runs.of_script("check", {**one["sets"], "mesh.dp": 1})
    runs.call(["calibrate", "--threads", "1", "--transports", "shm,gloo,ucx" if table else "shm",
               "--ranks", "2,4" if table else "2", "--seconds", str(seconds), "-o", "fit.json"])
    first = runs.interleaved(calibrating(), 1, "runs/calibrating")
    runs.call(["calibrate", "--refit", *[of_name[0][1] for of_name in first.values()], "-o", "fit.json"])
    lines, missed = judged([run_cell(one) for one in cells])
    finish(lines, table, missed)


main()
