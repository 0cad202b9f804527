#!/usr/bin/env bash
# Runs whose ranks are joined by slow links against `orrery simulate --link-gbit`. Here one run of few steps, which
# judges nothing by time: all of it works. ORRERY_LONG: gloo and ucx at 1 Gbit/s and 100 Mbit/s, a table and bars; it
# needs the machine to itself for ten minutes. SHAPED_LINKS_TABLE: a table of costs, instead of calibrating.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/shaped_hosts.sh"
python3 -B "$source_root/tests/jobs/shaped_links.py" "$orrery" "$source_root" "${ORRERY_LONG:-}" $switch "${hosts[@]}" \
    2> progress.txt || { tail -n 5 progress.txt; fail "shaped links"; }
echo "1 passed, 0 failed"
