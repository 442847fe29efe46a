#!/usr/bin/env python3
"""Writes tests/fixtures/folders: the smallest random network of every family that bella reads from a folder, saved by the
package that publishes it, with what that package computes on two images (reference.safetensors: pixels, features and,
where there is a classifier, logits; resized: features at another image size, with the package's own interpolation).

    pip install torch transformers timm open_clip_torch safetensors
    python scripts/make_folder_fixtures.py
"""

import json
import shutil
from pathlib import Path

import open_clip
import timm
import torch
import transformers as hf
from safetensors.torch import save_file

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "folders"
SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4)
MLP = dict(intermediate_size=32)
SIZE, OTHER, CLASSES = 16, 24, 3


def randomised(model):
    """Every parameter random, so that none of them can be left out unnoticed."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.5 if parameter.dim() < 2 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return model.eval()


def pixels(size):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(size))


def tokens():
    """Two texts of a vocabulary of 20: start, tokens, end (the largest), padding."""
    return torch.tensor([[18, 3, 4, 5, 6, 7, 8, 9, 19], [18, 11, 2, 19, 0, 0, 0, 0, 0]])


def write(name, model, features, logits=None, resized=None, preprocessing=None, text=None):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with torch.no_grad():
        if isinstance(model, hf.PreTrainedModel):
            model.save_pretrained(folder)
        else:
            save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
        if preprocessing is not None:
            (folder / preprocessing[0]).write_text(json.dumps(preprocessing[1], indent=2) + "\n")
        reference = {"pixels": pixels(SIZE), "features": features(pixels(SIZE))}
        if logits is not None:
            reference["logits"] = logits(pixels(SIZE))
        if text is not None:
            reference |= {"tokens": tokens(), "text_features": text(tokens())}
        if resized is not None:
            reference |= {"resized_pixels": pixels(OTHER), "resized_features": resized(pixels(OTHER))}
    save_file({k: v.detach().contiguous() for k, v in reference.items()}, folder / "reference.safetensors")


def half(width):
    return dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=2, size={"height": width, "width": width})


def transformers():
    vit = randomised(hf.ViTForImageClassification(hf.ViTConfig(**SMALL, **MLP, num_labels=CLASSES)))
    hidden = lambda x, **more: vit.vit(x, **more).last_hidden_state[:, 0]
    write("hf-vit", vit, hidden, lambda x: vit(x).logits,
          lambda x: hidden(x, interpolate_pos_encoding=True), ("preprocessor_config.json", half(SIZE)))
    deit = randomised(hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**SMALL, **MLP, num_labels=CLASSES)))
    write("hf-deit-distilled", deit, lambda x: deit.deit(x).last_hidden_state[:, :2].flatten(1), lambda x: deit(x).logits)
    mae = randomised(hf.ViTMAEModel(hf.ViTMAEConfig(**SMALL, **MLP, mask_ratio=0.0)))
    noise = torch.arange(16.0).expand(2, 16)
    write("hf-mae", mae, lambda x: mae(x, noise=noise).last_hidden_state[:, 0])
    two = {**SMALL, "mlp_ratio": 2}
    dino = randomised(hf.Dinov2Model(hf.Dinov2Config(**two)))
    write("hf-dinov2", dino, lambda x: dino(x).pooler_output, resized=lambda x: dino(x).pooler_output)
    gated = randomised(hf.Dinov2Model(hf.Dinov2Config(**two, use_swiglu_ffn=True)))
    write("hf-dinov2-swiglu", gated, lambda x: gated(x).pooler_output)
    registers = hf.Dinov2WithRegistersConfig(**two, num_register_tokens=3, num_labels=CLASSES)
    registers = randomised(hf.Dinov2WithRegistersForImageClassification(registers))

    def both(x):
        tokens = registers.dinov2_with_registers(x).last_hidden_state
        return torch.cat([tokens[:, 0], tokens[:, 4:].mean(1)], 1)

    write("hf-dinov2-registers", registers, both, lambda x: registers(x).logits)
    for name, more in [("hf-dinov3", {}), ("hf-dinov3-gated", dict(use_gated_mlp=True, hidden_act="silu"))]:
        dino = randomised(hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**SMALL, **MLP, num_register_tokens=3, **more)))
        write(name, dino, lambda x: dino(x).pooler_output, resized=lambda x: dino(x).pooler_output)
    clip = hf.CLIPVisionConfig(**SMALL, **MLP, projection_dim=12)
    clip = randomised(hf.CLIPVisionModelWithProjection(clip))
    write("hf-clip", clip, lambda x: clip(x).image_embeds)
    text = dict(vocab_size=20, max_position_embeddings=9, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
                intermediate_size=24, projection_dim=12, eos_token_id=19)
    both = randomised(hf.CLIPModel(hf.CLIPConfig(
        text_config=text, vision_config=dict(**SMALL, **MLP, projection_dim=12), projection_dim=12)))
    write("hf-clip-both", both, lambda x: both.visual_projection(both.vision_model(x).pooler_output),
          text=lambda ids: both.text_projection(both.text_model(ids).pooler_output))
    siglip = randomised(hf.SiglipVisionModel(hf.SiglipVisionConfig(**SMALL, **MLP)))
    write("hf-siglip", siglip, lambda x: siglip(x).pooler_output)


def timms():
    small = dict(img_size=SIZE, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0, num_classes=CLASSES)
    kinds = {
        "timm-vit": ("vit_base_patch16_224", {}),
        "timm-deit3": ("deit3_base_patch16_224", {}),
        "timm-mean": ("vit_base_patch16_224", dict(global_pool="avg")),
        "timm-dinov2-registers": ("vit_base_patch14_reg4_dinov2", {}),
        "timm-dinov3": ("vit_small_patch16_dinov3", {}),
        "timm-siglip": ("vit_base_patch16_siglip_224", {}),
    }
    for name, (architecture, more) in kinds.items():
        model = randomised(timm.create_model(architecture, **small, **more))
        features = lambda x: model.forward_head(model.forward_features(x), pre_logits=True)
        config = dict(architecture=architecture, num_classes=CLASSES, global_pool=model.global_pool, model_args={**small, **more},
                      pretrained_cfg=dict(input_size=[3, SIZE, SIZE], interpolation="bicubic",
                                          mean=[0.5] * 3, std=[0.5] * 3))
        write(name, model, features, model, preprocessing=("config.json", config))


def open_clips():
    vision = dict(layers=2, width=16, head_width=8, mlp_ratio=2.0, patch_size=4, image_size=SIZE)
    text = dict(context_length=9, vocab_size=20, width=12, heads=3, layers=2, mlp_ratio=2.0)
    config = dict(embed_dim=12, quick_gelu=True, vision_cfg=vision, text_cfg=text)
    model = randomised(open_clip.CLIP(12, vision, text, quick_gelu=True))
    preprocess = dict(size=SIZE, mode="RGB", mean=[0.5] * 3, std=[0.25] * 3, interpolation="bicubic")
    write("open-clip", model, model.encode_image, text=model.encode_text,
          preprocessing=("open_clip_config.json", dict(model_cfg=config, preprocess_cfg=preprocess)))


if __name__ == "__main__":
    transformers()
    timms()
    open_clips()
    for folder in sorted(OUT.iterdir()):
        print(folder.name, sum(file.stat().st_size for file in folder.iterdir()) // 1024, "KiB")
