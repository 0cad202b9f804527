#!/usr/bin/env bash
# What `orrery plan` picks on this machine against what is fastest: in each cell (a model on so many ranks by a
# transport) its pick and other legal ways are run, in interleaved rounds. Here one cell of three ways and few steps,
# which judges nothing by time: all of it works. ORRERY_LONG: 24 cells of up to 12, a table and bars; it needs the
# machine to itself for 40 minutes. PLANNER_CELLS_FOLDER: an empty one, where runs, progress and what each way took
# (ways.jsonl) stay; PLANNER_CELLS_ONLY: a word that cells' names have; PLANNER_CELLS_ROUNDS, _STEPS, _SECONDS (of
# calibrating): to try it.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }
long=${ORRERY_LONG:-}
rounds=${PLANNER_CELLS_ROUNDS:-$([ -n "$long" ] && echo 3 || echo 1)}
steps=${PLANNER_CELLS_STEPS:-$([ -n "$long" ] && echo 14 || echo 6)}
seconds=${PLANNER_CELLS_SECONDS:-$([ -n "$long" ] && echo 120 || echo 3)}
if [ -n "${PLANNER_CELLS_FOLDER:-}" ]; then
    mkdir -p "$PLANNER_CELLS_FOLDER" && cp text.txt "$PLANNER_CELLS_FOLDER" && cd "$PLANNER_CELLS_FOLDER" || exit 1
fi
export XDG_CACHE_HOME=$work/cache
python3 -B "$source_root/tests/jobs/planner_cells.py" "$orrery" "$source_root" "$long" "$rounds" "$steps" "$seconds" \
    2> progress.txt || { tail -n 5 progress.txt; fail "planner cells"; }
echo "1 passed, 0 failed"
