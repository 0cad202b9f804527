#!/usr/bin/env bash
# Real runs against their predictions: every strategy and schedule, 1 to 8 ranks, four transports, half of them not used
# for the table that predicts. Here four runs of a few steps, which say nothing of accuracy: all of it works and each is
# predicted. ORRERY_LONG: all, in five interleaved rounds, a table, and bars on the predicted half; it needs the machine
# to itself for half an hour. REAL_RUNS_ROUNDS, _STEPS, _SECONDS (of calibrating): fewer, to try it.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }
export XDG_CACHE_HOME=$work/cache
long=${ORRERY_LONG:-}
rounds=${REAL_RUNS_ROUNDS:-$([ -n "$long" ] && echo 5 || echo 1)}
steps=${REAL_RUNS_STEPS:-$([ -n "$long" ] && echo 32 || echo 6)}
seconds=${REAL_RUNS_SECONDS:-$([ -n "$long" ] && echo 180 || echo 3)}
python3 -B "$source_root/tests/jobs/real_runs.py" "$orrery" "$source_root" "$long" "$rounds" "$steps" "$seconds" \
    2> progress.txt || { tail -n 5 progress.txt; fail "real runs"; }
echo "1 passed, 0 failed"
