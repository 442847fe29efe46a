#!/usr/bin/env python3
"""Writes tests/fixtures/language: the smallest random language networks, saved by transformers in the form of the published
folders, with what transformers computes from them (reference.safetensors: the tokens and logits of prompts padded on either
side, the gradients of low-rank updates, 20 greedy tokens; prompts.json: texts and their token ids).

    pip install torch transformers tokenizers safetensors
    python scripts/make_language_fixtures.py [NAME ...]     # all, or those of these names

Written by transformers 5.23.0; those of qwen3 and later families, and those with a window or another scaling of positions, by transformers
5.24.0 with torch 2.11.0, as well as those that classify and `mistral-model`.
"""

import json
import shutil
import sys
from pathlib import Path

import tokenizers as tk
import torch
import transformers as hf
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch.func import functional_call
from transformers.pytorch_utils import Conv1D

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "language"
CONTEXT = 128
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=CONTEXT,
             bos_token_id=1, eos_token_id=2)
LINEAR = dict(rope_type="linear", rope_theta=1e4, factor=2.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
WORDS = """the a cat dog fish bird tree house sun moon sea river runs sleeps eats sees likes big small red blue green and or not is
was on in under A B C D E True False Question Answer Choices : ) . , ? yes no""".split()
CORPUS = ["the cat sees the moon and the dog sleeps under a tree.", "a big red fish likes the blue sea, or not?",
          "Question: is the sun green? Answer: no", "the small bird runs in the house. yes, it is \u00fcber caf\u00e9 10% big"]
PROMPTS = ["the cat is", "Question : is the big sea green ? Answer :", "a dog and a bird sees the red moon in the river , not the sun . "
           "Choices : A ) yes B ) no Answer :", "fish"]
RANK, SCALE = 2, 0.5


def words():
    """A tokenizer of whole words, with a start token as Llama's."""
    names = ["<unk>", "<s>", "</s>", *WORDS]
    tokenizer = tk.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def pieces():
    """A tokenizer of byte pairs without a start token, as Qwen's."""
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def randomised(model, seed=11):
    """Every parameter random, so that none of them can be left out unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.5 if parameter.dim() < 2 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            if "norm" in name:
                parameter.add_(1.0)
    return model.eval()


def padded(ids, side):
    longest = max(map(len, ids))
    tokens, mask = torch.zeros(len(ids), longest, dtype=torch.long), torch.zeros(len(ids), longest, dtype=torch.long)
    for row, one in enumerate(ids):
        place = slice(longest - len(one), longest) if side == "left" else slice(0, len(one))
        tokens[row, place], mask[row, place] = torch.tensor(one), 1
    return tokens, mask


def last_logits(call, tokens, mask):
    """The logits at the last token of each prompt, [B, V], those of a classifier, or the hidden state there; transformers counts positions
    of left-padded prompts from their start only if it is told to."""
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    output = call(input_ids=tokens, attention_mask=mask, position_ids=positions)
    found = output.logits if "logits" in output else output.last_hidden_state
    if found.dim() == 2:
        return found  # a class that classifies takes the last token that is no padding token itself
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    return found[torch.arange(len(found)), last]


def low_rank(model, tokens, mask, layers):
    """Gradients of sum(coefficients * logits) by A and B, where a layer's weight is W + SCALE B A."""
    generator = torch.Generator().manual_seed(7)
    weights, found = {}, {}
    for ours, theirs in layers.items():
        if theirs == "lm_head" and not hasattr(model, theirs):
            continue
        theirs = theirs if hasattr(model, theirs.split(".")[0]) else theirs.partition(".")[2]
        weight, turned = model.get_submodule(theirs).weight.detach(), isinstance(model.get_submodule(theirs), Conv1D)
        outputs, inputs = reversed(weight.shape) if turned else weight.shape
        draw = lambda *shape: (torch.randn(*shape, generator=generator) * 0.3).to(weight.dtype).requires_grad_()
        a, b = draw(RANK, inputs), draw(outputs, RANK)
        update = SCALE * b @ a
        weights[f"{theirs}.weight"], found[ours] = weight + (update.T if turned else update), (a, b)
    logits = last_logits(lambda **inputs: functional_call(model, weights, (), inputs, tie_weights=False), tokens, mask)
    coefficients = torch.randn(logits.shape, generator=generator).to(logits.dtype)
    gradients = iter(torch.autograd.grad((logits * coefficients).sum(), [leaf for pair in found.values() for leaf in pair]))
    tensors = {"adapted.logits": logits, "coefficients": coefficients}
    for ours, (a, b) in found.items():
        tensors |= {f"{ours}.A": a, f"{ours}.B": b, f"{ours}.A.gradient": next(gradients), f"{ours}.B.gradient": next(gradients)}
    return tensors


LAYERS = {"blocks.0.attn.q": "model.layers.0.self_attn.q_proj", "blocks.0.attn.v": "model.layers.0.self_attn.v_proj",
          "blocks.1.attn.k": "model.layers.1.self_attn.k_proj", "blocks.1.attn.proj": "model.layers.1.self_attn.o_proj",
          "blocks.0.mlp.gate": "model.layers.0.mlp.gate_proj", "blocks.1.mlp.fc": "model.layers.1.mlp.up_proj",
          "blocks.1.mlp.proj": "model.layers.1.mlp.down_proj", "lm_head": "lm_head"}


FUSED = {"blocks.0.attn.qkv": "model.layers.0.self_attn.qkv_proj", "blocks.1.attn.qkv": "model.layers.1.self_attn.qkv_proj",
         "blocks.1.attn.proj": "model.layers.1.self_attn.o_proj", "blocks.0.mlp.gate_fc": "model.layers.0.mlp.gate_up_proj",
         "blocks.1.mlp.proj": "model.layers.1.mlp.down_proj", "lm_head": "lm_head"}
TURNED = {"blocks.0.attn.qkv": "transformer.h.0.attn.c_attn", "blocks.1.attn.qkv": "transformer.h.1.attn.c_attn",
          "blocks.1.attn.proj": "transformer.h.1.attn.c_proj", "blocks.0.mlp.fc": "transformer.h.0.mlp.c_fc",
          "blocks.1.mlp.proj": "transformer.h.1.mlp.c_proj", "lm_head": "lm_head"}


def write(name, model, tokenizer, shard=None, layers=LAYERS):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    randomised(model)
    if model.can_generate():
        model.generation_config = hf.GenerationConfig(bos_token_id=1)  # no end, so that 20 tokens follow every prompt
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    tokenizer.save_pretrained(folder)
    write_reference(folder, model, tokenizer, layers)


def write_reference(folder, model, tokenizer, layers):
    """What transformers computes from the prompts."""
    ids = tokenizer(PROMPTS)["input_ids"]
    (folder / "prompts.json").write_text(json.dumps({"prompts": PROMPTS, "ids": ids}, indent=1) + "\n")
    tensors = {}
    with torch.no_grad():
        for side in ["left", "right"]:
            tokens, mask = padded(ids, side)
            tensors |= {f"{side}.tokens": tokens, f"{side}.mask": mask, f"{side}.logits": last_logits(model, tokens, mask)}
        for row, one in enumerate(ids if model.can_generate() else []):
            found = model.generate(torch.tensor([one]), max_new_tokens=20, do_sample=False, pad_token_id=0)
            tensors[f"greedy.{row}"] = found[0, len(one):]
    tensors |= low_rank(model, *padded(ids, "right"), layers)
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, folder / "reference.safetensors")


def keys():
    """The fields of every class of configs."""
    from dataclasses import fields

    classes = [hf.LlamaConfig, hf.MistralConfig, hf.Qwen2Config, hf.Qwen3Config, hf.GemmaConfig, hf.Gemma2Config, hf.Gemma3TextConfig, hf.Phi3Config, hf.Olmo2Config,
               hf.SmolLM3Config, hf.GPT2Config]
    told = {kind.model_type: sorted(field.name for field in fields(kind)) for kind in classes}
    (OUT / "keys.json").write_text(json.dumps(told, indent=1) + "\n")


def main():
    keys()
    vocabulary = len(WORDS) + 3
    llama = lambda **more: hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=vocabulary, **SMALL, **more))
    write("llama", llama(), words())
    write("llama-linear", llama(num_key_value_heads=2, rope_parameters=LINEAR, tie_word_embeddings=True), words())
    write("llama-3", llama(num_key_value_heads=1, head_dim=6, rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True), words(),
          shard="6KB")
    mistral = hf.MistralConfig(vocab_size=vocabulary, num_key_value_heads=2, **SMALL)
    write("mistral", hf.MistralForCausalLM(mistral), words())
    qwen = hf.Qwen2Config(vocab_size=304, num_key_value_heads=2, tie_word_embeddings=True, **SMALL)
    write("qwen2", hf.Qwen2ForCausalLM(qwen), pieces())
    qwen = lambda **more: hf.Qwen3ForCausalLM(hf.Qwen3Config(vocab_size=vocabulary, **SMALL, **more))
    write("qwen3", qwen(num_key_value_heads=2, head_dim=6), words())
    write("qwen3-biased", qwen(num_key_value_heads=4, head_dim=4, attention_bias=True, hidden_act="gelu_pytorch_tanh", use_sliding_window=True,
                               sliding_window=100, max_window_layers=1, tie_word_embeddings=True), words())
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32)
    write("llama-yarn", llama(num_key_value_heads=2, rope_parameters=yarn), words())
    write("llama-dynamic", llama(num_key_value_heads=2, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=4.0)), words())
    small = SMALL | dict(vocab_size=vocabulary, num_key_value_heads=2)
    write("mistral-window", hf.MistralForCausalLM(hf.MistralConfig(**small, sliding_window=4)), words())
    windows = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)
    write("qwen2-window", hf.Qwen2ForCausalLM(hf.Qwen2Config(**small, **windows)), words())
    write("gemma", hf.GemmaForCausalLM(hf.GemmaConfig(**small | dict(num_key_value_heads=1, head_dim=6, pad_token_id=0, attention_bias=True))),
          words())
    # Bounds of scores are computed by the plain code alone.
    gemma = small | dict(head_dim=6, query_pre_attn_scalar=9, pad_token_id=0)
    write("gemma2", hf.Gemma2ForCausalLM._from_config(hf.Gemma2Config(**gemma, sliding_window=4, attn_logit_softcapping=1.5,
          final_logit_softcapping=2.0), attn_implementation="eager"), words())
    bases = dict(full_attention=dict(rope_type="linear", rope_theta=1e5, factor=2.0), sliding_attention=dict(rope_type="default", rope_theta=1e3))
    gemma |= dict(num_hidden_layers=3, sliding_window=4, rope_parameters=bases,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    write("gemma3", hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**gemma)), words())
    phi = small | dict(pad_token_id=0)
    write("phi3", hf.Phi3ForCausalLM(hf.Phi3Config(**phi, sliding_window=6)), words(), layers=FUSED)
    long = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.1], long_factor=[2.0], partial_rotary_factor=0.5)
    write("phi3-long", hf.Phi3ForCausalLM(hf.Phi3Config(**phi, rope_parameters=long, original_max_position_embeddings=64)), words(), layers=FUSED)
    write("olmo2", hf.Olmo2ForCausalLM(hf.Olmo2Config(**small, pad_token_id=0)), words())
    smol = small | dict(num_hidden_layers=4, pad_token_id=0)
    write("smollm3", hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**smol, attention_bias=True, mlp_bias=True, no_rope_layers=[1, 0, 1, 0],
          use_sliding_window=True, sliding_window=5)), words())
    gpt = dict(vocab_size=304, n_embd=16, n_layer=2, n_head=4, n_positions=CONTEXT, bos_token_id=1, eos_token_id=2)
    write("gpt2", hf.GPT2LMHeadModel(hf.GPT2Config(**gpt)), pieces(), layers=TURNED)
    without_output()


def without_output():
    """Networks without an output matrix: those that classify the last token, and one that gives hidden states alone."""
    small = SMALL | dict(vocab_size=len(WORDS) + 3, num_key_value_heads=2)
    padding = dict(pad_token_id=0)
    write("llama-classifier", hf.LlamaForSequenceClassification(hf.LlamaConfig(**small, **padding, num_labels=3)), words())
    # The key says that an output matrix would be that of the embeddings.
    write("qwen3-classifier", hf.Qwen3ForSequenceClassification(hf.Qwen3Config(**small, **padding, tie_word_embeddings=True)), words())
    gpt = dict(vocab_size=304, n_embd=16, n_layer=2, n_head=4, n_positions=CONTEXT, bos_token_id=1, eos_token_id=2)
    write("gpt2-classifier", hf.GPT2ForSequenceClassification(hf.GPT2Config(**gpt, **padding)), pieces(), layers=TURNED)
    write("mistral-model", hf.MistralModel(hf.MistralConfig(**small)), words())


if __name__ == "__main__":
    main()
