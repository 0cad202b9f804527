#!/usr/bin/env bash
# Packed documents train the same on dp = 1, 2 and 4 and in micro-batches, stopped and resumed, though ranks have other
# numbers of targets; `orrery data` prints them; what is wrong with their ends is refused. gpt.lua and llama.lua train
# on them, too, are evaluated, and go on with a text as the same params do without documents. In other orders of tokens
# over cp they train the same with dropout, move from one order to another, and have the same perplexity.
source "$(dirname "$0")/lib.sh"
cat > a.lua << 'LUA'
local o = require "orrery"
local data = o.data.file { documents = true }
local model = require "orrery.models.mlp" { embed = 16, mlp = 16, vocab = data.vocab }
local program = o.trace("a", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 0.01 })
program:parallel { o.strategy.data { axis = "dp" } }
program:compile():train(data)
LUA
cat > a.toml << 'TOML'
[data]
path = "text.txt"
separator = 10
tokens_per_sequence = 64
validation = 0.1
[train]
sequences_per_step = 8
steps = 24
evaluate_every = 12
[checkpoint]
every_steps = 8
[run]
seed = 5
timeout_s = 20
TOML
# Lines of 1 to 300 bytes: some rows have many ends, and so fewer targets than others.
awk 'BEGIN {
    srand(3)
    for (i = 0; i < 900; ++i) {
        n = rand() < 0.2 ? int(300 * rand()) : int(9 * rand())
        line = i " "
        while (length(line) < n) line = line "word " i " "
        print line
    }
}' > text.txt
trained() { trained_in "$1" "${script:-a.lua}" --config a.toml "${@:2}"; }  # trained FOLDER [settings]
# alike A B: the same losses but for the order of sums.
alike() {
    paste <(losses "$1") <(losses "$2") |
        awk '{ d = $2 - $5; if ($1 != $4 || d * d > 1e-10 * $2 * $2) exit 1 } END { exit NR != 24 }' ||
        { paste <(losses "$1") <(losses "$2"); fail "$2 does not train as $1"; }
}

trained one
grep -q "data file text.txt: 900 documents of [0-9]* tokens, [1-9][0-9]* of them longer than a row of 64; in the " \
    one.log && grep -q "rows cut a document" one.log || { cat one.log; fail "no word of the documents"; }
trained two --set mesh.dp=2 --set train.microbatches=2
trained four --set mesh.dp=4
alike one two
alike one four

# Stopped after a step, and resumed on another mesh: the same rows.
trained part --set train.steps=8
trained part --set mesh.dp=2
alike one part

# Each document is printed as it is in the file, and the rows of a step have their tokens.
$orrery data four --step 3 > three.txt || fail "orrery data"
cmp three.txt <($orrery data one --step 3) || fail "dp=4 reads other documents"
python3 - << 'PY' || fail "what orrery data prints"
import re
data, text = open("three.txt", "rb").read(), open("text.txt", "rb").read()
head, data = data.split(b"\n", 1)
assert head == b"step 3: 8 samples, from the 16 on", head
pairs = []
for i in range(8):
    line, data = data.split(b"\n", 1)
    at = re.fullmatch(rb"(\d) of 8: data file text.txt, row (\d+) in epoch 0: document .*; 64 tokens, 64 bytes of "
                      rb"text(?:, (\d+) targets ignored)?", line)
    assert at and int(at[1]) == i + 1 and 16 <= int(at[2]) < 24, line
    left, number, ends = 64, 0, 0
    pairs.append(0)
    while left > 0:
        line, data = data.split(b"\n", 1)
        of = re.fullmatch(rb"  document (\d+): (\d+) tokens?, (\d+) bytes of text", line)
        assert of and int(of[1]) == number and of[2] == of[3], line
        tokens = int(of[2])
        one, data = data[:tokens], data[tokens:]
        assert one in text and b"\n" not in one[:-1] and data[:1] == b"\n", one
        data = data[1:]
        ends += one.endswith(b"\n")
        pairs[-1] += tokens * (tokens + 1) // 2
        left, number = left - tokens, number + 1
    assert left == 0 and ends == int(at[3] or 0), (left, ends)
assert data == b"", data
falling = sorted(pairs, reverse=True)  # the largest row is next to the smallest, the second one next to the second
assert sorted(zip(pairs[::2], pairs[1::2])) == sorted(zip(falling[:4], falling[:3:-1])), pairs
PY

refused "its separator 7 never comes in |set data.separator to the id that ends each document" \
    $orrery run a.lua --config a.toml --set run.folder=wrong --set data.separator=7
awk '{ printf "{\"text\": \"%s\\n\"}\n", $0 }' text.txt > lines.jsonl
trained lines --set data.path=lines.jsonl
alike one lines
mixed=(--set data.path= --set 'data.mix=["0.5 text.txt", "0.5 lines.jsonl"]')
trained mixed "${mixed[@]}"
trained mixed_two "${mixed[@]}" --set mesh.dp=2
alike mixed mixed_two

small=(--set script.documents=true --set script.layers=2 --set script.embed=16 --set script.heads=4 --set script.mlp=16)
for model in gpt llama; do
    script=$source_root/scripts/$model.lua
    trained $model "${small[@]}"
    trained ${model}_two "${small[@]}" --set mesh.dp=2 --set train.microbatches=2
    alike $model ${model}_two
    $orrery evaluate $model text.txt > said.txt 2>&1 && grep -q "tokens predicted, in" said.txt ||
        { cat said.txt; fail "evaluate $model"; }
    for documents in true false; do  # 80 tokens: in a part of the window of 64, in all of it, and after it
        $orrery sample $model --set script.documents=$documents -p "3 word" -n 80 -t 1 > said.txt 2> said.err ||
            { cat said.txt said.err; fail "sample $model"; }
        sed -n '/^3 word/,$p' said.txt > $documents.txt
    done
    [ "$(wc -c < true.txt)" -ge 86 ] || { cat said.txt; fail "sample $model: no text"; }
    cmp true.txt false.txt || fail "sample $model: another text than without documents"
done

# Orders of tokens over cp.
script=$source_root/scripts/gpt.lua
small+=(--set script.dropout=0.1)
trained whole "${small[@]}"
for order in zigzag balanced; do
    trained $order "${small[@]}" --set mesh.cp=2 --set script.order=$order
    alike whole $order
done
trained moved "${small[@]}" --set train.steps=8 --set mesh.cp=2 --set script.order=balanced
trained moved "${small[@]}" --set mesh.dp=2 --set mesh.cp=2 --set script.order=zigzag
alike whole moved
perplexity() { $orrery evaluate "$1" text.txt 2>&1 | sed -n 's/.*perplexity  *\([0-9.]\{3,\}\).*/\1/p'; }
echo "$(perplexity whole) $(perplexity balanced) $(perplexity moved)" | tee said.txt |
    awk '{ a = $2 - $1; b = $3 - $1; exit NF != 3 || a * a + b * b > 1e-8 * $1 * $1 }' ||
    fail "perplexities differ in another order: $(cat said.txt)"
$orrery sample balanced -p "3 word" -n 8 -t 0 > said.txt 2>&1 || { cat said.txt; fail "sample in order"; }
$orrery export moved exported > said.txt 2>&1 || { cat said.txt; fail "export in order"; }
$orrery data balanced --step 3 > said.txt || fail "orrery data in order"
[ "$(grep -c "; read in the order balanced over cp=2: the busiest rank has" said.txt)" -eq 8 ] ||
    { cat said.txt; fail "orrery data does not say the order"; }
ordered=($script --config a.toml "${small[@]}" --set mesh.cp=2 --set script.order=balanced)
$orrery check "${ordered[@]}" > said.txt && grep -q "^tokens: in the order balanced over cp=2; " said.txt &&
    ! grep -q IMPLICIT said.txt || { cat said.txt; fail "check in order"; }
$orrery verify "${ordered[@]}" > said.txt 2>&1 || { cat said.txt; fail "verify in order"; }
refused "softmax in h.0.attn mixes positions" $orrery check "${ordered[@]}" --set script.fused=false
