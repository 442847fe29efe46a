#!/usr/bin/env python3
"""Writes tests/fixtures/images and prints what Pillow reads from each file: the CRC-32 of convert("RGB") and a pixel.

    python scripts/make_image_fixtures.py        # needs pillow (made with 13.0, libjpeg-turbo 3.2) and numpy
"""
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

folder = Path(__file__).parent.parent / "tests/fixtures/images"
folder.mkdir(parents=True, exist_ok=True)
y, x = np.mgrid[0:12, 0:20]
a = (np.stack([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7], -1) % 256).astype(np.uint8)
image = Image.fromarray(a)
palette = image.quantize(8)
deep = Image.fromarray(a[..., 0].astype(np.uint16) * 3)
ink = Image.fromarray(np.stack([x * 12, y * 20, 255 - x * 10, (x + y) * 7], -1).astype(np.uint8), "CMYK")
turned = Image.Exif()
turned[0x112] = 6

image.save(folder / "chroma_420.jpg", quality=75)
image.save(folder / "chroma_444.jpg", quality=90, subsampling=0)
image.save(folder / "progressive.jpg", quality=75, progressive=True)
image.save(folder / "exif_turned.jpg", quality=75, exif=turned)
image.convert("L").save(folder / "gray.jpg", quality=75)
ink.save(folder / "cmyk.jpg", quality=30)
ink.save(folder / "cmyk.tif")
palette.save(folder / "palette.png", transparency=2)
palette.save(folder / "palette.gif")
image.convert("1").save(folder / "bilevel.png")
deep.save(folder / "deep_gray.png")
deep.save(folder / "deep_gray.tif")
image.save(folder / "lzw.tif", compression="tiff_lzw")
image.save(folder / "plain.bmp")
image.save(folder / "lossless.webp", lossless=True)
image.save(folder / "lossy.webp", quality=80)
for path in sorted(folder.iterdir()):
    rgb = np.asarray(Image.open(path).convert("RGB"))
    print(f'("{path.name}", {zlib.crc32(rgb.tobytes())}, {rgb[3, 4].tolist()}),')
