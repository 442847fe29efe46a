#!/usr/bin/env python3
"""Trains a small Llama from scratch on text that comes with Python packages, and makes a classification task of it: from which
of four packages' documentation is this passage? The packages' own names are hidden, and test passages come from other
documents than training passages.

    pip install torch transformers tokenizers numpy
    python scripts/make_language_task.py --out /tmp/language

Writes OUT/llama, a folder in the form of the published ones, and OUT/task/{train,test}.jsonl for `[data.jsonl]`.
"""

import argparse
import importlib
import inspect
import json
import pkgutil
import random
import re
import time
import warnings
from pathlib import Path

import tokenizers as tk
import torch
import transformers as hf
from tokenizers import decoders, models, pre_tokenizers, trainers

SOURCES = {"A": "pydoc_data", "B": "numpy", "C": "torch", "D": "transformers"}
HIDDEN = re.compile(r"\b(numpy|np|ndarray|torch|pytorch|tensor|transformers|huggingface|python)(s?)\b", re.IGNORECASE)
PASSAGE, TRAIN, TEST = 12, 400, 1000
BATCH, LENGTH = 8, 128


def docstrings(package):
    """The docstrings of a package's modules, one a document."""
    found = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None):
        if re.search(r"\.(test|testing|_inductor|distributed|compile|onnx|f2py|utils|cli|integrations)", info.name):
            continue
        if package.__name__ == "transformers" and info.name.count(".") > 2:
            continue
        try:
            module = importlib.import_module(info.name)
        except BaseException:
            continue
        for member in [module, *(m for _, m in inspect.getmembers(module, lambda m: inspect.isclass(m) or inspect.isroutine(m)))]:
            if (getattr(member, "__module__", None) or info.name).startswith(package.__name__):
                found.add(inspect.getdoc(member) or "")
    return found


def documents(name):
    """The documents of a source, in a fixed order."""
    if name == "pydoc_data":
        texts = importlib.import_module("pydoc_data.topics").topics.values()
    else:
        texts = docstrings(importlib.import_module(name))
    clean = (HIDDEN.sub("_", " ".join(text.split())) for text in texts)
    return sorted({text for text in clean if len(text.split()) >= 4 * PASSAGE})


def tokenizer_of(texts, vocabulary):
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = tk.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def pretrain(model, ids, steps):
    """Trains on next tokens for a number of steps; the last hundredth of the tokens is held out."""
    held, ids = ids[-len(ids) // 100:], ids[:-len(ids) // 100]
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.05)
    generator, started = torch.Generator().manual_seed(1), time.time()
    for step in range(steps):
        starts = torch.randint(len(ids) - LENGTH, (BATCH,), generator=generator)
        batch = torch.stack([ids[start:start + LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step + 1 == steps:
            rows = held[:len(held) // LENGTH * LENGTH].view(-1, LENGTH)[:64]
            with torch.no_grad():
                loss = model(input_ids=rows, labels=rows).loss
            print(f"step {step}: held-out loss {loss:.3f}, {time.time() - started:.0f} s", flush=True)


def passages(texts, count, rng):
    for _ in range(count):
        words = rng.choice(texts).split()
        start = rng.randrange(len(words) - PASSAGE)
        yield " ".join(words[start:start + PASSAGE])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    rng, train, test, corpus = random.Random(0), [], [], []
    for label, name in SOURCES.items():
        texts = documents(name)
        rng.shuffle(texts)
        cut = len(texts) * 7 // 10
        print(f"{label}: {name}, {len(texts)} documents, {sum(map(len, texts))} characters", flush=True)
        train += [{"text": text, "label": label} for text in passages(texts[:cut], TRAIN // len(SOURCES), rng)]
        test += [{"text": text, "label": label} for text in passages(texts[cut:], TEST // len(SOURCES), rng)]
        corpus += texts[:cut]
    task = arguments.out / "task"
    task.mkdir(parents=True, exist_ok=True)
    for name, rows in [("train", train), ("test", test)]:
        rng.shuffle(rows)
        (task / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rng.shuffle(corpus)
    tokenizer = tokenizer_of(corpus, 2000)
    ids = torch.tensor([token for ids in tokenizer([text[:20000] for text in corpus])["input_ids"] for token in ids])
    print(f"{len(ids)} tokens")
    config = hf.LlamaConfig(vocab_size=2000, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
                            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
                            tie_word_embeddings=False)
    model = hf.LlamaForCausalLM(config)
    pretrain(model.train(), ids, arguments.steps)
    model.eval().save_pretrained(arguments.out / "llama")
    tokenizer.save_pretrained(arguments.out / "llama")


if __name__ == "__main__":
    main()
