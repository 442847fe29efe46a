#!/usr/bin/env python3
"""Writes tests/fixtures/folders: the smallest random network of every family that bella reads from a folder, saved by the
package that publishes it, with what that package computes on two images (reference.safetensors: pixels, features and,
where there is a classifier, logits; resized: features at another image size, with the package's own interpolation;
low_rank: the gradients of a weighted sum of the features by low-rank updates of two layers).

    pip install torch transformers timm open_clip_torch safetensors sentencepiece protobuf
    python scripts/make_folder_fixtures.py
"""

import copy
import io
import json
import shutil
import sys
import tempfile
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
    images = 2 if size == SIZE else 1
    return torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(size))


def tokens():
    """Two texts of a vocabulary of 20: start, tokens, end (the largest), padding."""
    return torch.tensor([[18, 3, 4, 5, 6, 7, 8, 9, 19], [18, 11, 2, 19, 0, 0, 0, 0, 0]])


RANK, SCALE = 2, 0.5


def low_rank(model, features, layers):
    """Gradients of sum(coefficients * features) by A and B, where a layer's weight is W + SCALE B A. `layers` maps bella's
    names to those of the package."""
    generator = torch.Generator().manual_seed(7)
    weights, found = {}, {}
    for ours, theirs in layers.items():
        weight = model.get_parameter(theirs).detach()
        a = (torch.randn(RANK, weight.shape[1], generator=generator) * 0.3).requires_grad_()
        b = (torch.randn(weight.shape[0], RANK, generator=generator) * 0.3).requires_grad_()
        weights[theirs] = weight + SCALE * b @ a
        found[ours] = (a, b)
    original = {name: model.get_parameter(name) for name in weights}

    def put(values):
        for name, value in values.items():
            path, leaf = name.rsplit(".", 1)
            module = model.get_submodule(path)
            del module._parameters[leaf]
            if isinstance(value, torch.nn.Parameter):
                module.__dict__.pop(leaf, None)
                module._parameters[leaf] = value
            else:
                module.__dict__[leaf] = value
                module._parameters[leaf] = None

    put(weights)
    output = features(pixels(SIZE))
    coefficients = torch.randn(output.shape, generator=generator)
    leaves = [leaf for pair in found.values() for leaf in pair]
    gradients = iter(torch.autograd.grad((output * coefficients).sum(), leaves))
    put(original)
    tensors = {"coefficients": coefficients}
    for ours, (a, b) in found.items():
        tensors |= {f"{ours}.A": a, f"{ours}.B": b}
        tensors |= {f"{ours}.A.gradient": next(gradients), f"{ours}.B.gradient": next(gradients)}
    return tensors


# What tests/library/folders makes zero-shot heads of: case, punctuation, unknown and replaced characters, a text that is cut.
NAMES = ["Cat", "colt's  foot", "polka-dotted_frog", "7 ships", "zebra", "\ufb01eld of \uff21", "(a) dog!", "a", "Truck",
         "the " * 20 + "maple tree"]
TEMPLATE = "A photo of a `{}`."
CORPUS = ["a photo of a cat", "a photo of a dog at the farm", "a blurry photo of the colt's foot", "the 7 ships of the fleet",
          "a maple tree in the sun", "origami of a truck", "a cat and a dog", "the photo of the foot of a tree"]


def prompts():
    return [TEMPLATE.replace("{}", name) for name in NAMES]


def siglip_tokenizer(folder, context):
    """SigLIP's: pieces of sentencepiece, in the form of the published folders. Returns the package's own tokenizer."""
    import sentencepiece
    from transformers.convert_slow_tokenizer import T5Converter

    with tempfile.TemporaryDirectory() as temporary:
        rules = Path(temporary) / "rules.tsv"
        rules.write_text("FF41\t61\nFB01\t66 69\n")  # two of the characters that the published model replaces
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=36, model_type="unigram", pad_id=-1, bos_id=-1,
            eos_id=0, unk_id=1, eos_piece="</s>", normalization_rule_tsv=str(rules), num_threads=1, minloglevel=2)
        (Path(temporary) / "spiece.model").write_bytes(model.getvalue())
        own = hf.SiglipTokenizer(str(Path(temporary) / "spiece.model"), model_max_length=context)
        own._extra_ids = 0
        T5Converter(own).converted().save(str(folder / "tokenizer.json"))
    settings = dict(tokenizer_class="SiglipTokenizer", pad_token="</s>", eos_token="</s>", model_max_length=context)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return own


def siglip2_tokenizer(folder, context):
    """SigLIP 2's: byte pairs of Gemma, padded on the right. Returns the package's own tokenizer, which lowers case."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = sorted(set("".join(CORPUS).replace(" ", "\u2581")))
    merges = [("a", "t"), ("c", "at"), ("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o"), ("\u2581", "a"), ("o", "f")]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>"] + letters + ["".join(pair) for pair in merges]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Replace("\u2581", " ")
    tokenizer.post_processor = processors.TemplateProcessing("$A <eos>", special_tokens=[("<eos>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = dict(tokenizer_class="GemmaTokenizer", pad_token={"content": "<pad>"}, eos_token="<eos>", bos_token="<bos>",
                    unk_token="<unk>", padding_side="right", model_max_length=context)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    # The tokenizer of its class, around the file.
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
    own = hf.Siglip2Tokenizer(vocab=tokenizer.get_vocab(), merges=merges, padding_side="right", model_max_length=context)
    assert str(own._tokenizer.normalizer) == str(tokenizer.normalizer), (own._tokenizer.normalizer, tokenizer.normalizer)
    own._tokenizer.post_processor = tokenizer.post_processor
    return own


def zero_shot(model, tokenizer, context):
    """The package's logits of the prompts as classes of the images."""
    ids = tokenizer(prompts(), padding="max_length", truncation=True, max_length=context, return_tensors="pt").input_ids
    assert ids.shape == (len(NAMES), context), ids.shape
    logits = model(pixel_values=pixels(SIZE), input_ids=ids).logits_per_image
    return {"prompt_tokens": ids, "zero_shot_logits": logits}


def write(name, model, features, logits=None, resized=None, preprocessing=None, text=None, gradients=None,
          more=None):
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        return
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
            ids, text = text if isinstance(text, tuple) else (tokens(), text)
            reference |= {"tokens": ids, "text_features": text(ids)}
        if more is not None:
            reference |= more(folder)
        if resized is not None:
            reference |= {"resized_pixels": pixels(OTHER), "resized_features": resized(pixels(OTHER))}
    if gradients is not None:
        reference |= low_rank(model, features, gradients)
    save_file({k: v.detach().contiguous() for k, v in reference.items()}, folder / "reference.safetensors")


def half(width):
    return dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=2, size={"height": width, "width": width})


def transformers():
    vit = randomised(hf.ViTForImageClassification(hf.ViTConfig(**SMALL, **MLP, num_labels=CLASSES)))
    hidden = lambda x, **more: vit.vit(x, **more).last_hidden_state[:, 0]
    write("hf-vit", vit, hidden, lambda x: vit(x).logits,
          lambda x: hidden(x, interpolate_pos_encoding=True), ("preprocessor_config.json", half(SIZE)))
    deit = randomised(hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**SMALL, **MLP, num_labels=CLASSES)))
    two = lambda x, **more: deit.deit(x, **more).last_hidden_state[:, :2].flatten(1)
    write("hf-deit-distilled", deit, two, lambda x: deit(x).logits, lambda x: two(x, interpolate_pos_encoding=True))
    mae = randomised(hf.ViTMAEModel(hf.ViTMAEConfig(**SMALL, **MLP, mask_ratio=0.0)))
    kept = lambda x: torch.arange(float(x.shape[2] // 4) ** 2).expand(len(x), -1)
    token = lambda x, **more: mae(x, noise=kept(x), **more).last_hidden_state[:, 0]
    write("hf-mae", mae, token, resized=lambda x: token(x, interpolate_pos_encoding=True))
    # Its classifier is saved with the prefix `vit.` before all names but those of blocks.
    msn = randomised(hf.ViTMSNForImageClassification(hf.ViTMSNConfig(**SMALL, **MLP, num_labels=CLASSES)))
    first = lambda x, **more: msn.vit(x, **more).last_hidden_state[:, 0]
    write("hf-msn", msn, first, lambda x: msn(x).logits, lambda x: first(x, interpolate_pos_encoding=True))
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

    write("hf-dinov2-registers", registers, both, lambda x: registers(x).logits, both)
    for name, more in [("hf-dinov3", {}), ("hf-dinov3-gated", dict(use_gated_mlp=True, hidden_act="silu"))]:
        dino = randomised(hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**SMALL, **MLP, num_register_tokens=3, **more)))
        write(name, dino, lambda x: dino(x).pooler_output, resized=lambda x: dino(x).pooler_output)
    clip = hf.CLIPVisionConfig(**SMALL, **MLP, projection_dim=12)
    clip = randomised(hf.CLIPVisionModelWithProjection(clip))
    write("hf-clip", clip, lambda x: clip(x).image_embeds,
          resized=lambda x: clip(x, interpolate_pos_encoding=True).image_embeds)
    text = dict(vocab_size=20, max_position_embeddings=9, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
                intermediate_size=24, projection_dim=12, eos_token_id=19)
    both = randomised(hf.CLIPModel(hf.CLIPConfig(
        text_config=text, vision_config=dict(**SMALL, **MLP, projection_dim=12), projection_dim=12)))
    write("hf-clip-both", both, lambda x: both.visual_projection(both.vision_model(x).pooler_output),
          text=lambda ids: both.text_projection(both.text_model(ids).pooler_output))
    siglip = randomised(hf.SiglipVisionModel(hf.SiglipVisionConfig(**SMALL, **MLP)))
    write("hf-siglip", siglip, lambda x: siglip(x).pooler_output,
          resized=lambda x: siglip(x, interpolate_pos_encoding=True).pooler_output)
    relatives()
    siglips()


def relatives():
    own, all_blocks = dict(use_relative_position_bias=True), dict(use_shared_relative_position_bias=True)
    class_token = dict(use_mean_pooling=False, use_absolute_position_embeddings=True, use_mask_token=True)
    beit = randomised(hf.BeitForImageClassification(hf.BeitConfig(**SMALL, **MLP, **own, num_labels=CLASSES)))
    pooled = lambda model, x, **more: model(x, **more).pooler_output
    # What the adapted weights of the second block pull at: the relative bias of the first, and its own attention.
    layer = "beit.layers.1.mlp.fc"
    write("hf-beit", beit, lambda x: pooled(beit.beit, x), lambda x: beit(x).logits, lambda x: pooled(beit.beit, x),
          gradients={"blocks.1.mlp.fc": f"{layer}1.weight", "blocks.0.attn.proj": "beit.layers.0.attention.o_proj.weight"})
    shared = randomised(hf.BeitModel(hf.BeitConfig(**SMALL, **MLP, **all_blocks, **class_token)))
    write("hf-beit-shared", shared, lambda x: pooled(shared, x),
          resized=lambda x: pooled(shared, x, interpolate_pos_encoding=True))
    config = hf.Data2VecVisionConfig(**SMALL, **MLP, **own, num_labels=CLASSES)
    data2vec = randomised(hf.Data2VecVisionForImageClassification(config))
    write("hf-data2vec", data2vec, lambda x: pooled(data2vec.data2vec_vision, x), lambda x: data2vec(x).logits,
          lambda x: pooled(data2vec.data2vec_vision, x))


def siglips():
    kinds = [("hf-siglip-both", 12, 40, siglip_tokenizer), ("hf-siglip2-both", 16, 48, siglip2_tokenizer)]
    for name, context, vocabulary, tokenizer in kinds:
        text = dict(vocab_size=vocabulary, max_position_embeddings=context, hidden_size=16, num_hidden_layers=2,
                    num_attention_heads=2, intermediate_size=32, projection_size=16)
        model = randomised(hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=dict(**SMALL, **MLP))))
        ids = torch.randint(0, vocabulary, (2, context), generator=torch.Generator().manual_seed(1))
        write(name, model, lambda x: model.vision_model(x).pooler_output,
              text=(ids, lambda ids: model.text_model(ids).pooler_output),
              more=lambda folder: zero_shot(model, tokenizer(folder, context), context))


TIMM = dict(img_size=SIZE, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0, num_classes=CLASSES)


def timms():
    kinds = {
        "timm-vit": ("vit_base_patch16_224", {}),
        "timm-deit-distilled": ("deit_base_distilled_patch16_224", {}),
        "timm-deit3": ("deit3_base_patch16_224", {}),
        "timm-mean": ("vit_base_patch16_224", dict(global_pool="avg")),
        "timm-dinov2-registers": ("vit_base_patch14_reg4_dinov2", {}),
        "timm-dinov2-gated": ("vit_giant_patch14_dinov2", {}),
        "timm-dinov3": ("vit_small_patch16_dinov3", {}),
        "timm-dinov3-gated": ("vit_small_plus_patch16_dinov3", {}),
        "timm-siglip": ("vit_base_patch16_siglip_224", {}),
        "timm-beit": ("beit_base_patch16_224", {}),
        "timm-eva": ("eva_giant_patch14_224", {}),
        "timm-eva02-fused": ("eva02_tiny_patch14_224", {}),
        "timm-eva02": ("eva02_base_patch14_224", {}),
        "timm-eva02-clip": ("eva02_base_patch16_clip_224", {}),
        # Arguments that take the place of the architecture's.
        "timm-beit-arguments": ("beit_base_patch16_224", dict(swiglu_mlp=True, global_pool="token", qkv_bias=False)),
        "timm-eva02-arguments": ("eva02_base_patch14_224", dict(swiglu_mlp=False, scale_mlp=False, num_reg_tokens=2,
                                                                init_values=0.1, qkv_fused=True)),
    }
    gradients = {
        "timm-beit": {"blocks.0.attn.qkv": "blocks.0.attn.qkv.weight", "blocks.1.mlp.proj": "blocks.1.mlp.fc2.weight"},
        "timm-eva02": {"blocks.0.attn.proj": "blocks.0.attn.proj.weight", "blocks.1.mlp.gate": "blocks.1.mlp.fc1_g.weight"},
    }
    for name, (architecture, more) in kinds.items():
        model = randomised(timm.create_model(architecture, **TIMM, **more))
        features = lambda x, model=model: model.forward_head(model.forward_features(x), pre_logits=True)
        if name == "timm-deit-distilled":
            # forward_head would average the two tokens; both heads read them apart.
            features = lambda x, model=model: model.forward_features(x)[:, :2].flatten(1)

        def resized(x):
            larger = copy.deepcopy(model)
            larger.set_input_size(img_size=(OTHER, OTHER))
            return larger.forward_head(larger.forward_features(x), pre_logits=True)

        config = dict(architecture=architecture, num_classes=CLASSES, global_pool=model.global_pool, model_args={**TIMM, **more},
                      pretrained_cfg=dict(input_size=[3, SIZE, SIZE], interpolation="bicubic",
                                          mean=[0.5] * 3, std=[0.5] * 3))
        write(name, model, features, model, None if "distilled" in name else resized, ("config.json", config),
              gradients=gradients.get(name))


def open_clips():
    vision = dict(layers=2, width=16, head_width=8, mlp_ratio=2.0, patch_size=4, image_size=SIZE)
    text = dict(context_length=9, vocab_size=20, width=12, heads=3, layers=2, mlp_ratio=2.0)
    config = dict(embed_dim=12, quick_gelu=True, vision_cfg=vision, text_cfg=text)
    model = randomised(open_clip.CLIP(12, vision, text, quick_gelu=True))
    preprocess = dict(size=SIZE, mode="RGB", mean=[0.5] * 3, std=[0.25] * 3, interpolation="bicubic")

    def resized(x):
        larger = open_clip.CLIP(12, {**vision, "image_size": OTHER}, text, quick_gelu=True).eval()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        open_clip.model.resize_pos_embed(state, larger)
        larger.load_state_dict(state)
        return larger.encode_image(x)

    write("open-clip", model, model.encode_image, resized=resized, text=model.encode_text,
          preprocessing=("open_clip_config.json", dict(model_cfg=config, preprocess_cfg=preprocess)))
    timm_towers(text, preprocess)


def timm_towers(text, preprocess):
    """Towers of timm within open_clip. Its configs name an architecture and no sizes, so the small ones go to timm directly.
    The tests say how many heads these have."""
    original = timm.create_model
    kinds = {
        "open-clip-eva02": ("eva02_base_patch16_clip_224", dict(timm_pool="token", timm_proj=None)),
        "open-clip-siglip": ("vit_base_patch16_siglip_224", dict(timm_pool="map", timm_proj="none")),
        "open-clip-timm": ("vit_base_patch16_224", dict(timm_pool="token", timm_proj="linear", timm_proj_bias=True)),
        # Without `custom_text` the text tower's parameters have no prefix.
        "open-clip-timm-root": ("vit_base_patch16_224", dict(timm_pool="avg", timm_proj="linear")),
    }
    for name, (architecture, pooling) in kinds.items():
        small = dict(TIMM)
        del small["num_classes"]
        timm.create_model = lambda architecture, **more: original(architecture, **{**small, **more})
        width = 16 if pooling["timm_proj"] == "none" else 12
        vision = dict(image_size=SIZE, timm_model_name=architecture, timm_model_pretrained=False, **pooling)
        own, more = (siglip_text(), dict(init_logit_bias=-10)) if name == "open-clip-siglip" else (text, {})
        kind = open_clip.CLIP if name.endswith("-root") else open_clip.CustomTextCLIP
        model = randomised(kind(width, vision, own, **more))
        timm.create_model = original
        custom = {} if name.endswith("-root") else dict(custom_text=True)
        config = dict(embed_dim=width, vision_cfg=vision, text_cfg=own, **custom, **more)
        example = (torch.randint(0, own["vocab_size"], (2, own["context_length"]),
                                 generator=torch.Generator().manual_seed(1)), model.encode_text)
        write(name, model, model.encode_image, text=example if more else model.encode_text,
              preprocessing=("open_clip_config.json", dict(model_cfg=config, preprocess_cfg=preprocess)),
              more=(lambda folder: open_clip_zero_shot(model, folder, own)) if more else None)


def siglip_text():
    return dict(context_length=12, vocab_size=40, width=12, heads=3, layers=2, mlp_ratio=2.0, no_causal_mask=True,
                proj_bias=True, pool_type="last", norm_kwargs=dict(eps=1e-6), act_kwargs=dict(approximate="tanh"),
                tokenizer_kwargs=dict(clean="canonicalize"))


def open_clip_zero_shot(model, folder, text):
    """The package's logits, by its own tokenizer from the folder's files."""
    siglip_tokenizer(folder, text["context_length"])
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | dict(tokenizer_class="PreTrainedTokenizerFast")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    tokenizer = open_clip.tokenizer.HFTokenizer(str(folder), text["context_length"], **text["tokenizer_kwargs"])
    ids = tokenizer(prompts())
    logits = model.get_logits(pixels(SIZE), ids)[0]
    return {"prompt_tokens": ids, "zero_shot_logits": logits}


if __name__ == "__main__":
    transformers()
    timms()
    open_clips()
    for folder in sorted(OUT.iterdir()):
        print(folder.name, sum(file.stat().st_size for file in folder.iterdir()) // 1024, "KiB")
