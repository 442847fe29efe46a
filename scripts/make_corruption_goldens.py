#!/usr/bin/env python3
"""Writes tests/fixtures/authors/corruptions.json: the images that CIFAR-10-C's own code makes of one image, for the corruptions that draw
nothing, at every severity. It runs functions of hendrycks/robustness at commit 8190fe329f5f072a06e3a2aea02bb5dda69aed9f
(ImageNet-C/create_c/make_cifar_c.py), whose values are rounded here, where that code cuts their fractions off. Made with scikit-image 0.26.0,
scipy 1.17.1 and Pillow 13.0.0.

    git clone https://github.com/hendrycks/robustness && git -C robustness checkout 8190fe3
    pip install numpy pillow scikit-image torch
    python scripts/make_corruption_goldens.py robustness
"""

import json
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import skimage as sk
import skimage.color
import skimage.filters
from PIL import Image

from author_code import functions

OUT = Path(__file__).parent.parent / "tests/fixtures/authors/corruptions.json"
NAMES = {
    "gaussian-blur": "gaussian_blur",
    "contrast": "contrast",
    "brightness": "brightness",
    "saturate": "saturate",
    "pixelate": "pixelate",
    "jpeg": "jpeg_compression",
}


def gaussian(image, sigma, multichannel):
    """scikit-image's filter under the argument that it had then."""
    assert multichannel
    return skimage.filters.gaussian(image, sigma=sigma, channel_axis=-1)


def picture():
    """An image of 32 x 32 pixels with surfaces, edges and noise."""
    y, x = np.mgrid[:32, :32]
    smooth = np.stack([128 + 100 * np.sin(x / 5 + c) * np.cos(y / 7 - c) for c in range(3)], -1)
    smooth[8:20, 10:26] = [220, 40, 90]
    noise = np.random.default_rng(7).normal(0, 12, smooth.shape)
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)


def planar(image):
    """The bytes of an image, one colour after the other, in hexadecimal digits."""
    return np.asarray(image).transpose(2, 0, 1).tobytes().hex()


def main():
    code = Path(sys.argv[1]) / "ImageNet-C/create_c/make_cifar_c.py"
    scope = {"np": np, "sk": sk, "gaussian": gaussian, "BytesIO": BytesIO, "Image": Image, "PILImage": Image}
    made = dict(zip(NAMES, functions(code, list(NAMES.values()), scope)))
    image = Image.fromarray(picture())
    values = lambda corrupt, severity: np.rint(np.asarray(corrupt(image, severity), dtype=np.float64)).astype(np.uint8)
    found = {key: [planar(values(corrupt, severity)) for severity in range(1, 6)] for key, corrupt in made.items()}
    OUT.write_text(json.dumps({"image": planar(image), "corrupted": found}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
