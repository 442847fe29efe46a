"""Hugging Face's CLIP and ViT models as modules whose archives bella reads: OpenAI's names for CLIP, timm's for ViT.

Both spellings of their parameters are known, that of version 5 of transformers and the one before.
Needs: torch, transformers; for ViT also timm.
"""

import re
from functools import partial

import torch
from torch import nn

from clip_modules import Clip, ImageShape, TextShape, TowerShape

ACTIVATIONS = {"quick_gelu": "quick-gelu", "gelu": "gelu"}

# a parameter of a block: Hugging Face's name -> OpenAI's; q, k and v are joined afterwards
CLIP_BLOCK = [
    (r"^encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(weight|bias)$", r"transformer.resblocks.\1.attn.\2_\3"),
    (r"^encoder\.layers\.(\d+)\.self_attn\.out_proj\.", r"transformer.resblocks.\1.attn.out_proj."),
    (r"^encoder\.layers\.(\d+)\.layer_norm([12])\.", r"transformer.resblocks.\1.ln_\2."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc1\.", r"transformer.resblocks.\1.mlp.c_fc."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc2\.", r"transformer.resblocks.\1.mlp.c_proj."),
]
CLIP_IMAGE = [
    (r"^embeddings\.class_embedding$", "class_embedding"),
    (r"^embeddings\.patch_embedding\.weight$", "conv1.weight"),
    (r"^embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^pre_layrnorm\.", "ln_pre."),  # spelt so by the library
    (r"^post_layernorm\.", "ln_post."),
]
CLIP_TEXT = [
    (r"^embeddings\.token_embedding\.weight$", "token_embedding.weight"),
    (r"^embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^final_layer_norm\.", "ln_final."),
]
LAYER = r"^(?:vit\.|deit\.)?(?:encoder\.layer|layers)\.(\d+)\."
TOP = r"^(?:vit\.|deit\.)?"
VIT = [
    (TOP + r"embeddings\.cls_token$", "cls_token"),
    (TOP + r"embeddings\.position_embeddings$", "pos_embed"),
    (TOP + r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (LAYER + r"layernorm_before\.", r"blocks.\1.norm1."),
    (LAYER + r"layernorm_after\.", r"blocks.\1.norm2."),
    (LAYER + r"attention\.(?:attention\.)?(?:(q)uery|(k)ey|(v)alue)\.(weight|bias)$", r"blocks.\1.attn.\2\3\4_\5"),
    (LAYER + r"attention\.([qkv])_proj\.(weight|bias)$", r"blocks.\1.attn.\2_\3"),
    (LAYER + r"attention\.(?:output\.dense|o_proj)\.", r"blocks.\1.attn.proj."),
    (LAYER + r"(?:intermediate\.dense|mlp\.fc1)\.", r"blocks.\1.mlp.fc1."),
    (LAYER + r"(?:output\.dense|mlp\.fc2)\.", r"blocks.\1.mlp.fc2."),
    (TOP + r"layernorm\.", "norm."),
    (r"^classifier\.", "head."),
]


def renamed(state, rules):
    """Apply the first rule that fits each name; a name that none fits is an error."""
    result = {}
    for name, tensor in state.items():
        for pattern, replacement in rules:
            new, count = re.subn(pattern, replacement, name)
            if count:
                result[new] = tensor
                break
        else:
            raise SystemExit(f"{name}: a parameter that this kind of model does not have")
    return result


def joined(state, weight, bias):
    """Replace `….attn.q_weight` and the like by one stacked matrix named `….attn.{weight}`."""
    result = {name: tensor for name, tensor in state.items() if not re.search(r"\.attn\.[qkv]_(weight|bias)$", name)}
    for name in state:
        for kind, new in (("weight", weight), ("bias", bias)):
            if name.endswith(f".attn.q_{kind}"):
                start = name.removesuffix(f"q_{kind}")
                result[start + new] = torch.cat([state[f"{start}{part}_{kind}"] for part in "qkv"])
    return result


def tower_shape(config, output):
    activation = ACTIVATIONS.get(config.hidden_act)
    if activation is None:
        raise SystemExit(f"hidden_act = {config.hidden_act}: only {', '.join(ACTIVATIONS)} are known here")
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)
    return TowerShape(*sizes, output, eps=config.layer_norm_eps, activation=activation)


def tower(state, rules):
    return joined(renamed(state, rules + CLIP_BLOCK), "in_proj_weight", "in_proj_bias")


def clip_of(model):
    """The same CLIP under OpenAI's names, both towers."""
    config, words = model.config.vision_config, model.config.text_config
    output = model.config.projection_dim
    clip = Clip(
        ImageShape(config.image_size, config.patch_size),
        tower_shape(config, output),
        TextShape(words.vocab_size, words.max_position_embeddings),
        tower_shape(words, output),
    )
    image = tower(model.vision_model.state_dict(), CLIP_IMAGE)
    state = {f"visual.{name}": tensor for name, tensor in image.items()} | tower(model.text_model.state_dict(), CLIP_TEXT)
    state["visual.proj"] = model.visual_projection.weight.t()
    state["text_projection"] = model.text_projection.weight.t()
    state["logit_scale"] = model.logit_scale
    missing, unexpected = clip.load_state_dict(state, strict=False)
    buffers = {"input_resolution", "context_length", "vocab_size"}
    if unexpected or set(missing) - buffers:
        raise SystemExit(f"parameters left over: {unexpected}; missing: {sorted(set(missing) - buffers)}")
    return clip.eval()


def vit_of(model):
    """The same ViT with its classifier under timm's names."""
    from timm.models.vision_transformer import VisionTransformer

    config = model.config
    vit = VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        num_classes=config.num_labels,
        embed_dim=config.hidden_size,
        depth=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        mlp_ratio=config.intermediate_size / config.hidden_size,
        qkv_bias=config.qkv_bias,
        norm_layer=partial(nn.LayerNorm, eps=config.layer_norm_eps),
        act_layer={"gelu": nn.GELU}[config.hidden_act],
    )
    vit.load_state_dict(joined(renamed(model.state_dict(), VIT), "qkv.weight", "qkv.bias"))
    return vit.eval()
