"""Data for the cases, made here, since a test has no data set: class folders of small patterns, some photographs, and questions."""

import hashlib
import json
import random
import shutil
import struct
import zlib
from pathlib import Path


def png(path, side, pixel):
    """Writes a square RGB image; `pixel(x, y)` is its three bytes."""
    rows = b"".join(b"\0" + bytes(value for x in range(side) for value in pixel(x, y)) for y in range(side))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def questions(root, part, count):
    """Files of VQA, whose images are of one colour each."""
    asked, answered = [], []
    for index in range(count):
        kind, answer = [("yes/no", "yes"), ("number", "2"), ("yes/no", "no"), ("other", "red")][index % 4]
        asked.append({"image_id": index, "question_id": 10 * index, "question": ["Is this red ?", "How many cat ?"][index % 2]})
        people = [{"answer": answer, "answer_id": person} for person in range(10)]
        answered.append({"question_id": 10 * index, "answer_type": kind, "multiple_choice_answer": answer, "answers": people})
        png(root / part / f"COCO_{part}_{index:012}.jpg", 20, lambda x, y: [60 * (index % 4), 30 * (index % 7), 200])
    (root / f"v2_OpenEnded_mscoco_{part}_questions.json").write_text(json.dumps({"questions": asked}))
    (root / f"v2_mscoco_{part}_annotations.json").write_text(json.dumps({"annotations": answered}))


def sentences(path, count):
    """Sentences of the words that the fixtures' tokenizers know, each with what it says."""
    nouns = ["cat", "dog", "fish", "bird", "tree", "house"]
    lines = []
    for index in range(count):
        size, label = [("big", "yes"), ("small", "no")][index % 2]
        text = f"the {size} {nouns[index // 2 % 6]}{' runs' * (index % 4)}"
        lines.append(json.dumps({"text": text, "sentence": text, "label": label}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def make(folder):
    """Ten classes, 24 images each to train and 10 to test, as `digits`; questions as `vqa`; sentences as `texts`; three larger images as `photographs`."""
    stamp, this = folder / "made-by.txt", hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == this:
        return
    shutil.rmtree(folder, ignore_errors=True)
    dice = random.Random(7)

    def pattern(label):
        return lambda x, y: [min(255, max(0, 25 * (label ^ x ^ y) % 256 + dice.randrange(-20, 20)))] * 3

    for label in range(10):
        for split, count in [("train", 24), ("test", 10)]:
            for index in range(count):
                png(folder / "digits" / split / str(label) / f"{index:02}.png", 8, pattern(label))
    questions(folder / "vqa", "train2014", 256)
    questions(folder / "vqa", "val2014", 20)
    for part, count in [("train", 256), ("test", 40), ("new", 3)]:
        sentences(folder / "texts" / f"{part}.jsonl", count)
    for index in range(3):
        png(folder / "photographs" / f"{index}.png", 40, lambda x, y: [(x * 6 + index * 40) % 256, y * 6 % 256, dice.randrange(256)])
    stamp.write_text(this)
