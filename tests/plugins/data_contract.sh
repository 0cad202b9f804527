#!/bin/bash
# Data sources that are wrong on purpose: `orrery verify` names plugin, place and kind of the fault; in a
# run what a source throws names the plugin, and is no bug of Orrery.
# usage: data_contract.sh SOURCE BUILD
set -u
source=$1 build=$2
orrery=$build/orrery plugins=$build/tests/bad_plugins/data template=$source/scripts/templates/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed() { echo "FAILED: $*"; exit 1; }

cat > try.toml << END
[plugins]
path = ["$plugins"]
[train]
sequences_per_step = 8
steps = 3
END
# 16 features, so that a quarter of them, which four ranks read, is no block that is read on one.
sed -e 's/features = 8/features = 16/' -e '/strategies.data/i\
local split = require("orrery.strategy").define("split", { axis = "tp" }, function(program, mesh, options)\
  for x in program:inputs() do\
    if x.name == "x" and mesh:size(options.axis) > 1 then\
      x:store { [options.axis] = require("orrery.strategy").S "features" }\
    end\
  end\
end)' -e 's/program:parallel {/program:parallel { split {},/' "$template/try.lua" > try.lua
# Ids that are looked up, for a source that has them.
looked='h = h + nn.embedding(batch.ids, "table", { "vocab", 8 }, { "hidden", 32 }):sum("seq")'
sed -e "s/local error = /$looked\\n  &/" "$template/try.lua" > ids.lua

# named CODE LOG WORDS: the exit code, each word (separated by |), the plugin's name, and no blame of Orrery.
named() {
    local code=$1 log=$2 word
    [ "$code" -eq 1 ] || { cat "$log"; failed "$log: exit code $code, expected 1"; }
    while read -r -d '|' word; do
        grep -qF -- "$word" "$log" || { cat "$log"; failed "$log lacks \"$word\""; }
    done <<< "$3|"
    grep -qF "plugin data/sundial" "$log" || { cat "$log"; failed "$log does not name the plugin"; }
    ! grep -q "bug in Orrery\|internal error" "$log" || { cat "$log"; failed "$log blames Orrery"; }
}
words() {
    case $1 in
        offset) echo "ignores the block's offset|input    \"x\" f32|the points: sample|element  [" ;;
        random) echo "it is not deterministic|two reads of one block differ|input    \"x\"|, then " ;;
        half) echo "did not fill 8 of 16 elements of the block|[8], the first one|input    \"x\"" ;;
        past) echo "wrote past the end of the block, 64 elements too many|input    \"x\"" ;;
        tp) echo "cuts samples another way|input    \"x\"|read by rank|in the whole sample" ;;
        ids) echo "id out of range: 77|input    \"ids\" i32[4]|the model has ids 0 to 7|element  [2]" ;;
        throw) echo "read of \"x\" of sample| threw std::runtime_error: no such record" ;;
        number) echo "read of \"x\" of sample| threw int" ;;
        hang) echo "read of sample|did not return within" ;;
        open) echo "open threw std::out_of_range: map::at" ;;
        factory) echo "its factory threw std::length_error: too long" ;;
    esac
}
verify() {
    ORRERY_TEST_FAULT=$1 "$orrery" verify try.lua --config try.toml --set mesh.tp=4 --set "run.timeout_s=$2"
}

verify "" 60 > fine.log 2>&1 || { cat fine.log; failed "a right source does not pass"; }
grep -q "plugin data/sundial: .* blocks read twice" fine.log || { cat fine.log; failed "what was read is not told"; }
for fault in offset random half past tp throw number open factory; do
    verify $fault 60 > "verify_$fault.log" 2>&1
    named $? "verify_$fault.log" "$(words $fault)"
done
ORRERY_TEST_FAULT=ids "$orrery" verify ids.lua --config try.toml > verify_ids.log 2>&1
named $? verify_ids.log "$(words ids)"
verify hang 2 > verify_hang.log 2>&1
named $? verify_hang.log "$(words hang)"

# Drawn from by a mixture, which is not at fault: also where only a block of a rank shows it, or an id.
for script in try ids; do
    sed 's/^local data = \(.*\)$/local data = o.data.mixture { { \1, 1 }, { \1, 2 } }/' $script.lua > mixed_$script.lua
done
ORRERY_TEST_FAULT= "$orrery" verify mixed_try.lua --config try.toml > mixed_fine.log 2>&1 ||
    { cat mixed_fine.log; failed "a mixture of right sources does not pass"; }
for fault in offset tp ids; do
    script=mixed_try.lua ranks=4
    [ $fault != ids ] || script=mixed_ids.lua ranks=1
    ORRERY_TEST_FAULT=$fault "$orrery" verify $script --config try.toml --set mesh.tp=$ranks > mixed_$fault.log 2>&1
    named $? mixed_$fault.log "plugin data/sundial: |$(words $fault)"
done
ORRERY_TEST_FAULT=ids "$orrery" run mixed_ids.lua --config try.toml --set 'run.folder="mixed"' > mixed_run.log 2>&1
named $? mixed_run.log "has the id 77 in \"ids\", where the model has ids 0 to 7|plugin data/sundial reads"

# A run: on one rank and on two.
for fault in throw number ids hang; do
    for ranks in 1 2; do
        script=$template/try.lua
        [ $fault != ids ] || script=ids.lua
        ORRERY_TEST_FAULT=$fault "$orrery" run "$script" --config try.toml --set mesh.dp=$ranks \
            --set "run.folder=\"run_$fault$ranks\"" --set run.timeout_s=3 > "run_$fault$ranks.log" 2>&1
        code=$?
        expected=$(words $fault)
        [ $fault != ids ] || expected="has the id 77 in \"ids\", where the model has ids 0 to 7|data/sundial reads"
        named $code "run_$fault$ranks.log" "$expected"
    done
done
echo "1 passed, 0 failed"
