#!/usr/bin/env bash
# A model grown in layers: what `check` of the 405B plan needs grows no faster. Here memory alone, at 126 and 254
# layers; ORRERY_LONG: time and memory up to 1,022 layers, medians of three, and a table.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }
PYTHONPATH=$source_root/tests/jobs python3 -B - "$orrery" "$source_root" "${ORRERY_LONG:-}" <<'PYTHON' || \
    fail "check grows faster than the model"
import math, statistics, sys
from measured import measured

program, root, table = sys.argv[1:]
LAYERS = [126, 254, 510, 1022] if table else [126, 254]
TIME, MEMORY = 1.15, 1.0  # exponents, from the first to the last


def check(layers):
    """Seconds and peak bytes of one check; the text must say that the plan is proved."""
    status, took, peak = measured([program, "check", f"{root}/scripts/gpt.lua", "--config",
                                   f"{root}/configs/llama405b.toml", "--set", f"script.layers={layers}"], "check.log")
    text = open("check.log").read()
    if status != 0 or "the plan is complete and free of deadlock" not in text:
        sys.exit(f"{layers} layers: exit code {status >> 8}\n{text[-2000:]}")
    return took, peak * 1024


runs = {layers: [] for layers in LAYERS}
for _ in range(3 if table else 1):
    for layers in LAYERS:
        runs[layers].append(check(layers))
medians = {layers: [statistics.median(part) for part in zip(*of)] for layers, of in runs.items()}


def exponent(part, first, last):
    return math.log(medians[last][part] / medians[first][part]) / math.log(last / first)


lines = ["check of llama405b.toml by layers, medians of three in turn; exponents against the row above"]
for above, layers in zip([None, *LAYERS], LAYERS):
    seconds, peak = medians[layers]
    line = f"{layers:5} layers: {seconds:6.2f} s, {peak / 1e6:7.0f} MB"
    if above:
        line += f"   exponents {exponent(0, above, layers):.2f} and {exponent(1, above, layers):.2f}"
    lines.append(line)
time_grows, memory_grows = (exponent(part, LAYERS[0], LAYERS[-1]) for part in (0, 1))
lines.append(f"from {LAYERS[0]} to {LAYERS[-1]}: time {time_grows:.2f} (at most {TIME}), memory {memory_grows:.2f} "
             f"(at most {MEMORY:.0f})")
print("\n".join(lines))
if table:
    open(table, "w").write("\n".join(lines) + "\n")
sys.exit(memory_grows > MEMORY or (bool(table) and time_grows > TIME))
PYTHON
echo "1 passed, 0 failed"
