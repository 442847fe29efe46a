#!/usr/bin/env python3
"""Writes tests/fixtures/authors: small random networks under the names that their authors use in the files that they publish
(`.pth`), and the features that timm computes of them (features.safetensors).

timm reads such files itself. Its `checkpoint_filter_fn` must turn each of them into the network that it was made of, so these
names are the authors', not ours.

    pip install torch timm safetensors
    python scripts/make_author_fixtures.py
"""

import importlib
import re
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

from make_folder_fixtures import SIZE, TIMM, pixels, randomised

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors"


def renamed(state, names):
    """Renames by regular expressions, the first that fits."""
    found = {}
    for name, tensor in state.items():
        for pattern, to in names.items():
            name, count = re.subn(pattern, to, name)
            if count:
                break
        found[name] = tensor
    return found


def dinov2(state):
    state = renamed(state, {r"^reg_token$": "register_tokens"})
    if "register_tokens" in state:
        # timm has added the class token's position to the token itself.
        place = torch.linspace(-1, 1, state["cls_token"].shape[2]).view(1, 1, -1)
        state["cls_token"] = state["cls_token"] - place
        state["pos_embed"] = torch.cat([place, state["pos_embed"]], 1)
    return state | {"mask_token": torch.zeros(1, state["cls_token"].shape[2])}


def giant(state):
    return dinov2(renamed(state, {r"mlp\.fc1\.": "mlp.w12.", r"mlp\.fc2\.": "mlp.w3."}))


def dinov3(state):
    names = {r"gamma_(\d)": r"ls\1.gamma", r"mlp\.fc1_g\.": "mlp.w1.", r"mlp\.fc1_x\.": "mlp.w2.", r"^reg_token$": "storage_tokens"}
    if any("fc1_g" in name for name in state):
        names[r"mlp\.fc2\."] = "mlp.w3."
    found = {}
    for name, tensor in renamed(state, names).items():
        if name.endswith("q_bias"):
            value = state[name.replace("q_bias", "v_bias")]
            layer = name.replace("q_bias", "qkv.bias")
            # The authors store a third for the keys, whatever it is, and a mask that leaves it out.
            found[layer] = torch.cat([tensor, torch.full_like(tensor, 7.0), value])
            found[layer + "_mask"] = torch.cat([torch.ones_like(tensor), torch.zeros_like(tensor), torch.ones_like(value)])
        elif not name.endswith("v_bias"):
            found[name] = tensor
    return found | {"mask_token": torch.zeros(1, 16), "rope_embed.periods": torch.ones(2)}


def deit3(state):
    return {"model": renamed(state, {r"ls(\d)\.gamma": r"gamma_\1"})}


def mae(state):
    state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    decoder = {"decoder_embed.weight": torch.zeros(8, 16), "decoder_pos_embed": torch.zeros(1, 17, 8),
               "decoder_blocks.0.norm1.weight": torch.ones(8), "decoder_norm.weight": torch.ones(8),
               "decoder_pred.weight": torch.zeros(48, 8), "mask_token": torch.zeros(1, 1, 8)}
    return {"model": state | decoder}


def beit(state):
    index = torch.arange(17 * 17).view(17, 17)
    return {"model": state | {f"blocks.{block}.attn.relative_position_index": index for block in range(2)}}


def eva02(state):
    names = {r"mlp\.fc1_g\.": "mlp.w1.", r"mlp\.fc1_x\.": "mlp.w2.", r"mlp\.fc2\.": "mlp.w3.", r"mlp\.norm\.": "mlp.ffn_ln.",
             r"attn\.norm\.": "attn.inner_attn_ln.", r"q_proj\.bias": "q_bias", r"v_proj\.bias": "v_bias"}
    tables = {f"{at}rope.freqs_{part}": torch.zeros(16, 8) for at in ("", "blocks.0.attn.") for part in ("cos", "sin")}
    return {"module": renamed(state, names) | tables}


KINDS = {
    "dinov2": ("vit_base_patch14_dinov2", dinov2),
    "dinov2-registers": ("vit_base_patch14_reg4_dinov2", dinov2),
    "dinov2-giant": ("vit_giant_patch14_dinov2", giant),
    "dinov3": ("vit_small_patch16_dinov3_qkvb", dinov3),
    "dinov3-gated": ("vit_small_plus_patch16_dinov3_qkvb", dinov3),
    "deit3": ("deit3_base_patch16_224", deit3),
    "mae": ("vit_base_patch16_224", mae),
    "beit": ("beit_base_patch16_224", beit),
    "eva02": ("eva02_base_patch14_224", eva02),
}

# As timm's own entry of DeiT-3 calls it.
MORE = {"deit3": {"adapt_layer_scale": True}}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    reference = {"pixels": pixels(SIZE)}
    for name, (architecture, native) in KINDS.items():
        model = randomised(timm.create_model(architecture, **TIMM))
        state = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
        published = native(dict(state))
        filter_fn = importlib.import_module(type(model).__module__).checkpoint_filter_fn
        flat = lambda table: table.get("model", table.get("module", table))
        again = filter_fn({key: tensor.clone() for key, tensor in flat(published).items()}, model, **MORE.get(name, {}))
        for key in model.state_dict():
            if key.startswith("head.") and key not in again:
                continue
            difference = (again[key] - state[key]).abs().max()
            assert difference < 1e-6, (name, key, difference)
        torch.save(published, OUT / f"{name}.pth")
        with torch.no_grad():
            reference[name] = model.forward_head(model.forward_features(pixels(SIZE)), pre_logits=True).contiguous()
        print(name, (OUT / f"{name}.pth").stat().st_size // 1024, "KiB")
    save_file(reference, OUT / "features.safetensors")


if __name__ == "__main__":
    main()
