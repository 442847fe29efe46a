#!/usr/bin/env python3
"""Writes small data sets in Parquet by the package `datasets`, as the Hub has them, and tables of every form by pyarrow.

    pip install datasets==5.2.0 pyarrow==26.0.1 pillow==13.0.0
    python scripts/make_parquet_fixtures.py          # tests/fixtures/data/parquet

`hub/<set>` has the configurations, splits, columns and class names of the repository that bella reads as that set, with a few rows each.
`expected.json` has what `datasets` itself reads of them: the labels, the SHA-256 of all pixels `[N, 3, H, W]`, the texts. `forms` has one
table in every compression, with dictionary and plain encodings, data pages of both versions and several row groups. The damaged tables are
made by the tests. Versions: datasets 5.2.0, pyarrow 26.0.1, Pillow 13.0.0.
"""

import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, Features, Image, List, Value, load_dataset
from PIL import Image as Picture

OUT = Path(__file__).parent.parent / "tests/fixtures/data/parquet"
CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
ROOT = Path(__file__).parent.parent


def words(variable):
    text = (ROOT / "src/data/sets/cifar100.rs").read_text()
    return re.findall('"([^"]+)"', re.search(variable + r": \[&str; \d+\] = \[(.*?)\];", text, re.S).group(1))


def png(seed, side):
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Picture.fromarray(pixels).save(buffer, "png")
    return {"bytes": buffer.getvalue(), "path": f"{seed}.png"}


def write(name, config, split, features, columns, shards=1):
    table = Dataset.from_dict(columns, features=Features(features))
    for shard in range(shards):
        path = OUT / "hub" / name / config / f"{split}-{shard:05}-of-{shards:05}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.shard(shards, shard, contiguous=True).to_parquet(path, batch_size=4)


def images(count, side, first=0):
    return [png(first + i, side) for i in range(count)]


def image_sets():
    label = lambda names: ClassLabel(names=names)
    for split, count, first in [("train", 9, 0), ("test", 5, 100)]:
        labels = [(3 * i) % 10 for i in range(count)]
        write("cifar10", "plain_text", split, {"img": Image(), "label": label(CIFAR10)}, {"img": images(count, 32, first), "label": labels},
              2 if split == "train" else 1)
        # The repository spells crab so.
        fine_names = ["cra" if name == "crab" else name for name in words("FINE")]
        fine, coarse = [(7 * i) % 100 for i in range(count)], [i % 20 for i in range(count)]
        write("cifar100", "cifar100", split, {"img": Image(), "fine_label": label(fine_names), "coarse_label": label(words("COARSE"))},
              {"img": images(count, 32, first), "fine_label": fine, "coarse_label": coarse})
        write("svhn", "cropped_digits", split, {"image": Image(), "label": label([str(i) for i in range(10)])},
              {"image": images(count, 32, first), "label": labels})
        domains = ["real", "sketch", "clipart"]
        write("domainnet", "data", split, {"image": Image(), "label": label(["barn", "bat", "bee"]), "domain": label(sorted(domains))},
              {"image": images(count, 8, first), "label": [i % 3 for i in range(count)], "domain": [i % 3 for i in range(count)]})
    for split, count, first in [("train", 8, 0), ("valid", 6, 50)]:
        write("tiny-imagenet", "data", split, {"image": Image(), "label": label(["n01", "n02", "n03"])},
              {"image": images(count, 8, first), "label": [i % 3 for i in range(count)]})
    for split, count, first in [("train", 6, 0), ("validation", 4, 50)]:
        names = [f"name {i}" for i in range(1000)]
        write("imagenet", "data", split, {"image": Image(), "label": label(names)},
              {"image": images(count, 8, first), "label": [(401 * i) % 1000 for i in range(count)]})
    for split, centers in [("train", [0, 3, 4, 0]), ("validation", [1, 0, 1, 3, 1]), ("test", [2, 2, 2])]:
        count = len(centers)
        write("camelyon17", "data", split, {"image": Image(), "label": label(["normal", "tumor"]), "center": Value("int64"), "slide": Value("int64")},
              {"image": images(count, 8, 10 * count), "label": [i % 2 for i in range(count)], "center": centers,
               "slide": [10 * center + i % 2 for i, center in enumerate(centers)]})


    for split, count, first in [("train", 4, 0), ("validation", 3, 50), ("test", 5, 70)]:
        write("flowers102", "data", split, {"image": Image(), "label": label([f"flower {i}" for i in range(102)])},
              {"image": images(count, 8, first), "label": [(25 * i) % 102 for i in range(count)]})


def gray(value):
    buffer = io.BytesIO()
    Picture.new("RGB", (6, 6), (value, value, value)).save(buffer, "png")
    return {"bytes": buffer.getvalue(), "path": f"{value}.png"}


def questions():
    """Three questions about two images, with the columns of HuggingFaceM4/VQAv2's loading script, which lmms-lab/VQAv2 has, too."""
    text, number = Value("string"), Value("int64")
    features = {"question_type": text, "multiple_choice_answer": text,
                "answers": List({"answer": text, "answer_confidence": text, "answer_id": number}),
                "image_id": number, "answer_type": text, "question_id": number, "question": text, "image": Image()}
    given = [["no", "yes", "yes"], ["3", "two", "two"], ["cat", "dog", "cow"]]
    answers = [[{"answer": word, "answer_confidence": "yes", "answer_id": i + 1} for i, word in enumerate(words)] for words in given]
    for split in ["train", "validation"]:
        write("vqa-v2", "data", split, features,
              {"question_type": ["is it", "how many", "what is"], "multiple_choice_answer": ["yes", "two", "cat"], "answers": answers,
               "image_id": [42, 7, 42], "answer_type": ["yes/no", "number", "other"], "question_id": [420, 71, 421],
               "question": ["Is it red?", "How many?", "What is it?"], "image": [gray(10), gray(200), gray(10)]})


def text_sets():
    text, number = Value("string"), Value("int64")
    tasks = {"sst2": ["negative", "positive"], "mrpc": ["not_equivalent", "equivalent"]}
    for split, count in [("train", 5), ("validation", 3)]:
        labels = [i % 2 for i in range(count)]
        write("glue", "sst2", split, {"sentence": text, "label": ClassLabel(names=tasks["sst2"]), "idx": number},
              {"sentence": [f"{split} \"{i}\"\té" for i in range(count)], "label": labels, "idx": list(range(count))})
        write("glue", "mrpc", split, {"sentence1": text, "sentence2": text, "label": ClassLabel(names=tasks["mrpc"])},
              {"sentence1": [f"a {i}" for i in range(count)], "sentence2": [f"b {i}" for i in range(count)], "label": labels})
        write("boolq", "data", split, {"question": text, "answer": Value("bool"), "passage": text},
              {"question": [f"is it {i}" for i in range(count)], "answer": [i % 2 == 0 for i in range(count)], "passage": ["p"] * count})
        size = {"sentence": text, "option1": text, "option2": text, "answer": text}
        write("winogrande", "winogrande_s", split, size,
              {"sentence": [f"{split} _ {i}" for i in range(count)], "option1": ["x"] * count, "option2": ["y"] * count,
               "answer": [str(1 + i % 2) for i in range(count)]})
    kinds = ["entailment", "neutral", "contradiction"]
    for split in ["train", "validation_matched", "validation_mismatched"]:
        write("glue", "mnli", split, {"premise": text, "hypothesis": text, "label": ClassLabel(names=kinds)},
              {"premise": [f"{split} {i}" for i in range(3)], "hypothesis": ["h"] * 3, "label": [2, 0, 1]})
    for split in ["train", "validation", "test"]:
        choices = {"text": List(text), "label": List(text)}
        given = [{"text": ["w", "x", "y", "z"][:4 - i % 2], "label": ["A", "B", "C", "D"][:4 - i % 2]} for i in range(4)]
        answers = ["A", "C", "B", "A"]
        write("arc", "ARC-Easy", split, {"id": text, "question": text, "choices": choices, "answerKey": text},
              {"id": ["q"] * 4, "question": [f"{split} {i}" for i in range(4)], "choices": given, "answerKey": answers})
        write("openbookqa", "main", split, {"id": text, "question_stem": text, "choices": choices, "answerKey": text},
              {"id": ["q"] * 4, "question_stem": [f"{split} {i}" for i in range(4)], "choices": given, "answerKey": answers})


def read(name, config, split, label, image=None, keep=lambda row: True):
    files = sorted(str(path) for path in (OUT / "hub" / name / config).glob(f"{split}-*.parquet"))
    rows = [row for row in load_dataset("parquet", data_files=files, split="train") if keep(row)]
    pixels = hashlib.sha256(b"".join(np.asarray(row[image].convert("RGB")).transpose(2, 0, 1).tobytes() for row in rows)).hexdigest() if image else None
    return {"labels": [row[label] for row in rows], "pixels": pixels}


def expected():
    sets = {}
    sets["cifar10"] = {split: read("cifar10", "plain_text", split, "label", "img") for split in ["train", "test"]}
    sets["cifar100"] = {split: read("cifar100", "cifar100", split, "fine_label", "img") for split in ["train", "test"]}
    sets["svhn"] = {split: read("svhn", "cropped_digits", split, "label", "image") for split in ["train", "test"]}
    sets["tiny-imagenet"] = {ours: read("tiny-imagenet", "data", split, "label", "image") for ours, split in [("train", "train"), ("test", "valid")]}
    sets["imagenet"] = {ours: read("imagenet", "data", split, "label", "image") for ours, split in [("train", "train"), ("test", "validation")]}
    sets["camelyon17"] = {"train": read("camelyon17", "data", "train", "label", "image"), "test": read("camelyon17", "data", "test", "label", "image"),
                          "val": read("camelyon17", "data", "validation", "label", "image", lambda row: row["center"] == 1)}
    sets["flowers102"] = {ours: read("flowers102", "data", split, "label", "image")
                          for ours, split in [("train", "train"), ("val", "validation"), ("test", "test")]}
    # The domains are clipart, real, sketch.
    sets["domainnet"] = {split: read("domainnet", "data", split, "label", "image", lambda row: row["domain"] == 1) for split in ["train", "test"]}
    return sets


def forms():
    rows = 12
    columns = {"image": images(rows, 4), "label": [i % 3 for i in range(rows)], "group": [f"g{i % 2}" for i in range(rows)]}
    table = pa.table(columns)
    for compression in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
        for encoding, version in [("dictionary", "1.0"), ("plain", "2.0")]:
            path = OUT / "forms" / f"{compression}-{encoding}" / "train.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path, compression=compression, use_dictionary=encoding == "dictionary", data_page_version=version,
                           row_group_size=5, data_page_size=200)
    nulls = OUT / "forms" / "nulls" / "train.parquet"
    nulls.parent.mkdir(parents=True, exist_ok=True)
    holes = [None if i == 7 else i % 3 for i in range(rows)]
    pictures = [None if i == 4 else image for i, image in enumerate(columns["image"])]
    pq.write_table(pa.table({"image": pictures, "label": columns["label"], "hole": holes}), nulls, row_group_size=5)
    return hashlib.sha256(b"".join(np.asarray(Picture.open(io.BytesIO(image["bytes"]))).transpose(2, 0, 1).tobytes() for image in columns["image"])).hexdigest()


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    image_sets()
    questions()
    text_sets()
    found = expected() | {"forms": forms()}
    (OUT / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
