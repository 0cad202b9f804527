#!/usr/bin/env bash
# Popular small models: hf.lua loads a folder with each one's config.json and trains a step; what is not
# there is refused with all of its keys in one message.
source "$(dirname "$0")/lib.sh"
python3 -B "$source_root/tests/transformers/small_models.py" models > names.txt || fail "no folders are made"
awk 'BEGIN { for (i = 0; i < 2000; ++i) printf "\\x%02x\\x00", (i * i + 3 * i) % 31 }' | xargs -0 printf > ids.bin

with_model() {  # with_model COMMAND FOLDER [more settings]
    local command=$1 weights=$2
    shift 2
    $orrery "$command" "$source_root/scripts/hf.lua" --set checkpoint.load="$weights" --set data.path=ids.bin \
        --set data.token_bytes=2 --set data.vocab=31 --set data.tokens_per_sequence=12 \
        --set train.sequences_per_step=2 --set train.steps=1 --set data.validation=0 --set run.folder=run "$@"
}

while read -r name; do
    rm -rf run
    with_model run "models/$name" > run.log 2>&1 || { cat run.log; fail "$name does not train"; }
    losses run | awk '$2 > 3 && $2 < 5 { good = 1 } END { exit !good }' || { cat run.log; fail "$name: another loss"; }
done < names.txt
[ "$(wc -l < names.txt)" -eq 10 ] || fail "not ten models: $(cat names.txt)"

sed -i 's/"mlp_bias": false/"mlp_bias": true, "no_such_key": 3/; s/\("rope_interleaved":\) false/\1 true/' \
    models/SmolLM2-135M/config.json
refused "mlp_bias = true|rope_interleaved = true|no_such_key = 3|script.unread" with_model check models/SmolLM2-135M
echo "1 passed, 0 failed"
