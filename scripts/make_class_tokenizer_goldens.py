#!/usr/bin/env python3
"""Writes tests/fixtures/tokens/classes: small tokenizers of the classes of Gemma, GPT-2, DeBERTa v2, ModernBERT, XLM-RoBERTa, CamemBERT and
DistilBERT, as transformers saves them, and classes.json: generated texts with the tokens that transformers gives them.

    pip install transformers tokenizers
    python scripts/make_class_tokenizer_goldens.py [NAME ...]     # all, or those of these names

Written by transformers 5.24.0 with tokenizers 0.23.3.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import tokenizers as tk
import transformers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "tokens" / "classes"
CORPUS = ["the cat sees the moon and the dog sleeps under a tree.", "a big red fish likes the blue sea, or not?",
          "Question: is the sun green? Answer: no", "the small bird runs in the house. yes, it is \u00fcber caf\u00e9 10% big"] * 3
WORDS = """cat dog the big Question: Answer: don't I'll l'\u00e9t\u00e9 cr\u00e8me cre\u0300me \u0391\u03a3 \u0130stanbul stra\u00dfe \ufb01eld \uff21\uff22\uff23\uff01 \u65e5\u672c\u8a9e \u30c6\u30b9\u30c8 \U0001f600
\U0001f469\u200d\U0001f680 \u201cquoted\u201d \u2026 \u2013 \u00bd \u00b2 12345 1.5 10% a/b c\\d ... !!! (x) <b> &amp; AT&T #tag @name ___ \u2581 \u0394t <s> [UNK]""".split()
SPACES = [" "] * 10 + ["  ", "   ", "\t", "\n", "\n\n", "\u00a0", "\u3000", ""]


def texts(count):
    draw = random.Random(5)
    made = ["".join(draw.choice(WORDS) + draw.choice(SPACES) for _ in range(draw.randint(1, 10))) for _ in range(count)]
    return made + [" leading", "trailing ", " ", "a", "\n"]


def pairs(trainer, pre_tokenizer, model=models.BPE):
    """The vocabulary and the merges that a trainer makes of the corpus."""
    tokenizer = tk.Tokenizer(model())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581") if pre_tokenizer is None else None
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"]


def gemma():
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = pairs(trainers.BpeTrainer(vocab_size=380, special_tokens=special, show_progress=False), None)
    return hf.GemmaTokenizer(vocab=made["vocab"], merges=[tuple(merge) for merge in made["merges"]])


def bytes_of(special):
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    return pairs(trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2():
    made = bytes_of(["<|endoftext|>"])
    return hf.GPT2Tokenizer(vocab=made["vocab"], merges=[tuple(merge) for merge in made["merges"]])


def unigrams(special, unknown):
    """Pieces with their scores, after the special tokens; training makes others each time."""
    trainer = trainers.UnigramTrainer(vocab_size=100, special_tokens=special, unk_token=unknown, show_progress=False)
    made = pairs(trainer, pre_tokenizers.Metaspace(), models.Unigram)
    return [(piece, 0.0 if piece in special else score) for piece, score in made["vocab"]]


def deberta():
    return hf.DebertaV2Tokenizer(vocab=unigrams(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "[UNK]"))


def xlm_roberta():
    return hf.XLMRobertaTokenizer(vocab=[*unigrams(["<s>", "<pad>", "</s>", "<unk>"], "<unk>"), ("<mask>", 0.0)])


def camembert():
    special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]
    return hf.CamembertTokenizer(vocab=[*unigrams(special, "<unk>"), ("<mask>", 0.0)])


def distilbert():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    made = pairs(trainer, pre_tokenizers.BertPreTokenizer(), lambda: models.WordPiece(unk_token="[UNK]"))
    return hf.DistilBertTokenizer(vocab=made["vocab"])


def modernbert():
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    made = bytes_of(special)
    tokenizer = tk.Tokenizer(models.BPE(vocab=made["vocab"], merges=[tuple(merge) for merge in made["merges"]]))
    tokenizer.normalizer, tokenizer.decoder = normalizers.NFC(), decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", special_tokens=marks)
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
                                      mask_token="[MASK]")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table = OUT / "classes.json"
    told = json.loads(table.read_text()) if sys.argv[1:] else {"texts": texts(150)}
    for make in (gemma, gpt2, deberta, modernbert, xlm_roberta, camembert, distilbert):
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        shutil.rmtree(OUT / make.__name__, ignore_errors=True)
        tokenizer = make()
        tokenizer.save_pretrained(OUT / make.__name__)
        loaded = hf.AutoTokenizer.from_pretrained(OUT / make.__name__)
        told[make.__name__] = [loaded(text)["input_ids"] for text in told["texts"]]
    table.write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
