#!/usr/bin/env bash
# orrery draw: text and SVG of a script's plan and of bare schedules; what cannot be drawn is refused with the reason.
source "$(dirname "$0")/lib.sh"

# says FILE WORDS...: the file has each of the words.
says() {
    local file=$1 word
    shift
    for word in "$@"; do grep -qF -- "$word" "$file" || { cat "$file"; fail "no \"$word\" in $file"; }; done
}
# refused WORD ARGUMENTS...: exit code 2 and the word in the message.
refused() {
    local word=$1
    shift
    $orrery draw "$@" > /dev/null 2> message.txt
    [ $? -eq 2 ] || fail "draw $* did not end with code 2"
    says message.txt "$word"
}

printf '# two ranks\nF0 F1 B0 B1\n\nF0 B0 F1 B1\n' > mine.txt
$orrery draw --schedule mine.txt --width 80 > picture.txt || fail "a schedule was not drawn"
says picture.txt "mine: 2 stages, 2 micro-batches" "makespan 9 units" "F0F1....B0--..B1--" "bubble 33.3 %"
! grep -q $'\033' picture.txt || fail "colours in a file"
$orrery draw --schedule mine.txt --colour always | grep -q $'\033' || fail "no colours when asked for"
$orrery draw --schedule mine.txt -o mine.svg > said.txt || fail "no SVG"
says mine.svg "<svg xmlns=" "B1 of stage 0 on pipeline rank 0: 7 to 9" "</svg>"

cat > mine.lua <<'LUA'
return function(p, m)
  local ranks = {}
  for r = 1, p do
    ranks[r] = {}
    for i = 0, m - 1 do table.insert(ranks[r], "F" .. i) end
    for i = 0, m - 1 do table.insert(ranks[r], "B" .. i) end
  end
  return ranks
end
LUA
$orrery draw --schedule mine.lua --stages 3 --micro 4 > picture.txt || fail "a Lua schedule was not drawn"
says picture.txt "mine: 3 stages, 4 micro-batches" "by pipeline rank: 4 4 4"
# The shipped schedules are drawn as reviewed. ORRERY_BLESS=1 writes the drawings anew.
for name in gpipe 1f1b interleaved zb_h1 zbv; do
    chunks=1 golden=$source_root/tests/golden/draw_$name
    case $name in interleaved | zbv) chunks=2 ;; esac
    of="--schedule $name --stages 4 --micro 8 --chunks $chunks"
    $orrery draw $of --width 100 > $name.txt || fail "$name was not drawn"
    $orrery draw $of -o $name.svg > /dev/null || fail "$name was not drawn"
    for kind in txt svg; do
        [ -z "${ORRERY_BLESS:-}" ] || cp $name.$kind "$golden.$kind"
        diff "$golden.$kind" $name.$kind || fail "$name is drawn otherwise than tests/golden/draw_$name.$kind"
    done
done

$orrery draw "$source_root/scripts/gpt.lua" --set data.path=text.txt --set data.tokens_per_sequence=32 --set mesh.dp=2 \
    --set train.sequences_per_step=4 --set script.layers=2 --set script.embed=48 --set script.heads=3 \
    --set train.steps=3 --width 120 > picture.txt || fail "a script was not drawn"
says picture.txt "dp=2" "Memory of a rank" "Layout of each parameter" "2 of them"
[ ! -e runs ] || fail "drawing made a run's folder"

refused "nothing to draw"
refused "cannot be combined" "$source_root/scripts/gpt.lua" --schedule mine.txt
refused "an SVG" --schedule mine.txt -o mine.png
refused "an SVG" no_script.lua -o mine.png
refused "there is no folder no/such" --schedule mine.txt -o no/such/mine.svg
refused "expected the name of a file" --schedule mine.txt -o ''
refused "expected a whole number from 0 to 1000000000" --schedule mine.txt --micro -1
cp mine.svg before.svg
(trap '' XFSZ; ulimit -f 1; exec $orrery draw --schedule mine.txt -o mine.svg > message.txt 2>&1)
[ $? -eq 1 ] || fail "a full disk"
says message.txt "cannot write mine.svg: File too large"
cmp mine.svg before.svg || fail "a full disk destroys the drawing before it"
refused "--stages 4 --micro 8" --schedule mine.lua
refused "nowhere" --schedule nowhere --stages 2 --micro 2
echo "F0 X1" > bad.txt
refused "bad.txt:1: 'X1' is no fragment" --schedule bad.txt
printf 'F0 B0 F1 B1\nF1 F0 B0 B1\n' > crossed.txt
refused "crossed.txt:1: never ends: its ranks wait for each other" --schedule crossed.txt
refused "rank 0, position 1: B0 of stage 0 waits for B0 of stage 1 on pipeline rank 1" --schedule crossed.txt

# What a plan's check refuses is refused, at its line and with the schedule named once.
order() { printf 'F0 F1 F2 B0 B1 B2\n%s\n' "$1" > one.txt; }
order "F0 B0 F1 B1 F2 F2 B2"
refused "schedule one, one.txt:2: runs F2 twice on pipeline rank 1 (stage 1)" --schedule one.txt
order "F0 B0 F1 B1 B1 F2 B2"
refused "schedule one, one.txt:2: runs B1 twice on pipeline rank 1 (stage 1)" --schedule one.txt
order "F0 B0 W0 F1 B1 W1 F2 B2 W2"
refused "schedule one, one.txt:1: never runs W0 on pipeline rank 0 (stage 0); where one rank has a W" --schedule one.txt
order "F0 B0 F1 B1 F2.4 B2"
refused "schedule one, one.txt:2: runs F2.4 on pipeline rank 1, which has no chunk 4: it runs one stage" \
    --schedule one.txt
order "F0 B0 F1 B1"
refused "schedule one, one.txt:2: never runs F2 on pipeline rank 1 (stage 1)" --schedule one.txt
# lua NAME TEXT WORD: a schedule in Lua, refused with the word.
lua() {
    printf '%s\n' "$2" > "$1.lua"
    refused "$3" --schedule "$1.lua" --stages 2 --micro 1 --set lua.instructions_million=10
}
lua nothing 'return function(p, m) end' "schedule nothing, nothing.lua:1: returned nil, expected a list of 2"
lua typo 'retrun function(p, m) end' "schedule typo: typo.lua:1: syntax error near"
lua word 'return function(p, m) return { "F0 B0", "F0 X0" } end' \
    "schedule word, word.lua:1: pipeline rank 1: 'X0' is no"
lua none 'local x = 1' "schedule none: module \"none\" in none.lua returned nothing"
# The limits are those of a script.
lua endless 'return function(p, m) while true do end end' \
    "endless.lua:1: instruction limit exceeded: still running after 10 million Lua instructions"
# A schedule that needs two stages a rank gets them.
$orrery draw --schedule zbv --stages 2 --micro 4 > picture.txt || fail "zbv without chunks"
says picture.txt "zbv: 4 stages on 2 pipeline ranks"
$orrery check "$source_root/scripts/gpt.lua" --set data.path=text.txt --set data.tokens_per_sequence=32 \
    --set mesh.pp=2 --set train.sequences_per_step=4 --set train.microbatches=4 --set script.layers=4 \
    --set script.embed=48 --set script.heads=3 --set train.steps=3 --set script.pipeline=zbv > log.txt 2>&1 ||
    { cat log.txt; fail "zbv without chunks in a script"; }
echo "draw: ok"
