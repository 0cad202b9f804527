#!/usr/bin/env bash
# What a run says of its steps: the keys of metrics.jsonl, the same figures in the terminal's columns, and at the end
# where the time went.
source "$(dirname "$0")/lib.sh"
steps=20
run_tiny run $steps > run.log 2>&1 || { cat run.log; fail "the run"; }
[ "$(losses run | wc -l)" -eq $steps ] || fail "metrics.jsonl has $(losses run | wc -l) of $steps steps"

# Every key once and none besides, finite numbers, and whole ones where something is counted.
number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
keys="\{\"step\":7,\"loss\":($number),\"grad_norm\":($number),\"lr\":($number),\"tok/s\":($number),"
keys+="\"TFLOP/s\":($number),\"MFU\":($number),\"memory\":([0-9]+),\"time\":($number),"
keys+="\"seconds\":($number),\"tokens\":896,\"samples\":28,\"data_share\":($number),"
keys+="\"communication_share\":($number),\"waiting_share\":($number),"
keys+="\"checkpoint_seconds\":0\.0,\"MFU_full\":($number)\}"
line=$(sed -n 7p run/metrics.jsonl)
[[ $line =~ ^$keys$ ]] || fail "line 7 of metrics.jsonl: $line"
figures=$(sed 's/"[^"]*"://g; s/[{}]//g; s/,/ /g' <<< "$line")

# Bounds that no sound run of this model leaves, on any machine.
sane=$(awk '{
    split("7 0 0 0 1e-9 1e-15 1e-12 1048576 1.7e9 1e-7 896 28 0 1e-9 0", low)
    split("7 20 1000 1 1e9 1000 4 1e11 1e10 300 896 28 1 1 1", high)
    split("step loss grad_norm lr tok/s TFLOP/s MFU memory time seconds tokens samples data messages waiting", name)
    for (i = 1; i <= 15; ++i) if ($i < low[i] || $i > high[i]) print name[i] " is " $i
    if (!($17 > $7 && $17 < 2 * $7)) print "MFU is " $7 ", counting masked pairs " $17
    if ($13 + $14 + $15 > 1) print "shares add up to " $13 + $14 + $15
    speed = 128 / $10 / $5
    if (speed < 0.999 || speed > 1.001) print "128 tokens in " $10 " s are not " $5 " tok/s"
}' <<< "$figures")
[ -z "$sane" ] || fail "metrics.jsonl, step 7: $sane"

# A checkpoint's time is in the line of the step behind it, which it is no part of.
behind=$(sed -n 's/.*"step":11,.*"checkpoint_seconds":\([^,}]*\).*/\1/p' run/metrics.jsonl)
awk -v s="$behind" 'BEGIN { exit !(s > 0 && s < 60) }' || fail "step 11 says that the checkpoint took \"$behind\" s"

columns=$(awk '$1 == "step" { $1 = $1; print }' run.log)
[ "$columns" = "step loss grad_norm lr tok/s TFLOP/s MFU memory" ] || { cat run.log; fail "columns: $columns"; }
said=$(awk '$1 == 7 && /MiB$/ { $1 = $1; print }' run.log)
expected=$(awk '{
    printf "%d %.4f %.4f %.2e %.0f %.3f %.1f%% %.0f MiB", $1, $2, $3, $4, $5, $6, 100 * $7, $8 / 1048576
}' <<< "$figures")
[ "$said" = "$expected" ] || fail "the terminal says \"$said\", metrics.jsonl \"$expected\""

# Shares of the time, largest first, the rest last; together all of it but for rounding.
sed -n '/^where the time went$/,$p' run.log > time.txt
for part in "compute: matmul" "communication: all_reduce dp" "host, data and the rest"; do
    grep -qE "^  $part +[0-9]+\.[0-9]{3} s +[0-9]+\.[0-9] %$" time.txt ||
        { cat run.log; fail "no \"$part\" in the breakdown"; }
done
wrong=$(awk 'NR > 1 {
    if ($NF != "%" || $(NF - 2) != "s") { print "no share: " $0; next }
    share = $(NF - 1); all += share; ++rows
    if (/^  host, data and the rest/) { rest = NR; next }
    if ($0 !~ /^  (compute|communication|waiting): /) print "no kind: " $0
    if (NR > 2 && share > before) print "not the largest first: " $0
    before = share
} END {
    if (rest != NR) print "the rest is not last"
    if (all < 100 - 0.05 * rows - 0.01 || all > 100 + 0.05 * rows + 0.01) print "shares add up to " all
}' time.txt)
[ -z "$wrong" ] || { cat time.txt; fail "$wrong"; }
echo "$line"
echo "1 passed, 0 failed"
