#!/usr/bin/env bash
# What codecs and streaming gain on slow links: coded_links.py. Takes half an hour, with the machine to itself.
# usage: coded_links.sh ORRERY. ORRERY_LONG: the table. ORRERY_TORCH: a python with PyTorch, whose DDP with its PowerSGD
# hook is then timed between the runs.
export ORRERY_PROGRAM=$1
source "$(dirname "$0")/../jobs/lib.sh"
source "$source_root/tests/jobs/shaped_hosts.sh"
PYTHONPATH=$source_root/tests/jobs python3 -B "$source_root/tests/sweeps/coded_links.py" "$orrery" "$source_root" \
    "${ORRERY_LONG:-}" $switch "${hosts[@]}" 2> progress.txt || { tail -n 5 progress.txt; fail "coded links"; }
echo "1 passed, 0 failed"
