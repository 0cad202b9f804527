#!/usr/bin/env bash
# dispatch = rows gives the losses and dropped choices of slabs. A step whose blocks have too few rows runs again.
source "$(dirname "$0")/lib.sh"

settings=("$source_root/scripts/gpt.lua"
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1
    --set train.sequences_per_step=4 --set train.steps=20 --set train.evaluate_every=10 --set train.evaluate_batches=2
    --set script.model=mixtral --set script.layers=2 --set script.embed=32 --set script.heads=4 --set script.mlp=24
    --set script.experts=8 --set script.top_k=2 --set script.capacity=1.0 --set script.embed_std=1.0
    --set script.warmup=5 --set run.timeout_s=20)
rows=(--set script.dispatch=rows --set script.expert_blocks=4)
values() {  # values NAME KEY: one line a step, or evaluation
    sed -nE "s/.*\"$2\":(\[[^]]*\]|[^,}]+).*/\1/p" "$1/metrics.jsonl"
}
follows() {  # follows NAME OTHER KEY...: numbers of NAME are those of OTHER, to 1e-5
    local key
    for key in "${@:3}"; do
        paste <(values "$2" "$key") <(values "$1" "$key") |
            awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(NF == 2 && $1 > 0 && d <= 1e-5 * (1 + $1))) exit 1 }
                END { exit NR < 2 }' ||
            { paste <(values "$2" "$key") <(values "$1" "$key"); fail "$1: another $key than $2"; }
    done
}

trained_in slab "${settings[@]}"
values slab expert_drop | grep -q '0\.[0-9]*[1-9]' || fail "no choice is dropped"
while read -r name sets; do
    # shellcheck disable=SC2086
    trained_in "$name" "${settings[@]}" "${rows[@]}" $sets
    follows "$name" slab loss grad_norm eval_loss
    cmp <(values slab expert_drop) <(values "$name" expert_drop) || fail "$name drops other choices"
    [ "$(values "$name" again | tail -1)" -gt 0 ] || { cat "$name.log"; fail "$name: no step ran again"; }
done << 'END'
one
ep --set mesh.ep=2
micro --set mesh.ep=2 --set train.microbatches=2 --set script.zero=2
folded --set mesh.dp=2 --set script.expert_axes=dp
END
again=(--set script.overflow=again --set script.max_capacity=4)
trained_in slab_again "${settings[@]}" "${again[@]}"
trained_in rows_again "${settings[@]}" "${again[@]}" "${rows[@]}" --set mesh.ep=4
follows rows_again slab_again loss grad_norm
exits 0 verify $orrery verify "${settings[@]}" "${rows[@]}" --steps 2 --set mesh.ep=2 --set mesh.tp=2
refused "script.expert_blocks = 4: nothing reads it without dispatch = rows" \
    $orrery check "${settings[@]}" --set script.expert_blocks=4
echo "1 passed, 0 failed"
