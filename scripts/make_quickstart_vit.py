#!/usr/bin/env python3
"""Make assets/vit-digits.pt: a tiny ViT that has seen printed digits only.

Digits of the fonts that matplotlib ships are bent, thickened, blurred and reduced to 8x8 grey images in the manner of
the UCI handwritten digits; a timm VisionTransformer learns them in a few minutes on a CPU and is scripted to
TorchScript. Input: grey on three channels, (x / 255 - 0.5) / 0.5. The accuracy on the handwritten digits is printed
at the end; they take no part in the training.
Needs: torch, timm, numpy, pillow, matplotlib (its fonts), scikit-learn.
"""

import argparse
import importlib.util
import math
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

from clip_modules import write_archive

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
CLASSES = 10
GLYPH_PIXELS = 64
BITMAP_PIXELS = 32
IMAGE_PIXELS = 8
GREY_LEVELS = 16
MAX_BYTES = 1_000_000


def font_folder():
    spec = importlib.util.find_spec("matplotlib")
    if spec is None:
        raise SystemExit("matplotlib is missing, whose fonts are needed: pip install matplotlib")
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


def render_glyph(font, digit):
    """One digit, cropped, as high as the square it is centred in; [GLYPH_PIXELS, GLYPH_PIXELS] in 0..1."""
    canvas = Image.new("L", (4 * GLYPH_PIXELS, 4 * GLYPH_PIXELS))
    ImageDraw.Draw(canvas).text((GLYPH_PIXELS, GLYPH_PIXELS), str(digit), fill=255, font=font)
    glyph = canvas.crop(canvas.getbbox())
    width = min(GLYPH_PIXELS, round(glyph.width * GLYPH_PIXELS / glyph.height))
    square = Image.new("L", (GLYPH_PIXELS, GLYPH_PIXELS))
    square.paste(glyph.resize((width, GLYPH_PIXELS), Image.Resampling.LANCZOS), ((GLYPH_PIXELS - width) // 2, 0))
    return torch.from_numpy(np.asarray(square, dtype=np.float32) / 255)


def printed_digits():
    """All glyphs [fonts * CLASSES, 1, GLYPH_PIXELS, GLYPH_PIXELS], ten in a row to a font."""
    folder = font_folder()
    fonts = [ImageFont.truetype(folder / f"{name}.ttf", 2 * GLYPH_PIXELS) for name in FONTS]
    return torch.stack([render_glyph(font, digit) for font in fonts for digit in range(CLASSES)]).unsqueeze(1)


def uniform(count, low, high, generator):
    return low + (high - low) * torch.rand(count, generator=generator)


def random_affine(count, generator):
    """Maps from the image's square to the glyph's, [count, 2, 3]: rotation, shear, size and shift."""
    angle = uniform(count, -0.25, 0.25, generator)
    shear = uniform(count, -0.3, 0.3, generator)
    size_x, size_y = (uniform(count, low, high, generator) for low, high in ((0.8, 1.3), (0.95, 1.25)))
    shift_x, shift_y = (uniform(count, -0.12, 0.12, generator) for _ in range(2))
    cos, sin = angle.cos(), angle.sin()
    rows = [size_x * cos, size_x * (shear * cos - sin), shift_x, size_y * sin, size_y * (shear * sin + cos), shift_y]
    return torch.stack(rows, 1).reshape(count, 2, 3)


def change_thickness(bitmaps, generator):
    """A third of the strokes one pixel thinner on each side, a third thicker."""
    choice = torch.randint(3, (len(bitmaps), 1, 1, 1), generator=generator)
    thinner = -F.max_pool2d(-bitmaps, 3, stride=1, padding=1)
    thicker = F.max_pool2d(bitmaps, 3, stride=1, padding=1)
    return torch.where(choice == 0, thinner, torch.where(choice == 1, bitmaps, thicker))


def distort(glyphs, generator):
    """8x8 images [B, 1, 8, 8] in 0..1 from glyphs: each pixel counts the ink of a 4x4 block of a bent bitmap."""
    shape = (len(glyphs), 1, BITMAP_PIXELS, BITMAP_PIXELS)
    grid = F.affine_grid(random_affine(len(glyphs), generator), shape, align_corners=False)
    # a smooth random displacement bends the strokes
    bend = 0.08 * torch.randn(len(glyphs), 2, 4, 4, generator=generator)
    grid = grid + F.interpolate(bend, BITMAP_PIXELS, mode="bicubic").permute(0, 2, 3, 1)
    bitmaps = change_thickness(F.grid_sample(glyphs, grid, align_corners=False), generator)
    blurred = F.avg_pool2d(bitmaps, 3, stride=1, padding=1)
    blur = uniform(len(glyphs), 0.0, 1.0, generator).reshape(-1, 1, 1, 1)
    images = F.avg_pool2d(bitmaps.lerp(blurred, blur), BITMAP_PIXELS // IMAGE_PIXELS)
    images = images + 0.04 * torch.randn(images.shape, generator=generator)
    return (images.clamp(0, 1) * GREY_LEVELS).round() / GREY_LEVELS


def to_input(images):
    return ((images - 0.5) / 0.5).expand(-1, 3, -1, -1)


def tiny_vit():
    return VisionTransformer(
        img_size=IMAGE_PIXELS, patch_size=2, embed_dim=64, depth=4, num_heads=4, mlp_ratio=2, num_classes=CLASSES
    )


def train(model, glyphs, args):
    generator = torch.Generator().manual_seed(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    warmup = args.steps // 20

    def rate(step):
        return min(1, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / args.steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    started = time.monotonic()
    model.train()
    for step in range(args.steps):
        rows = torch.randint(len(glyphs), (args.batch_size,), generator=generator)
        logits = model(to_input(distort(glyphs[rows], generator)))
        loss = F.cross_entropy(logits, rows % CLASSES, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, args.steps // 10) == 0:
            print(f"step {step + 1}/{args.steps}  loss {loss.item():.3f}  {time.monotonic() - started:.0f} s")
    return model.eval()


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(to_input(images)).argmax(1) == labels).double().mean().item()


def handwritten():
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / GREY_LEVELS
    # as the program reads them: scaled to bytes and back
    return (images * 255).round() / 255, torch.from_numpy(digits.target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent.parent / "assets" / "vit-digits.pt"
    parser.add_argument("--out", type=Path, default=default, help="file to write (default: assets/vit-digits.pt)")
    parser.add_argument("--steps", type=int, default=2500, help="training steps (default: 2500)")
    parser.add_argument("--batch-size", type=int, default=128, help="images per step (default: 128)")
    parser.add_argument("--lr", type=float, default=1e-3, help="largest learning rate (default: 0.001)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and images (default: 1)")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    glyphs = printed_digits()
    model = train(tiny_vit(), glyphs, args)

    unseen = torch.Generator().manual_seed(args.seed + 1)
    labels = torch.arange(len(glyphs)).repeat(10) % CLASSES
    printed = accuracy(model, distort(glyphs.repeat(10, 1, 1, 1), unseen), labels)
    size = write_archive(torch.jit.script(model), args.out)
    if size > MAX_BYTES:
        raise SystemExit(f"{args.out}: {size} bytes, more than {MAX_BYTES}")
    written = accuracy(torch.jit.load(args.out), *handwritten())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{args.out}  {size} bytes, {parameters} parameters")
    print(f"accuracy: {printed:.4f} on fresh printed digits, {written:.4f} on the handwritten ones")


if __name__ == "__main__":
    main()
