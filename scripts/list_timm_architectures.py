#!/usr/bin/env python3
"""Prints what names and shapes of timm's vision transformers do not tell, one architecture a line, for
src/model/vit/architectures.tsv: name, heads, activation, eps of LayerNorm, pooling, rotary positions; then what they do tell, so
that one can be checked against the other: width, blocks, patch; and the usual image size.

    pip install torch timm
    python scripts/list_timm_architectures.py > src/model/vit/architectures.tsv

Rotary positions are `-`, `centred:θ` (DINOv3) or `indexed:θ:g`, where g is the side of the grid that positions are scaled to
(EVA-02). Architectures whose blocks compute something else are left out, so that bella refuses them by name.
"""

import timm
import torch
from timm.models import list_models
from timm.models.beit import Block as BeitBlock
from timm.models.eva import EvaAttention, EvaBlock
from timm.models.vision_transformer import Block, LayerScale

MODULES = ["vision_transformer", "deit", "beit", "eva"]
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu-tanh", "QuickGELU": "quick-gelu", "SiLU": "silu", "GELU_": "gelu"}


def rope(model):
    """The rotary positions as bella writes them; None for a kind that it does not compute."""
    found = getattr(model, "rope", None)
    if found is None:
        return "-"
    kind, half = type(found).__name__, model.blocks[0].attn.rotate_half
    if kind == "RotaryEmbeddingDinoV3" and half and found.normalize_coords == "separate" and not found.grid_offset:
        return f"centred:{found.temperature:g}"
    plain = kind == "RotaryEmbeddingCat" and not half and not found.in_pixels and found.grid_indexing == "ij"
    if plain and found.grid_offset == 0.0 and found.ref_feat_shape is not None:
        return f"indexed:{found.temperature:g}:{found.ref_feat_shape[0]}"
    return None


def line(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    block = model.blocks[0]
    activation = ACTIVATIONS.get(type(block.mlp.act).__name__) if hasattr(block, "mlp") else None
    plain = type(block) in (Block, BeitBlock, EvaBlock) and isinstance(block.norm1, torch.nn.LayerNorm)
    # Differential attention, and towers without a norm after their blocks.
    plain = plain and not hasattr(block.attn, "lambda_q1")
    plain = plain and any(isinstance(norm, torch.nn.LayerNorm) for norm in (model.norm, model.fc_norm))
    if type(block) is EvaBlock:
        plain = plain and type(block.attn) is EvaAttention and block.attn.gate is None
    rotary = rope(model)
    # timm's attention pooling leaves out the tokens in front of the patches; bella's reads all, as SigLIP has none.
    known = model.global_pool in ("token", "avg") or (model.global_pool == "map" and model.num_prefix_tokens == 0)
    if not plain or activation is None or rotary is None or not known:
        return None
    sizes = [model.embed_dim, len(model.blocks), model.patch_embed.patch_size[0], model.patch_embed.img_size[0]]
    traits = [name, block.attn.num_heads, activation, f"{block.norm1.eps:g}", model.global_pool, rotary]
    return "\t".join(str(field) for field in traits + sizes)


if __name__ == "__main__":
    print("# Written by scripts/list_timm_architectures.py from timm", timm.__version__)
    for module in MODULES:
        for name in list_models(module=module):
            found = line(name)
            if found:
                print(found)
