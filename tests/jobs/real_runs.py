"""Real runs of this machine against what `orrery simulate` says of them: see real_runs.sh."""
import json
import os
import statistics
import sys

from timed_runs import PLAIN, Runs, finish, named

program, root, table, rounds, steps, seconds = (*sys.argv[1:4], *map(int, sys.argv[4:7]))
runs = Runs(program, root)
BARS = {"1 and 2 ranks": (0.08, 0.20), "4 and 8 ranks": (0.15, 0.35)}
MOST_SPREAD = 0.05
BASE = {**PLAIN, "data.tokens_per_sequence": 64, "train.sequences_per_step": 16, "train.steps": steps,
        "script.layers": 4, "script.embed": 128, "script.heads": 4}


def of(transport, mesh=None, **more):
    """Settings of a run. Keys: of [script], or with __ for a dot."""
    sets = {**BASE, "run.transport": transport}
    for axis, size in (mesh or {}).items():
        sets[f"mesh.{axis}"] = size
    return sets | named(more)


def pipe(schedule, stages, transport, micro=8, **more):
    return of(transport, {"pp": stages}, pipeline=schedule, train__microbatches=micro, **more)


# Of two neighbours the first calibrates, and the second is predicted without its being measured.
ALL = [
    ("one gpt 2 micro", of("shm", train__microbatches=2)),  # the shapes that dp2 has, without anybody beside
    ("one gpt", of("shm")),
    ("one llama", of("shm", model="llama")),
    ("one llama wide", of("shm", model="llama", embed=192, heads=6)),
    ("one qwen2", of("shm", model="qwen2", kv_heads=2)),
    ("one gpt deep", of("shm", layers=6, recompute="all")),
    ("dp2 shm", of("shm", {"dp": 2})),
    ("dp2 shm llama", of("shm", {"dp": 2}, model="llama")),
    ("dp2 threads", of("threads", {"dp": 2})),
    ("dp2 threads zero1", of("threads", {"dp": 2}, zero=1)),
    ("dp2 gloo", of("gloo", {"dp": 2})),
    ("dp2 gloo zero2", of("gloo", {"dp": 2}, zero=2)),
    ("dp2 ucx zero1", of("ucx", {"dp": 2}, zero=1)),
    ("dp2 ucx", of("ucx", {"dp": 2})),
    ("dp2 shm zero3", of("shm", {"dp": 2}, zero=3)),
    ("dp2 shm zero1", of("shm", {"dp": 2}, zero=1)),
    ("tp2 shm", of("shm", {"tp": 2})),
    ("tp2 shm sequence", of("shm", {"tp": 2}, sequence="true")),
    ("tp2 gloo", of("gloo", {"tp": 2})),
    ("tp2 ucx", of("ucx", {"tp": 2})),
    ("pp2 1f1b shm", pipe("1f1b", 2, "shm")),
    ("pp2 gpipe shm", pipe("gpipe", 2, "shm")),
    ("pp2 interleaved threads", pipe("interleaved", 2, "threads", chunks=2)),
    ("pp2 zb_h1 threads", pipe("zb_h1", 2, "threads")),
    ("pp2 zb_h1 shm", pipe("zb_h1", 2, "shm")),
    ("pp2 zbv shm", pipe("zbv", 2, "shm")),
    ("pp2 gpipe gloo", pipe("gpipe", 2, "gloo")),
    ("pp2 1f1b gloo", pipe("1f1b", 2, "gloo")),
    ("pp2 1f1b ucx", pipe("1f1b", 2, "ucx")),
    ("pp2 interleaved ucx", pipe("interleaved", 2, "ucx", chunks=2)),
    ("dp4 shm", of("shm", {"dp": 4})),
    ("dp4 shm zero1", of("shm", {"dp": 4}, zero=1)),
    ("dp2 tp2 shm", of("shm", {"dp": 2, "tp": 2})),
    ("dp2 tp2 threads", of("threads", {"dp": 2, "tp": 2})),
    ("pp2 dp2 shm", pipe("1f1b", 2, "shm", 4) | {"mesh.dp": 2}),
    ("pp2 dp2 gloo", pipe("1f1b", 2, "gloo", 4) | {"mesh.dp": 2}),
    ("pp4 1f1b shm", pipe("1f1b", 4, "shm")),
    ("pp4 gpipe shm", pipe("gpipe", 4, "shm")),
    ("dp4 gloo", of("gloo", {"dp": 4})),
    ("dp4 ucx", of("ucx", {"dp": 4})),
    ("dp8 shm", of("shm", {"dp": 8})),
    ("dp8 shm zero1", of("shm", {"dp": 8}, zero=1)),
    ("pp2 dp2 tp2 shm", pipe("1f1b", 2, "shm", 4) | {"mesh.dp": 2, "mesh.tp": 2}),
    ("dp4 tp2 shm", of("shm", {"dp": 4, "tp": 2})),
]
FEW = ["dp2 shm", "dp2 shm llama", "pp2 1f1b shm", "pp2 gpipe shm"]


def ranks(sets):
    count = 1
    for key, value in sets.items():
        count *= value if key.startswith("mesh.") else 1
    return count


def spread(of_name):
    """The quartiles' distance over the median, as tables of costs have it; None: too few runs tell it."""
    times = [time for time, _ in of_name]
    if len(times) < 4:
        return None
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return (third - first) / statistics.median(times)


def main():
    configurations = ALL if table else [one for one in ALL if one[0] in FEW]
    for _, sets in configurations:  # mistakes show before anything is measured
        runs.of_script("check", sets)
    runs.call(["calibrate", "--threads", "1", "--transports", "shm,threads,gloo,ucx" if table else "shm",
               "--ranks", "2,4,8" if table else "2", "--seconds", str(seconds), "-o", "fit.json"])
    found = {name: sorted(of_name) for name, of_name in runs.interleaved(configurations, rounds, "runs").items()}
    middle = {name: of_name[len(of_name) // 2] for name, of_name in found.items()}
    calibrating = {name for i, (name, _) in enumerate(configurations) if i % 2 == 0}
    runs.call(["calibrate", "--refit", *[middle[name][1] for name, _ in configurations if name in calibrating], "-o",
               "fit.json"])
    lines = [f"{os.cpu_count()} processors; each the median of {rounds} interleaved runs of {steps} steps, ms a step",
             f"{'':26} {'predicted':>10} {'measured':>10} {'off':>8} {'spread':>8}"]
    judged = {group: {"predicted": [], "calibrating": []} for group in BARS}
    left_out = 0
    for name, sets in configurations:
        told = json.loads(runs.of_script("simulate", sets, "--table", "fit.json", "--json"))
        measured, wide = middle[name][0], spread(found[name])
        off = told["step_s"] / measured - 1
        if not told["step_s"] > 0:
            sys.exit(f"{name}: predicted {told['step_s']} s")
        kind = "calibrating" if name in calibrating else "predicted"
        words = kind if kind == "calibrating" else ""
        if wide is not None and wide > MOST_SPREAD:
            left_out += 1
            words = (words + ", " if words else "") + "left out: its runs differ"
        else:
            judged["1 and 2 ranks" if ranks(sets) <= 2 else "4 and 8 ranks"][kind].append(abs(off))
        lines.append(f"{name:26} {1e3 * told['step_s']:10.2f} {1e3 * measured:10.2f} {100 * off:+7.1f}% "
                     f"{'-' if wide is None else f'{100 * wide:.1f}%':>8}  {words}".rstrip())
    lines.append(f"{len(configurations)} configurations, {left_out} left out, as their runs spread by more than 5 %")
    missed = 0
    for group, kinds in judged.items():
        for kind, offs in kinds.items():
            if not offs:
                lines.append(f"{group}, {kind}: none")
                continue
            median, worst = statistics.median(offs), max(offs)
            line = f"{group}, {kind}: {len(offs)}, median {100 * median:.1f} %, worst {100 * worst:.1f} %"
            if kind == "predicted":
                bars = BARS[group]
                bad = median > bars[0] or worst > bars[1]
                missed += bad
                line += f" (bars {100 * bars[0]:.0f} and {100 * bars[1]:.0f} %: {'missed' if bad else 'met'})"
            lines.append(line)
    finish(lines, table, missed, " runs that spread are left out, but a steady load is not")


main()
