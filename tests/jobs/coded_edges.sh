#!/usr/bin/env bash
# `orrery verify` of a Llama with each codec on each kind of message: a few of them. ORRERY_LONG: all, and a table.
source "$(dirname "$0")/lib.sh"
sizes=(--set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=2
    --set run.threads_per_rank=1 --set script.layers=2 --set script.embed=64 --set script.heads=4
    --set script.kv_heads=2 --set script.mlp=128)

# rows CODECS SETTING...: a row for each codec and each of the settings, in which it takes the place of CODEC.
rows() {
    local codec settings
    for codec in $1; do
        for settings in "${@:2}"; do echo "${settings//CODEC/$codec}"; done
    done
}
near="bf16 f16 f8e4m3 f8e5m2 int8 int4"
decoded="f8e4m3 f8e5m2 int8 int4 sign top_k/10 top_k/100"
{
    for zero in 0 1 2 3; do
        rows "bf16 f16 $decoded" "mesh.dp=2 script.zero=$zero script.codec=CODEC"
        rows "$decoded" "mesh.dp=2 script.zero=$zero script.codec=CODEC script.feedback=true"
    done
    for zero in 0 1 3; do  # hybrid: codes over the slow links alone
        rows "int4 sign top_k/10 powersgd/4" \
            "mesh.rep=2 mesh.dp=2 script.zero=$zero script.codec=rep=CODEC,dp=bf16 script.feedback=true"
    done
    rows "$near" "mesh.dp=2 script.zero=3 script.param_codec=CODEC" "mesh.tp=2 script.activation_codec=CODEC" \
        "mesh.tp=2 script.sequence=true script.activation_codec=CODEC" \
        "mesh.pp=2 train.microbatches=2 script.activation_codec=CODEC"
} > rows.txt
if [ -z "${ORRERY_LONG:-}" ]; then
    grep -xF -e "mesh.dp=2 script.zero=0 script.codec=sign script.feedback=true" \
        -e "mesh.dp=2 script.zero=3 script.codec=top_k/10" \
        -e "mesh.rep=2 mesh.dp=2 script.zero=0 script.codec=rep=powersgd/4,dp=bf16 script.feedback=true" \
        -e "mesh.rep=2 mesh.dp=2 script.zero=3 script.codec=rep=int4,dp=bf16 script.feedback=true" \
        -e "mesh.tp=2 script.sequence=true script.activation_codec=int4" rows.txt > few.txt
    [ "$(wc -l < few.txt)" -eq 5 ] || fail "five rows of the short form"
    mv few.txt rows.txt
fi
echo "orrery verify scripts/llama.lua, 2 layers of 64, two ranks: passed with" > table.txt
bad=0
while read -r row; do
    arguments=()
    for setting in $row; do arguments+=(--set "$setting"); done
    $orrery verify "$source_root/scripts/llama.lua" "${sizes[@]}" "${arguments[@]}" > verified.log 2>&1 &&
        grep -q "sent as" verified.log && { echo "$row" >> table.txt; continue; }
    cat verified.log
    echo "FAILED: $row" >&2
    bad=$((bad + 1))
done < rows.txt
[ $bad -eq 0 ] || fail "$bad of $(wc -l < rows.txt) rows"
[ -z "${ORRERY_LONG:-}" ] || cp table.txt "$ORRERY_LONG"
echo "1 passed, 0 failed"
