#!/usr/bin/env bash
# `orrery tokenize` with a published tokenizer: files, lines of JSON, prompts, standard input; the same bytes on any
# number of threads; what is wrong is named, and leaves what was there.
source "$(dirname "$0")/lib.sh"
fixtures=$source_root/tests/tokenizer
mkdir small
cp "$fixtures/gpt2.json" small/tokenizer.json
echo '{ "eos_token": { "content": "<|endoftext|>" } }' > small/tokenizer_config.json
eot=0 # the first token of the fixture

# ids NAME: the ids of NAME.bin, u16.
ids() { od -An -v -tu2 -w2 "$1.bin" | tr -s ' \n' ' '; }

printf 'the angle of the wheel' > one.txt
printf 'two\nlines, and 17 more' > two.txt
exits 0 files "$orrery" tokenize one.txt two.txt --tokenizer small -o files
grep -q "2 documents, vocabulary 510" files.txt || { cat files.txt; fail "what it says of two files"; }
[ "$(ids files | tr ' ' '\n' | grep -cx $eot)" -eq 2 ] || fail "an end of text behind each of two files: $(ids files)"
[ "$(head -c 7 files.idx)" = MMIDIDX ] || fail "the index does not begin as Megatron's"
# header 9 + 8 + 1 + 8 + 8, then two lengths of 4, two offsets of 8, three document ends of 8
[ "$(stat -c %s files.idx)" -eq $((34 + 8 + 16 + 24)) ] || fail "bytes of the index of two documents"
[ "$(od -An -j 17 -N 1 -tu1 files.idx | tr -d ' ')" -eq 8 ] || fail "the type of u16 ids"
set -- $(od -An -j 34 -N 8 -td4 files.idx)
[ $((($1 + $2) * 2)) -eq "$(stat -c %s files.bin)" ] || fail "lengths $1 and $2 against $(stat -c %s files.bin) bytes"

# The same, as lines and from a pipe; keys that are not asked for do not matter.
{
    printf '{"n": 1, "text": "the angle of the wheel"}\n\n'
    printf '{"text": "two\\nlines, and 17 more"}'
} > lines.jsonl
exits 0 lines "$orrery" tokenize lines.jsonl --field text --tokenizer small/tokenizer.json -o lines
cmp files.bin lines.bin && cmp files.idx lines.idx || fail "lines of JSON have other tokens than files of the same text"
cat lines.jsonl | "$orrery" tokenize - --field text --tokenizer small -o piped > piped.txt || fail "standard input"
cmp files.bin piped.bin || fail "standard input has other tokens"

# Threads do not show.
for i in $(seq 1 400); do
    words=$(head -c $((i * 7 % 300)) text.txt | tr '\n' ' ')
    printf '{"text": "%s of %d wheels, ringing at 7%d"}\n' "$words" "$i" "$i"
done > many.jsonl
for threads in 1 2 5; do
    exits 0 many$threads "$orrery" tokenize many.jsonl --field text --tokenizer small -o many$threads \
        --threads $threads
    cmp many1.bin many$threads.bin && cmp many1.idx many$threads.idx || fail "$threads threads write other files"
done

# A prompt's tokens are marked, and its ids are those of both texts.
echo '{"p": "the angle", "c": " of the wheel"}' > pairs.jsonl
exits 0 pairs "$orrery" tokenize pairs.jsonl --prompt p --completion c --tokenizer small -o pairs
printf 'the angle' > p.txt
"$orrery" tokenize p.txt --tokenizer small -o p > /dev/null || fail "the prompt alone"
prompt=$(($(stat -c %s p.bin) / 2 - 1)) all=$(($(stat -c %s pairs.bin) / 2))
marked=$(od -An -v -tu1 pairs.mask | tr -s ' ' '\n' | awk '$1 != "" { for (b = $1; b > 0; b = int(b / 2)) n += b % 2 }
    END { print n }')
[ "$marked" -eq $prompt ] || fail "$marked tokens are marked, the prompt has $prompt"
[ "$(stat -c %s pairs.mask)" -eq $(((all + 7) / 8)) ] || fail "bytes of the mask"

# A template that ends texts: one beginning and one end for each, also of a prompt and its completion.
mkdir tail
python3 - "$fixtures/llama2.json" tail/tokenizer.json << 'END' || fail "no tokenizer with a tail"
import json, sys
file = json.load(open(sys.argv[1]))
template = file["post_processor"]
template["single"].append({"SpecialToken": {"id": "</s>", "type_id": 0}})
template["special_tokens"]["</s>"] = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
json.dump(file, open(sys.argv[2], "w"))
END
echo '{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true}' \
    > tail/tokenizer_config.json
begin=1 end=2
ends_once() {
    local name=$1 documents=$2 all
    all=$(ids "$name")
    [ "$(echo "$all" | tr ' ' '\n' | grep -cx $begin)" -eq "$documents" ] || fail "$name: beginnings in $all"
    [ "$(echo "$all" | tr ' ' '\n' | grep -cx $end)" -eq "$documents" ] || fail "$name: ends in $all"
    [[ $all == " $begin "*" $end"* ]] || fail "$name: does not begin or end: $all"
}
exits 0 ended "$orrery" tokenize one.txt two.txt --tokenizer tail -o ended
ends_once ended 2
! grep -q "tokenizer_config" ended.txt || { cat ended.txt; fail "a line of a template that does what is asked"; }
exits 0 parts "$orrery" tokenize pairs.jsonl --prompt p --completion c --tokenizer tail -o parts
ends_once parts 1
"$orrery" tokenize p.txt --tokenizer tail -o p > /dev/null || fail "the prompt alone"
[[ $(ids parts) == "$(ids p | sed "s/ $end .*//") "* ]] || fail "the prompt's ids: $(ids parts), alone $(ids p)"
set -- $(od -An -v -tu1 parts.mask)
marked=$(for b in "$@"; do echo $b; done | awk '{ for (b = $1; b > 0; b = int(b / 2)) n += b % 2 } END { print n }')
[ "$marked" -eq $(($(stat -c %s p.bin) / 2 - 1)) ] || fail "$marked tokens of the prompt are marked, of $(ids parts)"
# Another end than the template's own is written, too.
exits 0 other "$orrery" tokenize one.txt --tokenizer tail --end '<unk>' -o other
[[ $(ids other) == *" $end 0 "* ]] || fail "an end that was asked for: $(ids other)"
# What tokenizer_config.json asks for and the template does not do is told.
sed -i 's/"add_eos_token": true/"add_eos_token": false/' tail/tokenizer_config.json
exits 0 told "$orrery" tokenize one.txt --tokenizer tail -o told
grep -q "add_eos_token = false.*puts </s> after a text" told.txt || { cat told.txt; fail "no line of add_eos_token"; }

# Without a tokenizer a byte is a token.
exits 0 bytes "$orrery" tokenize one.txt two.txt -o bytes
[ "$(stat -c %s bytes.bin)" -eq $((2 * ($(stat -c %s one.txt) + $(stat -c %s two.txt)))) ] || fail "a byte a token"
[ ! -e bytes.mask ] || fail "a mask that nobody asked for"

# refused NAME WORDS -- ARGUMENTS...: exit 2, the words, and files.* as they were.
cp files.bin kept.bin
refused() {
    local name=$1 words=$2 word
    shift 3
    exits 2 refused "$orrery" tokenize "$@"
    word=$(missing_word "$words" "$(cat refused.err)")
    [ -z "$word" ] || { cat refused.err; fail "$name: no \"$word\""; }
    cmp -s files.bin kept.bin || fail "$name has changed the files that were there"
    [ -z "$(ls ./*.part 2> /dev/null)" ] || fail "$name left $(ls ./*.part)"
}
sed '300s/.*/{"text": "cut/' many.jsonl > broken.jsonl
refused "a broken line" "broken.jsonl:300: not valid json" -- broken.jsonl --field text --tokenizer small -o files
# With --skip-bad what is left out is counted, and the others are as they are without it.
sed '7s/^{/{"score": NaN, /; 9s/"text"/"test"/' broken.jsonl > some.jsonl
sed '300d; 9d; 7d' many.jsonl > good.jsonl
exits 0 good "$orrery" tokenize good.jsonl --field text --tokenizer small -o good
exits 0 some "$orrery" tokenize some.jsonl --field text --tokenizer small -o some --skip-bad
cmp good.bin some.bin && cmp good.idx some.idx && grep -q "^3 documents skipped" some.txt &&
    grep -q "^skipped: some.jsonl:7" some.err && [ "$(grep -c ^skipped some.err)" = 3 ] ||
    { cat some.txt some.err; fail "documents that are left out"; }
echo '{"text": 1}' > bad.jsonl
refused "no document that can be read" 'none of 1 document can be read' -- \
    --skip-bad bad.jsonl --field text --tokenizer small -o files
refused "skipping without a pair" '--skip-bad needs -o NAME' -- one.txt files.bin --skip-bad
sed '7s/"text"/"test"/' many.jsonl > other.jsonl
refused "a missing key" 'other.jsonl:7: has no key "text"' -- other.jsonl --field text --tokenizer small -o files
printf 'ab\xffc' > latin.txt
refused "another encoding" 'latin.txt: byte 0xff at offset 2 is not UTF-8' -- \
    one.txt latin.txt --tokenizer small -o files
: > empty.txt
refused "an empty file" 'text file empty.txt is empty' -- one.txt empty.txt --tokenizer small -o files
refused "a missing file" 'nowhere.txt cannot be opened' -- one.txt nowhere.txt --tokenizer small -o files
mkdir bare
refused "a folder without a tokenizer" 'bare/tokenizer.json|No such file' -- one.txt --tokenizer bare -o files
sed 's/"type":"BPE"/"type":"Unigram"/' small/tokenizer.json > bare/tokenizer.json
refused "another kind" 'model.type is "Unigram"|supported model: BPE' -- one.txt --tokenizer bare -o files
refused "an unknown end" '--end names the token "<eos>"' -- one.txt --tokenizer small -o files --end '<eos>'
refused "no name" '-o NAME is missing' -- one.txt --tokenizer small
refused "half a pair" '--prompt and --completion must be given together' -- \
    lines.jsonl --prompt p --tokenizer small -o files
mkfifo files2.idx
refused "a pipe in the place of a file" 'files2.idx is a named pipe' -- one.txt --tokenizer small -o files2
echo "1 passed, 0 failed"
