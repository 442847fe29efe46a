#!/usr/bin/env python3
"""Writes tests/fixtures/tokens: what packages make of generated texts.

- clip.json: 400 texts, and the tokens of CLIP's vocabulary by open_clip_torch 3.3 (ftfy 6.3) and by transformers 5.24
  (CLIPTokenizer, tokenizers 0.23).
- clip-small/: a tokenizer of CLIP's class with a small vocabulary, as transformers saves it, and its tokens of the same texts.
- pairs.json: 400 pairs of texts for the tokenizer of tests/fixtures/encoder/bert, each cut to at most `most` tokens from the right or
  from the left, by transformers 5.24 in a batch.

    pip install open_clip_torch transformers
    python scripts/make_tokenizer_goldens.py
"""

import gzip
import html.entities
import json
import random
import tempfile
from pathlib import Path

import open_clip
import transformers as hf

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
OUT = FIXTURES / "tokens"
CONTEXT = 24
WORDS = """cat dog photo of a the Great Dane colt's l'été I'll we're don't polka-dotted_thing 1.5 12345 crème cre\u0300me ΑΣ Σίσυφος İstanbul
ΟΔΟΣ straße ﬁeld oﬃce Ǆ ŉ ＡＢＣ！ ｶﾞ 日本語 テスト 😀 👩‍🚀 it’s “quoted” ‘x’ … – — ½ ² №3 <b> </b> < > & &amp; &amp;amp; &lt;b&gt; &eacute; &#233; &#xe9;
&copy &nbsp; &notit; &hearts; &unknown; &#0; &#150; &amp &Eacute;t&eacute; AT&T R&D a&b; !!! ... (x) [y] {z} #tag @name 's 'S x'll $5 50% a/b c\\d""".split()
SPACES = [" "] * 12 + ["  ", "\t", "\n", "\u00a0", "\u3000", "\u2028", ""]
PIECES = ["the cat", "the dog sleeps", "a", "big red fish", "likes", ".", "under a tree", "moon", "unseen", "is", "?"]


def texts(count):
    draw = random.Random(7)
    entities = sorted(name for name in html.entities.html5 if name.endswith(";"))
    found = []
    for at in range(count):
        parts = [draw.choice(WORDS) if draw.random() < 0.9 else f"&{draw.choice(entities)}" for _ in range(draw.randint(1, 12))]
        text = "".join(part + draw.choice(SPACES) for part in parts)
        found.append("very " * at if at in (30, 40) else text)
    return found


def vocabulary():
    """CLIP's vocabulary under the names of transformers, and its merges."""
    path = Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    merges = gzip.open(path, "rt", encoding="utf-8").read().split("\n")[1:49152 - 256 - 2 + 1]
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    encoder = open_clip.tokenizer.SimpleTokenizer().encoder
    return {names.get(name, name): number for name, number in encoder.items()}, [tuple(merge.split()) for merge in merges]


def of_open_clip(text):
    tokens = open_clip.tokenizer.SimpleTokenizer()(text, context_length=CONTEXT)[0].tolist()
    return tokens[:tokens.index(49407) + 1]


def small(merges):
    """CLIP's bytes with the first of its merges alone."""
    vocab, all_merges = vocabulary()
    kept = {name: number for name, number in vocab.items() if number < 512 + merges}
    kept |= {"<|startoftext|>": len(kept), "<|endoftext|>": len(kept) + 1}
    return hf.CLIPTokenizer(vocab=kept, merges=all_merges[:merges], model_max_length=CONTEXT)


def pairs(count):
    draw, found = random.Random(8), []
    for _ in range(count):
        one, two = (" ".join(draw.choices(PIECES, k=draw.randint(0 if side else 1, 6))) for side in (0, 1))
        most, side = draw.randint(5, 14), draw.choice(["right", "left"])
        tokenizer = hf.AutoTokenizer.from_pretrained(FIXTURES / "encoder" / "bert", truncation_side=side)
        ids = tokenizer([one], [two], truncation=True, max_length=most)["input_ids"][0]
        found.append({"texts": [one, two], "most": most, "side": side, "ids": ids})
    return found


def main():
    OUT.mkdir(exist_ok=True)
    vocab, merges = vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        hf.CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=CONTEXT).save_pretrained(folder)
        clip = hf.CLIPTokenizer.from_pretrained(folder)
    saved = OUT / "clip-small"
    small(60).save_pretrained(saved)
    reduced = hf.CLIPTokenizer.from_pretrained(saved)
    all_texts = texts(400)
    rows = [{"text": text, "open_clip": of_open_clip(text), "transformers": clip(text, truncation=True)["input_ids"],
             "small": reduced(text, truncation=True)["input_ids"]} for text in all_texts]
    for name, found in (("clip", {"context": CONTEXT, "rows": rows}), ("pairs", pairs(400))):
        (OUT / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    differ = sum(row["open_clip"] != row["transformers"] for row in rows)
    print(f"{len(rows)} texts, of which {differ} are read in two ways")


if __name__ == "__main__":
    main()
