#!/usr/bin/env python3
"""Writes tests/fixtures/llava and tests/fixtures/paligemma: smallest random networks that see images, with the names and the config of
transformers 4 or of 5, and what transformers computes from them (reference.safetensors: prompts of two lengths in one batch with images,
logits at all tokens, the loss of answers, gradients of low-rank updates, 20 greedy tokens; prompts.json: prompts and their token ids). Those
of PaliGemma are prepared by its own processor, which also prepares an image (image.png). tests/fixtures/sighted/keys.json has the fields of
the classes of configs.

    pip install torch torchvision transformers tokenizers safetensors pillow
    python scripts/make_sighted_fixtures.py [NAME ...]     # all, or those of these names, such as paligemma/gemma

Those of LLaVA were written by transformers 5.23.0, all else by transformers 5.24.0 with torch 2.11.0.
"""

import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import tokenizers as tk
import torch
import transformers as hf
from make_language_fixtures import padded, randomised
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch.func import functional_call
from transformers.models.paligemma import processing_paligemma

OUT = Path(__file__).parent.parent / "tests" / "fixtures"
SIDE, PATCH, WIDTH, BLOCKS = 12, 4, 16, 3
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5, 0.5, 0.5]
WORDS = """A chat between a curious user and an artificial intelligence assistant . The gives helpful , detailed polite answers to 's
questions USER : ASSISTANT What is the colour of this cat dog red blue green yes no two 2 How many Answer question using single
word or phrase ? in image""".split()
SYSTEM = ("A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite "
          "answers to the user's questions.")
ASK = "\nAnswer the question using a single word or phrase. ASSISTANT:"
QUESTIONS = ["Is this a cat?", "What is the colour of the dog in this image?"]
ANSWERS = ["yes", "blue green"]
RANK, SCALE, SEED = 2, 0.5, 11
TEXT = dict(hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128)
VISION = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=BLOCKS, num_attention_heads=3, image_size=SIDE, patch_size=PATCH)


def endless(model):
    """The same with random parameters and without a token that ends an answer, so that 20 tokens follow every prompt."""
    model = randomised(model, SEED)
    model.generation_config = hf.GenerationConfig(bos_token_id=1)
    return model


class Llava:
    layers = {"projector.linear_1": "model.multi_modal_projector.linear_1", "projector.linear_2": "model.multi_modal_projector.linear_2"}
    mean, std = MEAN, STD

    def __init__(self, image_token, text=hf.LlamaConfig, **more):
        self.tokenizer = self.words(image_token)
        size = len(self.tokenizer)
        self.image = self.tokenizer.convert_tokens_to_ids("<image>") if image_token else size
        text = text(vocab_size=size + 2, bos_token_id=1, eos_token_id=2, **dict(rms_norm_eps=1e-5) | TEXT)
        vision = hf.CLIPVisionConfig(projection_dim=8, **VISION)
        config = hf.LlavaConfig(text_config=text, vision_config=vision, image_token_id=self.image, image_token_index=self.image, **more)
        self.model = endless(hf.LlavaForConditionalGeneration(config))
        self.patches = (SIDE // PATCH) ** 2 + (config.vision_feature_select_strategy == "full")

    def words(self, image):
        names = ["<unk>", "<s>", "</s>", *dict.fromkeys(WORDS)]
        tokenizer = tk.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"] + (["<image>"] if image else []))
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
        return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")

    def prompts(self):
        return [f"{SYSTEM} USER: <image>\n{question}{ASK}" for question in QUESTIONS]

    def ids(self, prompt):
        before, after = prompt.split("<image>")
        return self.tokenizer(before)["input_ids"] + [self.image] * self.patches + self.tokenizer(after, add_special_tokens=False)["input_ids"]

    def answered(self, prompt, answer):
        return self.ids(prompt) + self.tokenizer(answer, add_special_tokens=False)["input_ids"] + [2]

    def kinds(self, starts, mask):
        return {}

    def prepared(self, folder, generation):
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD, "resample": 3,
                                                                      "crop_size": {"height": SIDE, "width": SIDE},
                                                                      "size": {"shortest_edge": SIDE}, "do_center_crop": True}) + "\n")
        return {}


class PaliGemma:
    layers = {"projector.linear": "model.multi_modal_projector.linear"}
    mean, std = HALF, HALF

    def __init__(self, text, **more):
        # The tokens of places and of parts of images would be most of the vocabulary.
        processing_paligemma.EXTRA_TOKENS = []
        images = hf.SiglipImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=HALF, image_std=HALF, resample=3)
        images.image_seq_length = self.patches = (SIDE // PATCH) ** 2
        self.processor = hf.PaliGemmaProcessor(image_processor=images, tokenizer=self.words())
        self.tokenizer, self.image = self.processor.tokenizer, self.processor.image_token_id
        text = text(vocab_size=len(self.tokenizer) + 2, bos_token_id=2, eos_token_id=1, pad_token_id=0, **TEXT, **more)
        vision = hf.SiglipVisionConfig(vision_use_head=False, **VISION)
        config = hf.PaliGemmaConfig(text_config=text, vision_config=vision, image_token_index=self.image, projection_dim=WIDTH,
                                    hidden_size=WIDTH, vocab_size=len(self.tokenizer) + 2)
        eager = {"attn_implementation": "eager"} if "attn_logit_softcapping" in more else {}
        self.model = endless(hf.PaliGemmaForConditionalGeneration._from_config(config, **eager))

    def words(self):
        names = ["<pad>", "<eos>", "<bos>", "<unk>", "\u23ce", *dict.fromkeys(WORDS + ["answer", "en"])]
        tokenizer = tk.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Replace("\n", " \u23ce ")
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
        return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>")

    def prompts(self):
        return [f"<image>answer en {question}" for question in QUESTIONS]

    def processed(self, prompt, **more):
        blank = Image.new("RGB", (SIDE, SIDE))
        found = self.processor(images=blank, text=prompt, return_tensors="np", **more)
        kinds = found["token_type_ids"][0].tolist()
        assert sorted(kinds) == kinds and (1 in kinds) == bool(more)
        return found["input_ids"][0].tolist()

    def ids(self, prompt):
        return self.processed(prompt)

    def answered(self, prompt, answer):
        return self.processed(prompt, suffix=answer)

    def kinds(self, starts, mask):
        """0 for the tokens of a prompt and for padding, 1 for those of its answer."""
        number = mask.cumsum(1)
        return {"token_type_ids": ((number > torch.tensor(starts).unsqueeze(1)) & (mask == 1)).long()}

    def prepared(self, folder, generation):
        generator = torch.Generator().manual_seed(3)
        coarse = torch.rand(1, 3, 5, 7, generator=generator)
        picture = (torch.nn.functional.interpolate(coarse, (23, 31), mode="bilinear") * 255).round().byte()[0].permute(1, 2, 0)
        picture = Image.fromarray(picture.numpy())
        picture.save(folder / "image.png")
        if generation == 4:
            self.processor.image_processor.save_pretrained(folder)
        else:
            self.processor.save_pretrained(folder)
        found = self.processor.image_processor(picture, return_tensors="pt")["pixel_values"][0]
        by_pillow = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32) / 255
        return {"image.pixels": found, "image.pillow": torch.from_numpy((by_pillow - 0.5) / 0.5).permute(2, 0, 1)}


LANGUAGE = {"blocks.0.attn.q": "model.language_model.layers.0.self_attn.q_proj", "blocks.1.mlp.proj":
            "model.language_model.layers.1.mlp.down_proj"}


def updated(one, generator):
    """Low-rank updates by our names, and the weights that they make by theirs."""
    modules = dict(one.model.named_modules())
    tower = next(name for name in modules if name.endswith("encoder.layers.0"))
    tied = one.model.lm_head.weight is one.model.get_input_embeddings().weight
    own = LANGUAGE | ({} if tied else {"lm_head": "lm_head"}) | one.layers
    known = {name: (f"{theirs}.weight",) for name, theirs in own.items()}
    known["vision.blocks.0.attn.qkv"] = tuple(f"{tower}.self_attn.{x}_proj.weight" for x in "qkv")
    known["vision.blocks.0.mlp.fc"] = (f"{tower}.mlp.fc1.weight",)
    known["vision.blocks.1.attn.proj"] = (f"{tower[:-1]}1.self_attn.out_proj.weight",)
    parameters, weights, found = dict(one.model.named_parameters()), {}, {}
    for ours, names in known.items():
        whole = torch.cat([parameters[name].detach() for name in names])
        a = (torch.randn(RANK, whole.shape[1], generator=generator) * 0.3).requires_grad_()
        b = (torch.randn(whole.shape[0], RANK, generator=generator) * 0.3).requires_grad_()
        found[ours] = (a, b)
        weights |= dict(zip(names, (whole + SCALE * b @ a).chunk(len(names))))
    return weights, found


def answer_loss(logits, tokens, starts, lengths):
    """The sum of the answer's tokens, averaged over the questions."""
    total = 0
    for row, (start, length) in enumerate(zip(starts, lengths)):
        scores = logits[row, start - 1:length - 1].log_softmax(-1)
        total = total - scores.gather(1, tokens[row, start:length, None]).sum()
    return total / len(starts)


def reference(folder, one, generation):
    prompts, model = one.prompts(), one.model
    ids = [one.ids(prompt) for prompt in prompts]
    ends = [one.answered(prompt, answer) for prompt, answer in zip(prompts, ANSWERS)]
    told = {"prompts": prompts, "answers": ANSWERS, "ids": ids, "answered": ends}
    (folder / "prompts.json").write_text(json.dumps(told, indent=1) + "\n")
    pixels = torch.randint(0, 256, (len(ids), 3, SIDE, SIDE), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    values = (pixels / 255 - torch.tensor(one.mean).view(3, 1, 1)) / torch.tensor(one.std).view(3, 1, 1)
    starts, lengths = [len(row) for row in ids], [len(row) for row in ends]
    tensors = one.prepared(folder, generation) | {"pixels": pixels}
    with torch.no_grad():
        for of, rows in [("", ids), ("answered.", ends)]:
            for side in ("right", "left"):
                tokens, mask = padded(rows, side)
                kinds = one.kinds(starts, mask)
                logits = model(pixel_values=values, input_ids=tokens, attention_mask=mask, **kinds).logits
                here = of if side == "right" else f"left.{of}"
                tensors |= {f"{here}tokens": tokens, f"{here}mask": mask} | {f"{here}kinds": kind for kind in kinds.values()}
                # Those of padding are left out, and tokens come first.
                logits = [logits[row, mask[row] == 1] for row in range(len(rows))]
                tensors[f"{here}logits"] = torch.nn.utils.rnn.pad_sequence(logits, batch_first=True)
        for row, prompt in enumerate(ids):
            alone = torch.tensor([prompt])
            found = model.generate(input_ids=alone, attention_mask=torch.ones_like(alone), pixel_values=values[row:row + 1],
                                   max_new_tokens=20, do_sample=False, pad_token_id=0, **one.kinds([len(prompt)], torch.ones_like(alone)))
            tensors[f"greedy.{row}"] = found[0, len(prompt):]
    answered, mask = padded(ends, "right")
    weights, found = updated(one, torch.Generator().manual_seed(7))
    inputs = dict(input_ids=answered, attention_mask=mask, pixel_values=values, **one.kinds(starts, mask))
    logits = functional_call(model, weights, (), inputs, tie_weights=False).logits
    loss = answer_loss(logits, answered, starts, lengths)
    gradients = iter(torch.autograd.grad(loss, [leaf for pair in found.values() for leaf in pair]))
    tensors["answered.loss"] = loss
    for ours, (a, b) in found.items():
        tensors |= {f"{ours}.A": a, f"{ours}.B": b, f"{ours}.A.gradient": next(gradients), f"{ours}.B.gradient": next(gradients)}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, folder / "reference.safetensors")


# The names of parts: transformers 5 still saves those of 4, but has others in memory.
NAMES = {
    4: [("vision_tower.", "vision_tower.vision_model."), ("vision_tower.vision_model.vision_model.", "vision_tower.vision_model.")],
    5: [("language_model.model.", "model.language_model."), ("language_model.lm_head.", "lm_head."),
        ("multi_modal_projector.", "model.multi_modal_projector."), ("vision_tower.", "model.vision_tower.")],
}


def renamed(folder, names):
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for start, new in names:
            name = new + name[len(start):] if name.startswith(start) else name
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write(name, make, generation):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    folder, one = OUT / name, make()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    one.model.save_pretrained(folder)
    one.tokenizer.save_pretrained(folder)
    reference(folder, one, generation)
    renamed(folder, NAMES[generation])


def keys():
    """The fields of every class of configs."""
    told = {kind.model_type: sorted(field.name for field in fields(kind)) for kind in (hf.LlavaConfig, hf.PaliGemmaConfig)}
    (OUT / "sighted").mkdir(exist_ok=True)
    (OUT / "sighted" / "keys.json").write_text(json.dumps(told, indent=1) + "\n")


def main():
    keys()
    write("llava/transformers-4", lambda: Llava(True), 4)
    write("llava/transformers-5", lambda: Llava(False, vision_feature_layer=-1, vision_feature_select_strategy="full"), 5)
    write("paligemma/gemma", lambda: PaliGemma(hf.GemmaConfig, head_dim=6), 4)
    # Bounds of scores are computed by the plain code alone.
    write("paligemma/gemma2", lambda: PaliGemma(hf.Gemma2Config, head_dim=6, query_pre_attn_scalar=9, sliding_window=100,
                                                attn_logit_softcapping=1.5, final_logit_softcapping=2.0), 5)


if __name__ == "__main__":
    main()
