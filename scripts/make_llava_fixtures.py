#!/usr/bin/env python3
"""Writes tests/fixtures/llava: two smallest random LLaVA networks with the names and the config of transformers 4 and of 5, and
what transformers computes from them (reference.safetensors: prompts of two lengths in one batch with images, logits at all
tokens, the loss of answers, gradients of low-rank updates, 20 greedy tokens; prompts.json: prompts and their token ids).

    pip install torch transformers tokenizers safetensors
    python scripts/make_llava_fixtures.py
"""

import json
import shutil
from pathlib import Path

import tokenizers as tk
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import models, pre_tokenizers, processors
from torch.func import functional_call

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "llava"
SIDE, PATCH, WIDTH, BLOCKS = 12, 4, 16, 3
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
WORDS = """A chat between a curious user and an artificial intelligence assistant . The gives helpful , detailed polite answers to 's
questions USER : ASSISTANT What is the colour of this cat dog red blue green yes no two 2 How many Answer question using single
word or phrase ? in image""".split()
SYSTEM = ("A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite "
          "answers to the user's questions.")
ASK = "\nAnswer the question using a single word or phrase. ASSISTANT:"
QUESTIONS = ["Is this a cat?", "What is the colour of the dog in this image?"]
ANSWERS = ["yes", "blue green"]
RANK, SCALE = 2, 0.5


def words(image):
    names = ["<unk>", "<s>", "</s>", *dict.fromkeys(WORDS)]
    tokenizer = tk.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"] + (["<image>"] if image else []))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def network(vocabulary, image, **more):
    text = hf.LlamaConfig(vocab_size=vocabulary, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5)
    vision = hf.CLIPVisionConfig(hidden_size=12, intermediate_size=20, num_hidden_layers=BLOCKS, num_attention_heads=3, image_size=SIDE,
                                 patch_size=PATCH, projection_dim=8)
    config = hf.LlavaConfig(text_config=text, vision_config=vision, image_token_id=image, image_token_index=image, **more)
    model = hf.LlavaForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.5 if parameter.dim() < 2 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            if "norm" in name or "layrnorm" in name:
                parameter.add_(1.0)
    return model.eval()


def prompt_ids(tokenizer, prompt, image, patches):
    before, after = prompt.split("<image>")
    return tokenizer(before)["input_ids"] + [image] * patches + tokenizer(after, add_special_tokens=False)["input_ids"]


def padded(ids):
    longest = max(map(len, ids))
    tokens, mask = torch.zeros(len(ids), longest, dtype=torch.long), torch.zeros(len(ids), longest, dtype=torch.long)
    for row, one in enumerate(ids):
        tokens[row, :len(one)], mask[row, :len(one)] = torch.tensor(one), 1
    return tokens, mask


LANGUAGE = {"blocks.0.attn.q": "model.language_model.layers.0.self_attn.q_proj", "blocks.1.mlp.proj":
            "model.language_model.layers.1.mlp.down_proj", "lm_head": "lm_head",
            "projector.linear_1": "model.multi_modal_projector.linear_1", "projector.linear_2": "model.multi_modal_projector.linear_2"}


def updated(model, generator):
    """Low-rank updates by our names, and the weights that they make by theirs."""
    modules = dict(model.named_modules())
    tower = next(name for name in modules if name.endswith("encoder.layers.0"))
    known = {name: (f"{theirs}.weight",) for name, theirs in LANGUAGE.items()}
    known["vision.blocks.0.attn.qkv"] = tuple(f"{tower}.self_attn.{x}_proj.weight" for x in "qkv")
    known["vision.blocks.0.mlp.fc"] = (f"{tower}.mlp.fc1.weight",)
    known["vision.blocks.1.attn.proj"] = (f"{tower[:-1]}1.self_attn.out_proj.weight",)
    parameters, weights, found = dict(model.named_parameters()), {}, {}
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


def reference(folder, model, tokenizer, image):
    patches = (SIDE // PATCH) ** 2 + (model.config.vision_feature_select_strategy == "full")
    prompts = [f"{SYSTEM} USER: <image>\n{question}{ASK}" for question in QUESTIONS]
    ids = [prompt_ids(tokenizer, prompt, image, patches) for prompt in prompts]
    (folder / "prompts.json").write_text(json.dumps({"prompts": prompts, "answers": ANSWERS, "ids": ids}, indent=1) + "\n")
    pixels = torch.randint(0, 256, (len(ids), 3, SIDE, SIDE), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    values = (pixels / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    tokens, mask = padded(ids)
    run = lambda **more: model(pixel_values=values, **more)
    tensors = {"pixels": pixels, "tokens": tokens, "mask": mask}
    with torch.no_grad():
        logits = run(input_ids=tokens, attention_mask=mask).logits
        tensors["logits"] = logits * mask.unsqueeze(2)
        for row, one in enumerate(ids):
            alone = torch.tensor([one])
            found = model.generate(input_ids=alone, attention_mask=torch.ones_like(alone), pixel_values=values[row:row + 1],
                                   max_new_tokens=20, do_sample=False, pad_token_id=0)
            tensors[f"greedy.{row}"] = found[0, len(one):]
    ends = [one + tokenizer(answer, add_special_tokens=False)["input_ids"] + [2] for one, answer in zip(ids, ANSWERS)]
    answered, answered_mask = padded(ends)
    weights, found = updated(model, torch.Generator().manual_seed(7))
    logits = functional_call(model, weights, (), dict(input_ids=answered, attention_mask=answered_mask, pixel_values=values),
                             tie_weights=False).logits
    loss = answer_loss(logits, answered, [len(one) for one in ids], [len(one) for one in ends])
    gradients = iter(torch.autograd.grad(loss, [leaf for pair in found.values() for leaf in pair]))
    tensors |= {"answered.tokens": answered, "answered.mask": answered_mask, "answered.loss": loss}
    for ours, (a, b) in found.items():
        tensors |= {f"{ours}.A": a, f"{ours}.B": b, f"{ours}.A.gradient": next(gradients), f"{ours}.B.gradient": next(gradients)}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, folder / "reference.safetensors")


# The names of parts: transformers 5 still saves those of 4, but has others in memory.
NAMES = {
    "transformers-4": [("vision_tower.", "vision_tower.vision_model."),
                       ("vision_tower.vision_model.vision_model.", "vision_tower.vision_model.")],
    "transformers-5": [("language_model.model.", "model.language_model."), ("language_model.lm_head.", "lm_head."),
                       ("multi_modal_projector.", "model.multi_modal_projector."), ("vision_tower.", "model.vision_tower.")],
}


def renamed(folder, names):
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for start, new in names:
            name = new + name[len(start):] if name.startswith(start) else name
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write(name, image_token, **more):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = words(image_token)
    size = len(tokenizer)
    image = tokenizer.convert_tokens_to_ids("<image>") if image_token else size
    model = network(size + 2, image, **more)
    model.generation_config = hf.GenerationConfig(bos_token_id=1)  # no end, so that 20 tokens follow every prompt
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD, "resample": 3,
                                                                  "crop_size": {"height": SIDE, "width": SIDE},
                                                                  "size": {"shortest_edge": SIDE}, "do_center_crop": True}) + "\n")
    reference(folder, model, tokenizer, image)
    renamed(folder, NAMES[name])


def main():
    write("transformers-4", True)
    write("transformers-5", False, vision_feature_layer=-1, vision_feature_select_strategy="full")


if __name__ == "__main__":
    main()
