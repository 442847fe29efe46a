"""Builders of the modules behind tests/fixtures: `build(image, tower)` of each library, with random weights.

The text towers are as small as they can be; `openai_clip_words` knows CLIP's whole vocabulary.
Needs: torch, torchvision, timm, open_clip_torch.
"""

from dataclasses import replace
from functools import partial
from typing import Optional

import open_clip.model
import torch
from timm.layers import SwiGLUPacked
from timm.models.vision_transformer import Block as TimmBlock
from timm.models.vision_transformer import VisionTransformer as TimmVit
from torch import nn
from torchvision.models import VisionTransformer as TorchvisionVit

from clip_modules import Clip, QuickGelu, TextShape, TowerShape

TEXT = TextShape(vocabulary=32, context=8)
WORDS = TowerShape(width=16, blocks=1, heads=2, mlp=32, output=24)


# enough for the embedding of the tokens to be the largest parameter
MANY_TOKENS = TextShape(vocabulary=256, context=8)
CLIP_TEXT = TextShape(vocabulary=49408, context=77)
CLIP_WORDS = TowerShape(width=8, blocks=2, heads=2, mlp=24, output=24)


class PostNormBlock(TimmBlock):
    """The block of the first transformers, norm after the sum, under timm's names."""

    def forward(self, x: torch.Tensor, attn_mask: Optional[torch.Tensor] = None, is_causal: bool = False):
        x = self.norm1(x + self.attn(x, attn_mask=attn_mask, is_causal=is_causal))
        return self.norm2(x + self.mlp(x))


def openai_clip(image, tower, text=TEXT):
    return Clip(image, tower, text, replace(WORDS, output=tower.output, activation=tower.activation))


def openai_clip_words(image, tower):
    return Clip(image, tower, CLIP_TEXT, replace(CLIP_WORDS, output=tower.output, activation=tower.activation))


def open_clip_model(image, tower):
    vision = open_clip.model.CLIPVisionCfg(
        layers=tower.blocks,
        width=tower.width,
        head_width=tower.width // tower.heads,
        mlp_ratio=tower.mlp / tower.width,
        patch_size=image.patch,
        image_size=image.image_size,
        norm_kwargs={"eps": tower.eps},
    )
    text = open_clip.model.CLIPTextCfg(
        context_length=TEXT.context,
        vocab_size=TEXT.vocabulary,
        width=WORDS.width,
        heads=WORDS.heads,
        layers=WORDS.blocks,
    )
    return open_clip.model.CLIP(tower.output, vision, text, quick_gelu=tower.activation == "quick-gelu")


ACTIVATIONS = {"quick-gelu": QuickGelu, "gelu": nn.GELU, "silu": nn.SiLU}


def timm_model(image, tower, **options):
    return TimmVit(
        img_size=image.image_size,
        patch_size=image.patch,
        num_classes=tower.output,
        embed_dim=tower.width,
        depth=tower.blocks,
        num_heads=tower.heads,
        mlp_ratio=tower.mlp / tower.width,
        norm_layer=partial(nn.LayerNorm, eps=tower.eps),
        act_layer=ACTIVATIONS[tower.activation],
        **options,
    )


def gated_timm_model(image, tower):
    """One with SwiGLU, whose first layers have the gates beside the values that these multiply."""
    return timm_model(image, replace(tower, mlp=2 * tower.mlp), mlp_layer=SwiGLUPacked)


def torchvision_model(image, tower):
    model = TorchvisionVit(
        image.image_size,
        image.patch,
        tower.blocks,
        tower.heads,
        tower.width,
        tower.mlp,
        num_classes=tower.output,
        norm_layer=partial(nn.LayerNorm, eps=tower.eps),
    )
    if tower.activation == "quick-gelu":
        for layer in model.encoder.layers:
            layer.mlp[1] = QuickGelu()
    return model


def conv_net(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )
