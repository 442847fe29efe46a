#!/usr/bin/env python3
"""Prints what names and shapes of timm's vision transformers do not tell, one architecture a line, for
src/model/vit/architectures.tsv: name, class, heads, activation, eps of LayerNorm, and `packed` if the class's MLP has a gate in its
first layer; then width, blocks, patch, and the usual image size; last the other arguments that the architecture gives to its class,
as JSON. An argument that is absent has the default of the class, and `model_args` of a config take the place of both.

    pip install torch timm
    python scripts/list_timm_architectures.py > src/model/vit/architectures.tsv

Architectures whose blocks compute something else are left out, so that bella refuses them by name.
"""

import importlib
import json

import timm
import torch
from timm.models import list_models
from timm.models.beit import Block as BeitBlock
from timm.models.eva import EvaAttention, EvaBlock
from timm.models.vision_transformer import Block, LayerScale

MODULES = ["vision_transformer", "deit", "beit", "eva"]
CLASSES = {"VisionTransformer": "vit", "VisionTransformerDistilled": "distilled", "Beit": "beit", "Eva": "eva"}
# What is in columns of its own, what only loading of weights needs, and what is no JSON: the columns of activation, eps and gate
# have it.
APART = {"embed_dim", "depth", "num_heads", "patch_size", "img_size", "act_layer", "norm_layer", "mlp_layer"}
LOADING = {"feature_cfg", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "pretrained_strict", "pretrained_filter_fn"}
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu-tanh", "QuickGELU": "quick-gelu", "SiLU": "silu", "GELU_": "gelu"}


captured = {}


def capture(module):
    """Makes a module of timm note the class and the arguments by which it builds a network."""
    module = importlib.import_module(f"timm.models.{module}")
    build = module.build_model_with_cfg

    def noting(model_cls, variant, pretrained, **arguments):
        captured["class"], captured["arguments"] = model_cls, arguments
        return build(model_cls, variant, pretrained, **arguments)

    module.build_model_with_cfg = noting


def computes_rope(model):
    """Whether bella computes the rotary positions: there are none, or they are DINOv3's or EVA-02's."""
    found = getattr(model, "rope", None)
    if found is None:
        return True
    kind, half = type(found).__name__, model.blocks[0].attn.rotate_half
    if kind == "RotaryEmbeddingDinoV3":
        return half and found.normalize_coords == "separate" and not found.grid_offset
    plain = kind == "RotaryEmbeddingCat" and not half and not found.in_pixels and found.grid_indexing == "ij"
    return plain and found.grid_offset == 0.0 and found.ref_feat_shape is not None


def gate(model):
    """`packed` if the argument `mlp_layer` puts the gate of the MLP into its first layer."""
    mlp = model.blocks[0].mlp
    is_packed = hasattr(mlp, "fc1") and mlp.fc1.out_features == 2 * mlp.fc2.in_features
    return "packed" if is_packed and "mlp_layer" in captured["arguments"] else "-"


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
    # timm's attention pooling leaves out the tokens in front of the patches; bella's reads all, as SigLIP has none.
    known = model.global_pool in ("token", "avg") or (model.global_pool == "map" and model.num_prefix_tokens == 0)
    if not plain or activation is None or not computes_rope(model) or not known:
        return None
    assert CLASSES[captured["class"].__name__], name
    arguments = {key: value for key, value in captured["arguments"].items() if key not in APART | LOADING}
    traits = [name, CLASSES[captured["class"].__name__], block.attn.num_heads, activation, f"{block.norm1.eps:g}", gate(model)]
    sizes = [model.embed_dim, len(model.blocks), model.patch_embed.patch_size[0], model.patch_embed.img_size[0]]
    return "\t".join(str(field) for field in traits + sizes + [json.dumps(arguments, separators=(",", ":"))])


if __name__ == "__main__":
    print("# Written by scripts/list_timm_architectures.py from timm", timm.__version__)
    for module in MODULES:
        capture(module)
    for module in MODULES:
        for name in list_models(module=module):
            found = line(name)
            if found:
                print(found)
