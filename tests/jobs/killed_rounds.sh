#!/usr/bin/env bash
# A rank is killed once in each program of a round of islands, between two of the arrays that the program updates: the
# job goes on from its checkpoint with the bits of a run that is not killed, states of the outer step included.
# ORRERY_LONG: more methods and meshes, and a table.
source "$(dirname "$0")/lib.sh"
cat > rounds.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { method = { "diloco", "" }, outer = { "", "" }, zero = { 0, "" }, kills = { "", "" },
  codec = { "none", "" } }
local data = o.data.text {}
local program = o.trace("rounds", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    nn.scope("layers." .. i, function() x = x + nn.mlp(nn.layernorm(x, "ln"), { mlp = 48 }) end)
  end
  return nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)

-- The program as methods see it, whose functions kill rank `rank` in step `at` of kills = "NAME:at:rank ..." when they
-- have set some of their arrays.
local function killing(name, f)
  local at, rank = (" " .. opt.kills .. " "):match(" " .. name .. ":(%d+):(%d+) ")
  if not at then return f end
  return function(update)
    local view = setmetatable({}, { __index = function(_, key)
      return function(_, ...) return update[key](update, ...) end
    end })
    function view:set(target, value)
      if target.name:find "layers.1.ln.weight" then
        value = o.op.kills(value * 1, o.step(), { at = tonumber(at), rank = tonumber(rank) })
      end
      update:set(target, value)
    end
    f(view)
  end
end
local seen = {
  also = function(_, name, f) program:also(name, killing(name, f)) end,
  round = function(_, text) program:round(text) end,
}
o.methods[opt.method](seen, { optimizer = o.optim.adamw { lr = 1e-2 }, every = 3, fragments = 2, tau = 1,
  outer = opt.outer ~= "" and o.optim[opt.outer] { name = "outer", lr = 0.05, clip = false } or nil })
program:parallel { o.strategy.islands { axis = "site", codec = opt.codec },
  o.strategy.pipeline { axis = "pp" }, o.strategy.data { axis = "dp", zero = opt.zero } }
program:compile():train(data)
LUA
settings=(rounds.lua --set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.steps=12 --set data.validation=0.1 --set train.evaluate_every=3 --set train.evaluate_batches=2
    --set checkpoint.every_steps=2 --set run.timeout_s=20 --set mesh.site=2
    --set "plugins.path=[\"$(dirname "$orrery")/tests/killing_ops\"]")

# same KILLS SETTING...: a run with these kills has the losses, evaluations and last checkpoint of one without any.
same() {
    local kills=$1 arguments=() setting kill
    for setting in "${@:2}"; do arguments+=(--set "$setting"); done
    rm -rf whole killed killed-*
    trained_in whole "${settings[@]}" "${arguments[@]}"
    trained_in killed "${settings[@]}" "${arguments[@]}" --set "script.kills=$kills" --restarts 9
    for kill in $kills; do
        kill=${kill#*:}
        [ -e "killed-${kill%:*}" ] || { cat killed.log; fail "${*:2}: nothing was killed in step ${kill%:*}"; }
    done
    [ "$(grep -c '"cause":"process"' killed/events.jsonl)" -eq "$(echo "$kills" | wc -w)" ] ||
        { cat killed.log killed/events.jsonl; fail "${*:2}: a generation for each kill"; }
    losses whole > whole.txt
    losses killed > killed.txt
    [ "$(wc -l < whole.txt)" -eq 12 ] || { cat whole.txt; fail "${*:2}: 12 steps"; }
    cmp -s whole.txt killed.txt || { paste whole.txt killed.txt; fail "${*:2}: other bits after $kills"; }
    local files=(whole/checkpoints/step-00000012/*.safetensors) file
    [ ${#files[@]} -ge 2 ] || fail "${*:2}: a last checkpoint"
    for file in "${files[@]}"; do
        cmp "$file" "killed/checkpoints/step-00000012/$(basename "$file")" || fail "${*:2}: other arrays after $kills"
    done
}
rows=3  # kills are of one rank, or of two with a meeting between them: islands run ahead of each other
[ -z "${ORRERY_LONG:-}" ] || rows=10
head -n $rows << 'END' > rows.txt
inner:5:0 outer:9:1|script.method=diloco
first:1:0 inner:4:1 outer:6:0 back:9:1 keep:12:1|script.method=diloco script.outer=adamw
inner:5:0 receive2:7:1|script.method=streaming script.codec=int4
first:1:1 inner:5:0 outer:9:1|script.method=diloco
inner:2:0 mean:6:1|script.method=local_sgd
inner:5:1 mix:9:0|script.method=gossip
first:1:2 inner:5:0 outer:9:3|script.method=diloco mesh.dp=2 script.zero=3
first:1:0 inner:4:1 back:6:2 outer:9:3 keep:12:1|script.method=diloco script.outer=adamw mesh.dp=2 script.zero=3
first:1:1 inner:5:3 outer:9:1|script.method=diloco mesh.pp=2 train.microbatches=2
inner:5:0 mean:9:3|script.method=local_sgd mesh.dp=2 script.zero=1 run.transport=gloo
END
echo "a rank killed in PROGRAM:step:rank, once each; the run goes on with the same losses and last arrays" > table.txt
while IFS='|' read -r kills arguments; do
    # shellcheck disable=SC2086
    same "$kills" $arguments
    echo "$arguments: $kills" >> table.txt
done < rows.txt
[ -z "${ORRERY_LONG:-}" ] || cp table.txt "$ORRERY_LONG"
echo "1 passed, 0 failed"
