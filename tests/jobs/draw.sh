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
says mine.svg "<svg xmlns=" "B1 of stage 0 on rank 0: 7 to 9" "</svg>"

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
says picture.txt "mine: 3 stages, 4 micro-batches" "by rank: 4 4 4"
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

refused "draw what?"
refused "not both" "$source_root/scripts/gpt.lua" --schedule mine.txt
refused "an SVG" --schedule mine.txt -o mine.png
refused "--stages 4 --micro 8" --schedule mine.lua
refused "nowhere" --schedule nowhere --stages 2 --micro 2
echo "F0 X1" > bad.txt
refused "bad.txt:1: 'X1' is no fragment" --schedule bad.txt
printf 'F0 B0 F1 B1\nF1 F0 B0 B1\n' > crossed.txt
refused "rank 0, place 1: B0 of stage 0 waits for B0 of stage 1 on rank 1" --schedule crossed.txt
echo "draw: ok"
