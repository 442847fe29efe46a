#!/usr/bin/env python3
"""Compares bella with timm, transformers and open_clip on folders that these packages write: a tiny random network of every
architecture of src/model/vit/architectures.tsv, and of the variants of arguments and configs below. Each folder is read back by its
own package, whose features of two images go beside the weights as reference.safetensors; `bella inspect` compares itself with that.

    pip install torch timm transformers open_clip_torch safetensors
    python scripts/compare_folders.py target/release/bella [FOLDER]     # FOLDER keeps the networks; a temporary one otherwise

It prints a line for each folder: agreed with the relative difference, or refused and why; and at the end the largest difference.
Measured with timm 1.0.31, transformers 5.24, open_clip 3.3: see results/fidelity.md.
"""

import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import open_clip
import timm
import torch
import transformers as hf
from safetensors.torch import save_file
from timm.models._hub import save_for_hf

SIZE = 16
TIMM = dict(img_size=SIZE, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0, num_classes=3)
HF = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=SIZE, patch_size=4)
MLP = dict(intermediate_size=32)
ARCHITECTURES = Path(__file__).parent.parent / "src" / "model" / "vit" / "architectures.tsv"

# architecture, arguments over the small ones
ARGUMENTS = [
    ("vit_base_patch16_224", dict(global_pool="avg")),
    ("vit_base_patch16_224", dict(global_pool="avg", fc_norm=False)),
    ("vit_base_patch16_224", dict(fc_norm=True)),
    ("vit_base_patch16_224", dict(class_token=False, global_pool="avg")),
    ("vit_base_patch16_224", dict(class_token=False, global_pool="map")),
    ("vit_base_patch16_224", dict(global_pool="map")),
    ("vit_base_patch16_224", dict(global_pool="")),
    ("vit_base_patch16_224", dict(global_pool="avgmax")),
    ("vit_base_patch16_224", dict(qkv_bias=False, init_values=0.1, reg_tokens=2)),
    ("vit_base_patch16_224", dict(reg_tokens=2, no_embed_class=True)),
    ("vit_base_patch16_224", dict(pre_norm=True, num_classes=0)),
    ("vit_base_patch16_224", dict(scale_attn_norm=True, scale_mlp_norm=True)),
    ("vit_base_patch16_224", dict(act_layer="quick_gelu")),
    ("vit_base_patch16_224", dict(qk_norm=True)),
    ("vit_base_patch16_224", dict(final_norm=False)),
    ("vit_base_patch16_siglip_224", dict(global_pool="avg")),
    ("vit_base_patch16_reg4_gap_256", dict(global_pool="map")),
    ("beit_base_patch16_224", dict(swiglu_mlp=True)),
    ("beit_base_patch16_224", dict(scale_mlp=True, global_pool="token")),
    ("beit_base_patch16_224", dict(use_rel_pos_bias=False, use_abs_pos_emb=True, qkv_bias=False)),
    ("beit_base_patch16_224", dict(use_shared_rel_pos_bias=True, use_rel_pos_bias=False, init_values=0.0)),
    ("beit_base_patch16_224", dict(use_fc_norm=False)),
    ("eva02_base_patch14_224", dict(swiglu_mlp=False)),
    ("eva02_base_patch14_224", dict(swiglu_mlp=False, scale_mlp=False, global_pool="token")),
    ("eva02_base_patch14_224", dict(scale_mlp=False)),
    ("eva02_base_patch14_224", dict(qkv_fused=True, num_reg_tokens=2)),
    ("eva02_base_patch14_224", dict(use_rot_pos_emb=False)),
    ("eva02_base_patch14_224", dict(rope_temperature=100.0)),
    ("eva02_base_patch14_224", dict(use_pre_transformer_norm=True, use_fc_norm=False)),
    ("eva02_base_patch14_224", dict(class_token=False, global_pool="map")),
    ("eva_giant_patch14_224", dict(scale_attn_inner=True)),
    ("eva_giant_patch14_224", dict(class_token=False, global_pool="map")),
    ("eva_giant_patch14_224", dict(qk_norm=True)),
    ("vit_small_patch16_dinov3", dict(qkv_bias=True, swiglu_mlp=True)),
    ("vit_small_patch16_dinov3", dict(global_pool="token", num_reg_tokens=0)),
    ("vit_small_patch16_dinov3", dict(rope_rotate_half=False)),
    ("vit_base_patch32_clip_quickgelu_224", dict(act_layer=None)),
    ("vit_base_patch16_siglip_224", dict(img_size=18)),
]


def randomised(model):
    """Every parameter random, so that none of them can be left out unnoticed."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.5 if parameter.dim() < 2 else 0.3))
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return model.eval()


def pixels(size=SIZE):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(size))


def reference(folder, features, size=SIZE):
    with torch.no_grad():
        found = features(pixels(size))
    save_file({"pixels": pixels(size), "features": found.contiguous()}, folder / "reference.safetensors")


def timm_folder(folder, architecture, more):
    """As `timm` saves it, and as it reads it back."""
    # open_clip's releases of SigLIP and the rest have their sizes in the architecture; the small ones are arguments.
    arguments = {**TIMM, **more}
    size = arguments["img_size"]
    # `create_model` leaves out what is null, and a config's arguments do not.
    model = randomised(timm.create_model(architecture, **arguments))
    save_for_hf(model, folder, model_args=arguments, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= dict(input_size=[3, size, size], fixed_input_size=True)
    (folder / "config.json").write_text(json.dumps(config))
    again = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    with torch.no_grad():
        assert None in more.values() or torch.equal(again(pixels(size)), model(pixels(size))), architecture
    if hasattr(again, "dist_token"):
        return reference(folder, lambda x: again.forward_features(x)[:, :2].flatten(1))
    reference(folder, lambda x: again.forward_head(again.forward_features(x), pre_logits=True), size)


def timms():
    names = [line.split("\t")[0] for line in ARCHITECTURES.read_text().splitlines() if not line.startswith("#")]
    for architecture, more in ARGUMENTS + [(name, {}) for name in names]:
        shown = ",".join(f"{key}={value}" for key, value in more.items())
        yield f"timm {architecture} {shown}", lambda folder, a=architecture, m=more: timm_folder(folder, a, m)


def saved(folder, model, features):
    randomised(model).save_pretrained(folder)
    again = type(model).from_pretrained(folder).eval()
    config = again.config.to_dict()
    reference(folder, lambda x: features(again, x), config.get("vision_config", config)["image_size"])


def transformers():
    token = lambda part: lambda m, x: (getattr(m, part) if part else m)(x).last_hidden_state[:, 0]
    pooled = lambda part: lambda m, x: (getattr(m, part) if part else m)(x).pooler_output
    one = []
    for bias in [True, False]:
        one.append((hf.ViTModel(hf.ViTConfig(**HF, **MLP, qkv_bias=bias)), token("")))
        one.append((hf.ViTForImageClassification(hf.ViTConfig(**HF, **MLP, qkv_bias=bias)), token("vit")))
        one.append((hf.DeiTForImageClassification(hf.DeiTConfig(**HF, **MLP, qkv_bias=bias)), token("deit")))
        for swiglu in [True, False]:
            config = dict(**HF, mlp_ratio=3, qkv_bias=bias, use_swiglu_ffn=swiglu)
            one.append((hf.Dinov2Model(hf.Dinov2Config(**config)), pooled("")))
            for registers in [1, 4]:
                config = hf.Dinov2WithRegistersConfig(**config, num_register_tokens=registers)
                one.append((hf.Dinov2WithRegistersModel(config), pooled("")))
                config = config.to_dict()
                config = {key: config[key] for key in [*HF, "mlp_ratio", "qkv_bias", "use_swiglu_ffn"]}
    for act in ["gelu_new", "quick_gelu", "silu"]:
        one.append((hf.ViTModel(hf.ViTConfig(**HF, **MLP, hidden_act=act)), token("")))
    for own, shared, absolute, mean, scale in [
        (True, False, False, True, 0.1), (False, True, True, False, 0.1), (False, False, True, True, 0.0), (True, True, True, True, 0.1),
    ]:
        config = dict(use_relative_position_bias=own, use_shared_relative_position_bias=shared,
                      use_absolute_position_embeddings=absolute, use_mean_pooling=mean, layer_scale_init_value=scale)
        one.append((hf.BeitModel(hf.BeitConfig(**HF, **MLP, **config)), pooled("")))
        config = hf.Data2VecVisionConfig(**HF, **MLP, **config, num_labels=3)
        one.append((hf.Data2VecVisionForImageClassification(config), pooled("data2vec_vision")))
    for registers, gated, key in [(0, False, False), (4, True, False), (2, False, True)]:
        config = hf.DINOv3ViTConfig(**HF, **MLP, num_register_tokens=registers, use_gated_mlp=gated, key_bias=key)
        one.append((hf.DINOv3ViTModel(config), pooled("")))
    one.append((hf.CLIPVisionModel(hf.CLIPVisionConfig(**HF, **MLP)), pooled("")))
    config = hf.CLIPVisionConfig(**HF, **MLP, projection_dim=12, hidden_act="gelu")
    one.append((hf.CLIPVisionModelWithProjection(config), lambda m, x: m(x).image_embeds))
    for size in [SIZE, 18]:
        one.append((hf.SiglipVisionModel(hf.SiglipVisionConfig(**{**HF, "image_size": size}, **MLP)), pooled("")))
    two = dict(vocab_size=20, max_position_embeddings=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, **MLP)
    clip = hf.CLIPConfig(text_config=dict(two, eos_token_id=19), vision_config=dict(**HF, **MLP), projection_dim=12)
    one.append((hf.CLIPModel(clip), lambda m, x: m.visual_projection(m.vision_model(x).pooler_output)))
    siglip = hf.SiglipConfig(text_config=dict(two), vision_config=dict(**HF, **MLP))
    one.append((hf.SiglipModel(siglip), pooled("vision_model")))
    one.append((hf.Siglip2VisionModel(hf.Siglip2VisionConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                             patch_size=4, num_patches=16, **MLP)), None))
    for model, features in one:
        config = model.config
        usual = type(config)().to_dict()
        own = {k: v for k, v in config.to_dict().items() if k not in {**HF, **MLP} and v != usual.get(k)}
        shown = json.dumps({k: v for k, v in own.items() if isinstance(v, (bool, int, float, str))})
        if features is None:
            yield f"transformers {type(model).__name__} {shown}", lambda folder, m=model: m.save_pretrained(folder)
        else:
            yield f"transformers {type(model).__name__} {shown}", lambda folder, m=model, f=features: saved(folder, m, f)


def open_clip_folder(folder, config, preprocess):
    own = {key: value for key, value in config.items() if key != "custom_text"}
    kind = open_clip.CustomTextCLIP if config.get("custom_text") else open_clip.CLIP
    model = randomised(kind(**own))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=config, preprocess_cfg=preprocess)))
    reference(folder, model.encode_image, config["vision_cfg"]["image_size"])


def open_clips():
    preprocess = dict(size=SIZE, mode="RGB", mean=[0.5] * 3, std=[0.25] * 3, interpolation="bicubic")
    text = dict(context_length=9, vocab_size=20, width=12, heads=3, layers=2, mlp_ratio=2.0)
    vision = dict(layers=2, width=16, head_width=8, mlp_ratio=2.0, patch_size=4, image_size=SIZE)
    configs = [dict(embed_dim=12, vision_cfg={**vision, **more}, text_cfg=text) for more in [
        {}, dict(no_ln_pre=True), dict(norm_kwargs=dict(eps=1e-6)), dict(act_kwargs=dict(approximate="tanh")),
        dict(pos_embed_type="sin_cos_2d"), dict(pool_type="avg"), dict(final_ln_after_pool=True), dict(ls_init_value=0.1),
        dict(attentional_pool=True, attn_pooler_heads=4), dict(block_type="custom", scale_fc=True), dict(patch_dropout=0.5)]]
    # Configs name an architecture of timm and no sizes, so these are timm's own small ones.
    for name, width, pool in [("test_vit", 64, "token"), ("test_vit", 64, "avg"), ("test_vit", 64, ""), ("test_vit2", 64, "avg")]:
        for projection in ["linear", "none", None, "mlp"]:
            for custom in [True, False]:
                tower = dict(image_size=160, timm_model_name=name, timm_pool=pool, timm_proj=projection)
                embedding = width if projection == "none" else 12
                configs.append(dict(embed_dim=embedding, vision_cfg=tower, text_cfg=text, custom_text=custom))
    for config in configs:
        shown = {k: v for k, v in config["vision_cfg"].items() if k not in vision or vision[k] != v}
        yield f"open_clip {json.dumps(shown)} custom_text={config.get('custom_text', False)}", (
            lambda folder, c=config: open_clip_folder(folder, c, preprocess))


def inspected(bella, folder):
    command = [bella, "inspect", str(folder)]
    output = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"agree with it: relative difference ([0-9.e+-]+)", output.stdout)
    return (float(found[1]), "") if found else (None, (output.stderr or output.stdout).strip().splitlines()[-1])


def main():
    warnings.filterwarnings("ignore")
    hf.logging.set_verbosity_error()
    bella, keep = sys.argv[1], sys.argv[2:]
    largest, agreed, refused = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(keep[0] if keep else temporary)
        for number, (name, write) in enumerate([*transformers(), *open_clips(), *timms()]):
            folder = root / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                write(folder)
            except Exception as error:
                print(f"not written by its package: {name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
                continue
            difference, why = inspected(bella, folder)
            if difference is None:
                refused += 1
                print(f"refused: {name}: {why.replace(str(folder), '')}")
            else:
                agreed, largest = agreed + 1, max(largest, difference)
                print(f"{difference:.1e} {name}", flush=True)
    print(f"{agreed} agree, largest difference {largest:.1e}; {refused} refused")


if __name__ == "__main__":
    main()
