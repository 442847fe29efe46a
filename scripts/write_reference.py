#!/usr/bin/env python3
"""Writes reference.safetensors beside the weights of a checkpoint: two random images and the features that the network's own
package computes from them. bella compares its features with these when it opens the checkpoint.

    pip install torch safetensors transformers timm open_clip_torch
    python scripts/write_reference.py transformers dinov2-small/
    python scripts/write_reference.py timm vit_small_patch14_dinov2/
    python scripts/write_reference.py open_clip ViT-B-16-SigLIP/

The features are those that a classifier reads, or a projection makes: transformers' pooled output or its last tokens, timm's
output before the classifier, open_clip's image embedding before it is normalised.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def transformers_features(folder):
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    saved = (config.architectures or [""])[0]
    model = getattr(transformers, saved, transformers.AutoModel).from_pretrained(folder).eval()
    tower = model if saved.endswith("Model") else getattr(model, model.base_model_prefix, model)

    def features(x):
        if config.model_type in ("clip", "siglip", "siglip2"):
            output = model.get_image_features(x)
            return output if torch.is_tensor(output) else output.pooler_output
        if saved == "CLIPVisionModelWithProjection":
            return model(x).image_embeds
        output = tower(x)
        tokens = output.last_hidden_state
        if saved == "DeiTForImageClassificationWithTeacher":
            return tokens[:, :2].flatten(1)
        if saved.startswith("Dinov2") and saved.endswith("Classification"):
            registers = getattr(config, "num_register_tokens", 0)
            return torch.cat([tokens[:, 0], tokens[:, 1 + registers :].mean(1)], 1)
        pools = config.model_type not in ("vit", "deit", "vit_mae", "vit_msn")
        return output.pooler_output if pools else tokens[:, 0]

    return features, getattr(config, "vision_config", config).image_size


def timm_features(folder):
    import timm

    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    return lambda x: model.forward_head(model.forward_features(x), pre_logits=True), model.pretrained_cfg["input_size"][-1]


def open_clip_features(folder):
    import open_clip

    model = open_clip.create_model(f"local-dir:{folder}").eval()
    config = json.loads((Path(folder) / "open_clip_config.json").read_text())
    return model.encode_image, config["model_cfg"]["vision_cfg"].get("image_size", 224)


PACKAGES = {"transformers": transformers_features, "timm": timm_features, "open_clip": open_clip_features}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with torch.no_grad():
        features, size = PACKAGES[arguments.package](str(arguments.folder))
        pixels = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
        tensors = {"pixels": pixels, "features": features(pixels).float().contiguous()}
    save_file(tensors, arguments.folder / "reference.safetensors")
    print(f"{arguments.folder / 'reference.safetensors'}: features {list(tensors['features'].shape)}")
