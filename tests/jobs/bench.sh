#!/usr/bin/env bash
# `orrery bench`: every collective that it offers, in nccl-tests' columns, with right results; and nothing that it is
# told is ignored.
source "$(dirname "$0")/lib.sh"
collectives=$("$orrery" bench nothing 2>&1 | grep -o '{[a-z_,]*}' | head -1 | tr -d '{}' | tr ',' ' ')
[ "$(wc -w <<< "$collectives")" -ge 6 ] || fail "bench names its collectives otherwise: $("$orrery" bench nothing 2>&1)"

# rows COLLECTIVE REDUCES BUS: three sizes of f32; the bus bandwidth is BUS of the algorithm's on two ranks.
rows() {
    awk -v name="$1" -v redop="$2" -v bus="$3" '
    function near(a, b) { return a - b <= 0.011 && b - a <= 0.011 }
    /^#/ { next }
    {
        ++rows
        if (NF != 13) print "columns: " $0
        if ($1 != 1024 * 4 ^ (rows - 1) || $2 * 4 != $1 || $3 != "f32" || $4 != redop) print "left columns: " $0
        if ($5 != (name == "broadcast" ? 0 : -1)) print "root: " $0
        for (i = 6; i <= 10; i += 4) {
            if ($i <= 0) print "time: " $0
            if (!near($(i + 2), $(i + 1) * bus)) print "busbw is not " bus " of algbw: " $0
            if ($(i + 3) != "0") print "wrong: " $0
        }
    }
    END { if (rows != 3) print rows + 0 " rows instead of 3" }' "$1.txt"
}
for collective in $collectives; do
    "$orrery" bench "$collective" --ranks 2 -b 1K -e 16K -f 4 -n 2 -w 1 > "$collective.txt" 2> err.txt ||
        { cat "$collective.txt" err.txt; fail "bench $collective"; }
    case $collective in
    all_reduce) reduces=sum bus=1 ;;
    reduce_scatter) reduces=sum bus=0.5 ;;
    all_gather | all_to_all) reduces=none bus=0.5 ;;
    *) reduces=none bus=1 ;;
    esac
    grep -q "^# $collective over shm, 2 ranks" "$collective.txt" ||
        { cat "$collective.txt"; fail "head of $collective"; }
    names=$(awk '$1 == "#" && $2 == "size" { $1 = $1; print }' "$collective.txt")
    [ "$names" = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong" ] ||
        fail "columns of $collective: $names"
    wrong=$(rows "$collective" $reduces $bus)
    [ -z "$wrong" ] || { cat "$collective.txt"; fail "$collective: $wrong"; }
    grep -q "^# Out of bounds values : 0 OK" "$collective.txt" || { cat "$collective.txt"; fail "end of $collective"; }
    grep -v '^#' "$collective.txt" | tail -1
done

# refused WORDS ARGUMENTS...: exit code 2 and every word (separated by |), before any rank starts or a line is printed.
refused() {
    local words=$1 out word code
    shift
    out=$("$orrery" bench all_reduce -b 1K -e 1K "$@" 2>&1)
    code=$?
    [ $code -eq 2 ] || fail "bench $*: exit code $code, expected 2: $out"
    while read -r -d '|' word; do
        [[ $out == *"$word"* ]] || fail "bench $*: no \"$word\" in: $out"
    done <<< "$words|"
    [[ $out != *algbw* ]] || fail "bench $*: it printed a table: $out"
}
typo='--set transport.gloo.intreface=x|unknown key "intreface" in [transport.gloo]|did you mean "interface"'
refused "$typo" --set transport.gloo.intreface=x
refused "$typo" --set transport.gloo.intreface=x --transport gloo
refused 'unknown key "ringbytes" in [transport.shm]' --set transport.shm.ringbytes=1
refused 'did you mean "reference"' --set device.cpu.referense=true
refused 'no transport "shmm"|did you mean "shm"' --transport shmm
refused '--set train.steps=4|does not read this|transport.NAME.KEY' --set train.steps=4
refused '--dtype bf61: no such type|f32|did you mean "bf16"' --dtype bf61
printf '[train]\nsteps = 4\n[transport.shm]\nringbytes = 1\n' > run.toml
refused 'run.toml:4:13: unknown key "ringbytes"' --config run.toml
sed -i '/ringbytes/d' run.toml
"$orrery" bench all_reduce -b 1K -e 1K -n 1 --config run.toml > good.txt 2>&1 || { cat good.txt; fail "a run's file"; }
echo "1 passed, 0 failed"
