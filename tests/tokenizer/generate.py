"""Trains the four small tokenizers of this folder and writes what the package `tokenizers` makes of texts.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install tokenizers==0.23.3
    /tmp/peers/bin/python tests/tokenizer/generate.py            # writes the files
    /tmp/peers/bin/python tests/tokenizer/generate.py --check    # compares a fresh run with them

The text that they are trained on is made here. conformance.py takes its pipelines and odd texts from here.
"""
import argparse
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

STEMS = """star orbit planet moon sun wheel gear axis turn year day night path light shadow ring sphere model table angle
measure clock hand brass arm pin plate tooth crank lever ratio period phase node eclipse season calendar month week
hour scale sign house map line circle centre north south east west small large slow fast bright dark old new first
second third long short round even odd near far inner outer upper lower read write move stand carry drive follow
count name mark draw show build find keep hold make take give come go see say know think look use work call try
need feel become leave put mean let begin seem help talk start run play walk win offer remember love consider appear
buy wait serve die send expect stay fall cut reach kill remain suggest raise pass sell require report decide pull""".split()
LINKS = "the the the a an of of and and to in is was that it with as for on by at from or not be are this which".split()
ENDINGS = ["", "", "", "s", "ed", "ing", "er", "ly", "'s", "n't", "'ll", "'ve"]
CODE = ["for (int i = 0; i < {n}; ++i) {{", "    {w}[i] += {w}({n}, \"{w}\");", "}}", "#define {W} 0x{n:x}",
        "// {w} {w}: {n}", "\treturn {w}->{w} != nullptr;", ".. {w}:: {w}", "   :{w}: {n}.{n}", "{W} = ``{w}``"]
FOREIGN = ["żółw", "naïve café", "Ångström", "слово за словом", "λόγος", "שלום", "مرحبا", "日本語の文", "한국어", "ไทย",
           "e\u0301te\u0301", "A\u030angle", "ﬁn", "½ ¼ ² ³", "①②③", "٣٤٥", "🙂🙃", "👩‍👩‍👧", "— “quoted” …", "\u00a0wide\u3000space"]


def prose(rng, words):
    out, length = [], 0
    while length < words:
        sentence = []
        for _ in range(rng.randint(4, 18)):
            word = rng.choice(LINKS) if rng.random() < 0.45 else rng.choice(STEMS[:rng.randint(8, len(STEMS))])
            if word not in LINKS:
                word += rng.choice(ENDINGS)
            sentence.append(word + ("," if rng.random() < 0.06 else ""))
        if rng.random() < 0.15:
            sentence.append(str(rng.randint(1, 10 ** rng.randint(1, 7))))
        if rng.random() < 0.1:
            sentence.append(rng.choice(FOREIGN))
        text = " ".join(sentence)
        out.append(text[0].upper() + text[1:] + rng.choice([". ", ". ", "? ", "! ", ".\n", ".\n\n", ".  "]))
        length += len(sentence)
    return "".join(out)


def code(rng, lines):
    word = lambda: rng.choice(STEMS) + rng.choice(["", "_", "2", "_" + rng.choice(STEMS)])
    out = []
    for _ in range(lines):
        line = rng.choice(CODE)
        while "{w}" in line or "{W}" in line:
            line = line.replace("{w}", word(), 1).replace("{W}", word().upper(), 1)
        out.append(line.replace("{n:x}", f"{rng.randint(0, 65535):x}").replace("{n}", str(rng.randint(0, 9999)))
                   .replace("{{", "{").replace("}}", "}"))
    return "\n".join(out) + "\n"


def anything(rng, length):
    """Characters of every kind, and runs of them."""
    kinds = [lambda: chr(rng.randint(32, 126)), lambda: rng.choice(" \t\n\r\u00a0\u2003\u3000\u0085"),
             lambda: rng.choice("'sStTrReEvVmMlLdD\u017f"), lambda: chr(rng.randint(0xa0, 0x24f)),
             lambda: chr(rng.randint(0x300, 0x36f)), lambda: chr(rng.randint(0x370, 0x5ff)),
             lambda: chr(rng.randint(0x4e00, 0x9fff)), lambda: chr(rng.randint(0xac00, 0xd7a3)),
             lambda: chr(rng.choice([rng.randint(1, 0xd7ff), rng.randint(0xe000, 0x1ffff)])),
             lambda: rng.choice("0123456789²½Ⅷ٣"), lambda: rng.choice(" ▁"), lambda: chr(rng.randint(0, 31))]
    out = ""
    while len(out) < length:
        kind = rng.choice(kinds)
        out += "".join(kind() for _ in range(rng.choice([1, 1, 1, 2, 3, 7])))
    return out


def byte_level(train_on, vocabulary, pre_tokenizer, normalizer=None, specials=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(train_on, trainer)
    return tokenizer


def gpt2(train_on, vocabulary):
    tokenizer = byte_level(train_on, vocabulary, pre_tokenizers.ByteLevel(add_prefix_space=False),
                           specials=["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3(train_on, vocabulary):
    tokenizer = byte_level(train_on, vocabulary, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]))
    tokenizer.model.ignore_merges = True
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in (
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")])
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
                                      special_tokens=[(begin, tokenizer.token_to_id(begin))])])
    return tokenizer


def qwen2(train_on, vocabulary):
    tokenizer = byte_level(train_on, vocabulary, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]),
        normalizer=normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tokenizer


def llama2(train_on, vocabulary, metaspace=None):
    """As sentencepiece's models are converted: bytes for what the vocabulary lacks, spaces as letters, no cut between
    words. Merges are learned within words, as sentencepiece does."""
    space = "\u2581"
    learn = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    learn.pre_tokenizer = pre_tokenizers.Metaspace()
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    learn.train_from_iterator(train_on, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=120,
        show_progress=False))
    spec = json.loads(learn.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]
    spec["pre_tokenizer"] = metaspace
    spec["normalizer"] = None if metaspace else {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": space}, {"type": "Replace", "pattern": {"String": " "}, "content": space}]}
    spec["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": space}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    spec["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return Tokenizer.from_str(json.dumps(spec))


PIPELINES = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2}


def flags():
    """Added tokens with every flag, and some that are others' beginnings."""
    out = []
    for flag in ("plain", "single_word", "lstrip", "rstrip", "normalized"):
        out.append(AddedToken(f"<{flag}>", normalized=flag == "normalized",
                              **({flag: True} if flag not in ("plain", "normalized") else {})))
    out.append(AddedToken("word", single_word=True, normalized=False))
    out.append(AddedToken("wordier", normalized=False))
    out.append(AddedToken("<both>", lstrip=True, rstrip=True, normalized=False, special=True))
    out.append(AddedToken("e\u0301a b", normalized=True))
    out.append(AddedToken("e\u0301", normalized=True, single_word=True, lstrip=True))
    return out


def neighbours(tokenizer):
    """Every added token between what may matter to it: nothing, words, spaces, marks, another token."""
    tokens = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    sides = ["", "a", " ", "  ", " \n", ".", "_", "7", "é", "\u0301", "\u2003x", "▁", "\u200d"] + tokens
    return [left + token + right for token in tokens for left in sides for right in sides]


def compact(tokenizer):
    """The file with merges in the older spelling where it can be, which is shorter, and a line an entry."""
    spec = json.loads(tokenizer.to_str())
    if not spec["normalizer"] or spec["normalizer"]["type"] != "NFC":  # one file keeps pairs
        spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n"


def cases(tokenizer, rng):
    texts = [prose(rng, 40), code(rng, 5), anything(rng, 90), "", " ", "\n", "a", " a", "a ",
             "a" * 90 + "b" * 90, " " * 70 + "x", "\r\n\r\n \n x", "don't DON'T it'ſ 'LL", "12345678 ½½½½ 1 22 333",
             "▁a▁ b▁", "<0x41><0x0A>", "e\u0301\u0323 \u1100\u1161\u11a8 \u0958"]
    added = neighbours(tokenizer)
    texts += [" ".join(rng.sample(added, 9)) for _ in range(3)]
    out = []
    for text in texts:
        ids, whole = tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids
        assert whole[len(whole) - len(ids):] == ids  # templates put tokens before the text
        out.append({"text": text, "before": whole[:len(whole) - len(ids)], "ids": ids})
    known = sorted(tokenizer.get_vocab().values())
    decoded = []
    for _ in range(10):
        ids = [rng.choice(known) if rng.random() < 0.7 else rng.choice(known[:300]) for _ in range(rng.randint(0, 16))]
        decoded.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                        "without": tokenizer.decode(ids, skip_special_tokens=True)})
    return {"encoded": out, "decoded": decoded}


def part(kind, value):
    return json.dumps({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []},
                       kind: value})


def pieces(rng):
    """What single parts do: pre-tokenizers, normalizers, decoders."""
    behaviours = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    splits = [{"type": "Split", "pattern": pattern, "behavior": b, "invert": i} for b in behaviours for i in (False, True)
              for pattern in ({"String": "-"}, {"Regex": "-+|x"}, {"Regex": "(?=x)|-"}, {"String": ""})]
    meta = [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": s, "split": b}
            for s in ("always", "first", "never") for b in (True, False)]
    digits = [{"type": "Digits", "individual_digits": b} for b in (True, False)]
    byte = [{"type": "ByteLevel", "add_prefix_space": a, "trim_offsets": True, "use_regex": b}
            for a in (True, False) for b in (True, False)]
    sequences = [{"type": "Sequence", "pretokenizers": list(p)} for p in (
        (digits[0], byte[1]), (splits[0], meta[0]), (splits[0], meta[2]), (splits[3], byte[0], digits[1]),
        (byte[2], splits[1]), (meta[2], splits[2]), (digits[1], meta[2], byte[3]))]
    texts = ["the-final--xdown-", "-x-", "x--x", "a 12 b3 ⅷ½", " l  t ", "▁a b▁", "é-xé", "don't", "1"]
    out = {"pre_tokenizers": [], "normalizers": [], "decoders": []}
    for spec in splits + meta + digits + byte + sequences:
        tool = Tokenizer.from_str(part("pre_tokenizer", spec)).pre_tokenizer
        out["pre_tokenizers"].append({"spec": spec, "texts": [[t, [p for p, _ in tool.pre_tokenize_str(t)]] for t in texts]})
    replace = [{"type": "Replace", "pattern": p, "content": c} for p, c in (
        ({"String": " "}, "▁"), ({"Regex": "[0-9]+"}, "0"), ({"Regex": " {2,}"}, " "), ({"String": "a.b"}, ""))]
    for spec in [{"type": "NFC"}, {"type": "Prepend", "prepend": "▁"}] + replace + [
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, replace[1], {"type": "Prepend", "prepend": "xy"}]}]:
        tool = Tokenizer.from_str(part("normalizer", spec)).normalizer
        some = texts + ["", "a.b a-b", "e\u0301\u0323\u0334 q\u0323\u0307", "\u1100\u1161\u11a8", "\u0958\u09dc\u2126",
                        "a\u0345\u0898\u0334", "\U00011935\U00011930", "\u0344", "ͅ\u0301a", "12 34"]
        out["normalizers"].append({"spec": spec, "texts": [[t, tool.normalize_str(t)] for t in some]})
    byte_decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    strip = [{"type": "Strip", "content": "x", "start": a, "stop": b} for a, b in ((1, 0), (2, 1), (0, 2))]
    spaces = [{"type": "Replace", "pattern": p, "content": " "} for p in ({"String": "▁"}, {"Regex": "▁+|xx"})]
    drop = [meta[0], meta[4]]
    lists = [["▁He", "llo", "▁▁wor", "ld", "xyxx"], ["xaxx", "xxbbxx", "yyxx", "axxxb"], ["Ġa", "Ã", "©", "Ċ", "ab c", "é"],
             ["<0xE2>", "<0x82>", "<0xAC>", "<0xE2>", "b", "<0x0a>", "<0x+A>", "<0xFF>", "xay"], ["â", "Ĥ", "q", "â", "ðŁ"]]
    for spec in [byte_decoder, fallback, fuse] + strip + spaces + drop + [
            {"type": "Sequence", "decoders": list(d)} for d in (
                (spaces[0], fallback, fuse, strip[0]), (fuse, strip[1]), (fuse, spaces[1]), (fuse, drop[0]),
                (byte_decoder, strip[2]), (fuse, fallback), (fallback, byte_decoder), (spaces[1], fuse, strip[1]))]:
        tool = Tokenizer.from_str(part("decoder", spec)).decoder
        out["decoders"].append({"spec": spec, "texts": [[t, tool.decode(t)] for t in lists]})
    return out


def make():
    rng = random.Random(20)
    train_on = [prose(rng, 40) for _ in range(400)] + [code(rng, 10) for _ in range(60)]
    files, expected = {}, {}
    for name, sizes in {"gpt2": 500, "llama3": 480, "qwen2": 480, "llama2": 660}.items():
        tokenizer = PIPELINES[name](train_on, sizes)
        tokenizer.add_tokens(flags())
        files[name + ".json"] = compact(tokenizer)
        fresh = Tokenizer.from_str(files[name + ".json"])
        expected[name] = cases(fresh, rng)
    first = llama2(train_on, 600, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})
    files["metaspace.json"] = compact(first)
    expected["metaspace"] = cases(Tokenizer.from_str(files["metaspace.json"]), rng)
    lines = [json.dumps({"made_by": "generate.py", "tokenizers": tokenizers.__version__})]
    lines += [json.dumps({"tokenizer": k, **v}, ensure_ascii=False, separators=(",", ":")) for k, v in expected.items()]
    files["expected.jsonl"] = "\n".join(lines) + "\n"
    parts = pieces(rng)
    rows = [json.dumps({"kind": kind, **row}, ensure_ascii=False, separators=(",", ":")) for kind, all_ in parts.items() for row in all_]
    files["parts.jsonl"] = "\n".join(rows) + "\n"
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    different = []  # which files
    for name, text in make().items():
        path = HERE / name
        if check and (not path.exists() or path.read_text() != text):
            different.append(name)
        if not check:
            path.write_text(text)
    if different:
        sys.exit("generate: other than in the folder: " + ", ".join(different))
