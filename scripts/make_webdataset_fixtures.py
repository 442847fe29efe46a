#!/usr/bin/env python3
"""Writes small sets in tar archives by WebDataset's own writer, and what its own reader makes of them.

    pip install webdataset==1.0.2 pillow==13.0.0
    python scripts/make_webdataset_fixtures.py       # tests/fixtures/data/webdataset

`benchmark` has the layout of clip-benchmark/wds_* (webp, .cls, nshards.txt, classnames.txt), `shards` names with zeros and labels in
JSON, with captions and a second folder level besides. `expected.json` has the key, the label and the first pixel of every sample as
webdataset.WebDataset reads them. Versions: webdataset 1.0.2, Pillow 13.0.0.
"""

import io
import json
from pathlib import Path

import webdataset
from PIL import Image

OUT = Path(__file__).parent.parent / "tests/fixtures/data/webdataset"
CLASSES = ["cat", "dog", "tench, Tinca tinca"]


def image(gray, kind):
    buffer = io.BytesIO()
    options = {"webp": {"lossless": True}, "jpg": {"quality": 95}}.get(kind, {})
    Image.new("RGB", (4, 4), (gray,) * 3).save(buffer, {"jpg": "jpeg"}.get(kind, kind), **options)
    return buffer.getvalue()


def write(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    with webdataset.TarWriter(str(path), encoder=False, mtime=0.0) as writer:
        for sample in samples:
            writer.write(sample)


def benchmark():
    count = 0
    for split, shards in [("train", [3, 2]), ("test", [2, 2])]:
        for shard, size in enumerate(shards):
            samples = []
            for _ in range(size):
                sample = {"__key__": f"s{count:07d}", "webp": image(10 * count + 5, "webp"), "cls": str(count % 3).encode()}
                samples.append(sample)
                count += 1
            write(OUT / "benchmark" / split / f"{shard}.tar", samples)
        (OUT / "benchmark" / split / "nshards.txt").write_text(str(len(shards)))
    (OUT / "benchmark" / "classnames.txt").write_text("\n".join(CLASSES))


def shards():
    long = "a" * 90 + "/" + "b" * 90  # a name that the first field of a header cannot hold
    for shard in range(2):
        samples = []
        for i in range(3):
            number = 3 * shard + i
            label = [number % 3, CLASSES[number % 3]][i % 2]
            kind = ["png", "jpg"][i % 2]
            table = {"label": label, "width": 4, "note": None}
            key = [f"deep/er/{number:05d}", long + str(number)][i == 2]
            samples.append({"__key__": key, kind: image(20 * number, kind), "json": json.dumps(table).encode(),
                            "txt": b"a caption", "seg.png": image(255, "png")})
        write(OUT / "shards" / f"train-{shard:06d}.tar", samples)


def expected():
    found = {}
    places = {"benchmark/train": "benchmark/train/{0..1}.tar", "benchmark/test": "benchmark/test/{0..1}.tar",
              "shards/train": "shards/train-{000000..000001}.tar"}
    for name, pattern in places.items():
        rows = []
        for sample in webdataset.WebDataset(str(OUT / pattern), shardshuffle=False):
            data = next(sample[kind] for kind in ("webp", "png", "jpg") if kind in sample)
            pixel = Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))
            label = sample["cls"].decode() if "cls" in sample else json.loads(sample["json"])["label"]
            rows.append([sample["__key__"], int(label) if str(label).isdigit() else CLASSES.index(label), pixel[0]])
        found[name] = rows
    (OUT / "expected.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    benchmark()
    shards()
    expected()
