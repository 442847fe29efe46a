#!/usr/bin/env python3
"""Writes random networks of texts of every family, of other sizes, seeds, positions and settings each time, with what transformers computes
from them, and what a changed key of a config does. bella's own tests then compare themselves with transformers on these folders:

    pip install torch transformers tokenizers safetensors
    python scripts/make_random_folders.py FOLDER --seeds 1-5
    BELLA_FOLDERS=FOLDER cargo nextest run --test library -E 'test(of_transformers) or test(changed_keys)'

Below FOLDER are `language`, `encoder` and `sighted`, in the form of tests/fixtures, and with --keys `keys`: networks with cases.json, of
which each names a key of the config, another value for it, and what it does to the numbers of transformers: they are the `same`, `other` ones
(in outputs.safetensors), or there are none, since transformers `refuses` the value or `lacks` tensors. The last test wants of each case that
bella refuses the key or computes what transformers computes; a value that transformers refuses must change nothing where bella does not.

Measured with transformers 5.24.0 and torch 2.11.0: results/fidelity.md.
"""

import argparse
import contextlib
import copy
import dataclasses
import io
import json
import random
import shutil
import tempfile
from pathlib import Path

import make_encoder_fixtures as encoders
import make_language_fixtures as language
import make_sighted_fixtures as sighted
import torch
import transformers as hf

DECODERS = [hf.LlamaForCausalLM, hf.MistralForCausalLM, hf.Qwen2ForCausalLM, hf.Qwen3ForCausalLM, hf.GemmaForCausalLM, hf.Gemma2ForCausalLM,
            hf.Gemma3ForCausalLM, hf.Phi3ForCausalLM, hf.Olmo2ForCausalLM, hf.SmolLM3ForCausalLM, hf.GPT2LMHeadModel]
# Those without an output matrix.
DECODERS += [hf.LlamaForSequenceClassification, hf.MistralForSequenceClassification, hf.Qwen2ForSequenceClassification, hf.Qwen3ForSequenceClassification,
             hf.GemmaForSequenceClassification, hf.Gemma2ForSequenceClassification, hf.Gemma3TextForSequenceClassification,
             hf.Phi3ForSequenceClassification, hf.Olmo2ForSequenceClassification, hf.SmolLM3ForSequenceClassification,
             hf.GPT2ForSequenceClassification, hf.LlamaModel, hf.Qwen3Model, hf.Phi3Model, hf.GPT2Model]
BIASED = ("llama", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "smollm3")
WITH_HEAD_DIM = ("llama", "mistral", "qwen3", "gemma", "gemma2", "gemma3_text")
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu"]
CONTEXT = 128


def rope(kind, draw, family):
    """Rotary positions of a kind, as a config of transformers 5 has them."""
    known = dict(rope_type=kind, rope_theta=draw.choice([1e3, 1e4, 5e5, 1e6]))
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        known["factor"] = draw.choice([1.5, 2.0, 8.0])
    if kind == "llama3":
        known |= dict(low_freq_factor=1.0, high_freq_factor=draw.choice([2.0, 4.0]), original_max_position_embeddings=draw.choice([8, 16, 32]))
    if kind == "yarn":
        known["original_max_position_embeddings"] = draw.choice([16, 32, 64])
        known |= draw.choice([{}, dict(beta_fast=16.0, beta_slow=2.0), dict(attention_factor=0.9), dict(mscale=0.7, mscale_all_dim=0.4),
                              dict(truncate=False)])
    return known


def decoder(kind, seed):
    """A random config of a class, and what the tests must know of it."""
    config_class, draw = kind.config_class, random.Random(f"{kind.__name__} {seed}")
    name = config_class.model_type
    heads = draw.choice([2, 4, 6])
    keys = draw.choice([own for own in (1, 2, 3, heads) if heads % own == 0])
    channels = draw.choice([4, 6, 8, 10])
    width = heads * (draw.choice([4, 6, 10]) if name in WITH_HEAD_DIM else channels)
    blocks = draw.choice([2, 3, 4])
    tokenizer = draw.choice([language.words, language.pieces])()
    act = "hidden_activation" if name in ("gemma2", "gemma3_text") else "hidden_act"
    known = dict(vocab_size=len(tokenizer) + draw.choice([0, 1, 13]), hidden_size=width, intermediate_size=draw.choice([10, 22, 34]),
                 num_hidden_layers=blocks, num_attention_heads=heads, num_key_value_heads=keys, max_position_embeddings=CONTEXT,
                 rms_norm_eps=draw.choice([1e-6, 1e-5, 1e-3]), tie_word_embeddings=draw.random() < 0.5, pad_token_id=0, bos_token_id=1,
                 eos_token_id=2)
    known[act] = draw.choice(ACTIVATIONS if name != "gemma" else ["gelu_pytorch_tanh", "gelu_new", "silu"])
    if name in WITH_HEAD_DIM:
        known["head_dim"] = channels
    if name in BIASED:
        known["attention_bias"] = draw.random() < 0.5
    if name in ("llama", "smollm3"):
        known["mlp_bias"] = draw.random() < 0.5
    window = draw.choice([2, 5, 100])
    types = [draw.choice(["full_attention", "sliding_attention"]) for _ in range(blocks)]
    if name in ("mistral", "phi3"):
        known["sliding_window"] = draw.choice([None, window])
    if name in ("qwen2", "qwen3"):
        known |= dict(use_sliding_window=draw.random() < 0.7, sliding_window=window, max_window_layers=draw.choice([0, 1, blocks]))
        if known["use_sliding_window"] and draw.random() < 0.5:
            known["layer_types"] = types
    if name == "smollm3":
        known |= draw.choice([dict(no_rope_layers=[draw.choice([0, 1]) for _ in range(blocks)]), dict(no_rope_layer_interval=2), {}])
        known |= dict(use_sliding_window=draw.random() < 0.7, sliding_window=window)
    if name.startswith("gemma") and name != "gemma":
        known |= dict(sliding_window=window, query_pre_attn_scalar=draw.choice([4, 9, 30]))
        known |= draw.choice([{}, dict(layer_types=types)])
        known["final_logit_softcapping"] = draw.choice([None, 3.0])
    if name == "gemma2":
        known["attn_logit_softcapping"] = draw.choice([None, 1.5, 20.0])
    # Phi-3 has no other scaling than longrope.
    kinds = ["default", "linear", "dynamic", "llama3", "yarn"][:1 if name == "phi3" else 5]
    if name == "gemma3_text":
        each = lambda: rope(draw.choice(["default", "linear", "yarn", "llama3"]), draw, name)
        known["rope_parameters"] = dict(full_attention=each(), sliding_attention=each())
    elif name != "gpt2":
        known["rope_parameters"] = rope(draw.choice(kinds), draw, name)
    if name == "phi3":
        part = draw.choice([1.0, 0.5]) if channels % 4 == 0 else 1.0
        turned = int(channels * part) // 2
        long = dict(rope_type="longrope", rope_theta=1e4, short_factor=[draw.uniform(1, 2) for _ in range(turned)],
                    long_factor=[draw.uniform(2, 4) for _ in range(turned)])
        known["rope_parameters"] = (draw.choice([long, known["rope_parameters"]]) | dict(partial_rotary_factor=part))
        known["original_max_position_embeddings"] = draw.choice([64, 100, 128])
    if name == "gpt2":
        known = dict(vocab_size=known["vocab_size"], n_embd=width, n_layer=blocks, n_head=heads, n_positions=CONTEXT, bos_token_id=1,
                     eos_token_id=2, n_inner=draw.choice([None, 22]), activation_function=draw.choice(ACTIVATIONS),
                     layer_norm_epsilon=draw.choice([1e-5, 1e-3]), scale_attn_weights=draw.random() < 0.7,
                     tie_word_embeddings=draw.random() < 0.5)
    if "Classification" in kind.__name__:
        known |= dict(num_labels=draw.choice([1, 2, 5]), pad_token_id=0)
    if kind.__name__.endswith("Model") and "LMHead" not in kind.__name__:
        known["tie_word_embeddings"] = False
    return known, tokenizer


def plain(name):
    """Scores with a bound are computed by the plain code alone."""
    return {"attn_implementation": "eager"} if name == "gemma2" else {}


def layers_of(name):
    return {"phi3": language.FUSED, "gpt2": language.TURNED}.get(name, language.LAYERS)


def older(folder):
    """Writes rotary positions as transformers 4 did."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope is None or "full_attention" in rope:
        return
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    path.write_text(json.dumps(config, indent=1) + "\n")


def rounding(model, tokenizer, layers):
    """The largest share by which gradients in f32 differ from those in f64, by transformers alone."""
    tokens, mask = language.padded(tokenizer(language.PROMPTS)["input_ids"], "right")
    narrow = language.low_rank(model, tokens, mask, layers)
    wide = language.low_rank(copy.deepcopy(model).double(), tokens, mask, layers)
    apart = lambda name: ((narrow[name].double() - wide[name]).norm() / wide[name].norm()).item()
    return max(apart(name) for name in narrow if name.endswith("gradient"))


def settled(kind, seed, known, tokenizer):
    """A network with random weights, smaller ones or others where sums cancel so much that transformers itself is not exact to a fifth of the
    bound of the tests; none where no weights are found."""
    name = kind.config_class.model_type
    for draw in range(seed, seed + 8000, 1000):
        model = language.randomised(kind._from_config(kind.config_class(**known), **plain(name)), draw)
        for _ in range(6):
            if rounding(model, tokenizer, layers_of(name)) <= 2e-6:
                return model
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.8)


def write_decoder(folder, kind, seed):
    known, tokenizer = decoder(kind, seed)
    name = kind.config_class.model_type
    model = settled(kind, seed, known, tokenizer)
    if model is None:
        return print(f"{kind.__name__}-{seed} is left out: its sums cancel with any weights")
    if model.can_generate():
        model.generation_config = hf.GenerationConfig(bos_token_id=1)
    model.save_pretrained(folder, **({"max_shard_size": "8KB"} if seed % 3 == 0 else {}))
    tokenizer.save_pretrained(folder)
    if seed % 2:
        older(folder)
    # What the folder means is what transformers reads from it.
    read = kind.from_pretrained(folder, **plain(name)).eval()
    if read.can_generate():
        read.generation_config = hf.GenerationConfig(bos_token_id=1)
    language.write_reference(folder, read, tokenizer, layers_of(name))


def encoder(kind, seed):
    """A random config of a class of encoders with its tokenizer."""
    name, draw = kind.config_class.model_type, random.Random(f"{kind.__name__} {seed}")
    heads = draw.choice([2, 3, 4])
    known = dict(hidden_size=heads * draw.choice([4, 6, 8]), intermediate_size=draw.choice([10, 22, 34]), num_hidden_layers=draw.choice([2, 3, 4]),
                 num_attention_heads=heads, max_position_embeddings=120)
    act = draw.choice(ACTIVATIONS)
    if name == "modernbert":
        known["num_hidden_layers"] = draw.choice([3, 4, 5])
        known |= dict(hidden_activation=act, norm_eps=draw.choice([1e-5, 1e-3]), local_attention=draw.choice([4, 6, 20]), pad_token_id=0, cls_token_id=1,
                      sep_token_id=2, bos_token_id=1, eos_token_id=2, classifier_pooling=draw.choice(["cls", "mean"]),
                      classifier_bias=draw.random() < 0.5, classifier_activation=draw.choice(["gelu", "silu"]))
        known |= {key: draw.random() < 0.5 for key in ("norm_bias", "attention_bias", "mlp_bias")}
        known |= draw.choice([{}, dict(global_attn_every_n_layers=2),
                              dict(layer_types=[draw.choice(["full_attention", "sliding_attention"]) for _ in range(known["num_hidden_layers"])])])
        tokenizer = encoders.bytes_between_marks()
    elif name == "distilbert":
        known = dict(dim=known["hidden_size"], hidden_dim=known["intermediate_size"], n_layers=known["num_hidden_layers"], n_heads=heads,
                     max_position_embeddings=120, activation=act, sinusoidal_pos_embds=draw.random() < 0.3)
        tokenizer = encoders.pieces_of_words()
    else:
        known |= dict(hidden_act=act, layer_norm_eps=draw.choice([1e-12, 1e-5, 1e-3]))
    if name in ("electra", "albert"):
        known |= dict(embedding_size=draw.choice([known["hidden_size"], 6, 20]), type_vocab_size=draw.choice([1, 2, 3]))
        tokenizer = encoders.pieces_of_words()
    if name == "albert":
        known["num_hidden_layers"] = draw.choice([2, 3, 4, 5])
        known["num_hidden_groups"] = draw.randint(1, known["num_hidden_layers"])
    if name == "mpnet":
        known["relative_attention_num_buckets"], tokenizer = draw.choice([32, 33, 50]), encoders.pairs_of_bytes()
    if name in ("xlm-roberta", "camembert"):
        known["type_vocab_size"], tokenizer = draw.choice([1, 2]), encoders.unigrams()
    if name == "bert":
        known["type_vocab_size"], tokenizer = draw.choice([2, 2, 3]), encoders.pieces_of_words()
    if name == "roberta":
        known["type_vocab_size"], tokenizer = draw.choice([1, 2]), encoders.pairs_of_bytes()
    if name == "deberta-v2":
        tokenizer = encoders.pieces_of_sentences()
        known |= dict(relative_attention=True, pos_att_type=draw.choice([["c2p", "p2c"], ["p2c"], ["c2p"], "p2c|c2p"]), pad_token_id=0,
                      share_att_key=True, position_buckets=draw.choice([4, 8, 16, -1]), max_relative_positions=draw.choice([-1, 20, 100]),
                      norm_rel_ebd=draw.choice(["none", "layer_norm"]), position_biased_input=draw.random() < 0.5,
                      type_vocab_size=draw.choice([0, 2]), pooler_hidden_act=draw.choice(["gelu", "silu"]))
        if draw.random() < 0.15:
            known["relative_attention"] = False
    if "Classification" in kind.__name__:
        known["num_labels"] = draw.choice([2, 3, 5])
    return known | dict(vocab_size=len(tokenizer)), tokenizer


ENCODERS = [hf.BertForSequenceClassification, hf.BertModel, hf.BertForMaskedLM, hf.RobertaForSequenceClassification, hf.RobertaModel,
            hf.XLMRobertaForSequenceClassification, hf.XLMRobertaForMaskedLM, hf.CamembertForSequenceClassification, hf.CamembertForMaskedLM,
            hf.DistilBertForSequenceClassification, hf.DistilBertModel, hf.DistilBertForMaskedLM,
            hf.DebertaV2ForSequenceClassification, hf.DebertaV2Model, hf.ModernBertForSequenceClassification, hf.ModernBertModel,
            hf.ElectraForSequenceClassification, hf.ElectraForPreTraining, hf.AlbertForSequenceClassification, hf.AlbertForMaskedLM,
            hf.MPNetForSequenceClassification, hf.MPNetModel]


def write_encoder(folder, kind, seed):
    known, tokenizer = encoder(kind, seed)
    model = encoders.randomised(kind(kind.config_class(**known)), seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    encoders.write_reference(kind.from_pretrained(folder).eval(), tokenizer, folder)


def others(value):
    """Values of about the same kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, 0]
    if isinstance(value, float):
        return [value * 3 + 0.1]
    if isinstance(value, str):
        return ["relu", "gelu_new", "other"]
    if value is None:
        return [True, 2, 0.7, "other", [1], {"0": 1}]
    if isinstance(value, list):
        return [value[::-1], value[:1], []]
    return [{**value, "from_the_future": 1}, {}]


# Those which say what a class is, how it is stored, or in which form it answers.
SPARED = {"transformers_version", "architectures", "dtype", "model_type", "id2label", "label2id", "return_dict"}


def outputs(model, tokenizer):
    """The numbers of a network on texts of several lengths."""
    with torch.no_grad():
        if any(isinstance(model, kind) for kind in ENCODERS):
            inputs = encoders.given(tokenizer, encoders.TEXTS, padding=True)
            keys = ("input_ids", "attention_mask", "token_type_ids")[:3 if getattr(model.config, "type_vocab_size", 0) > 1 else 2]
            given = {key: inputs[key] for key in keys}
            return {"outputs": encoders.outputs(model, model, given), **given}
        tokens, mask = language.padded(tokenizer(language.PROMPTS)["input_ids"], "right")
        return {"outputs": language.last_logits(model, tokens, mask), "input_ids": tokens, "attention_mask": mask}


def base(kind):
    """A small network of a class, which has every part that a key may change."""
    if kind in DECODERS:
        known, tokenizer = decoder(kind, 0)
        known |= dict(num_hidden_layers=3) if "hidden_size" in known else dict(n_layer=3)
        known.pop("layer_types", None)
        known.pop("no_rope_layers", None)
    else:
        known, tokenizer = encoder(kind, 0)
        known.pop("layer_types", None)
    return kind.config_class(**known), tokenizer


def changed(first, name, key, value, kind, tokenizer):
    """The numbers of the same tensors under a changed config, or why there are none: transformers `refuses` it or `lacks` tensors."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "changed"
        shutil.copytree(first, folder)
        saved = json.loads((first / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(saved | {key: value}))
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                read, told = kind.from_pretrained(folder, output_loading_info=True, **plain(name))
                if any(told[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                    return "lacks"
                found = outputs(read.eval(), tokenizer)["outputs"]
        except RuntimeError as why:
            return "lacks" if "size mismatch" in str(why) else "refuses"
        except Exception:  # noqa: BLE001: transformers refuses in many ways
            return "refuses"
        return found if torch.isfinite(found).all() else "refuses"


def write_keys(folder, kind):
    """A network, and for each key of its class and some values what transformers computes then."""
    config, tokenizer = base(kind)
    name = config.model_type
    shutil.rmtree(folder, ignore_errors=True)
    (encoders if kind in ENCODERS else language).randomised(kind._from_config(config, **plain(name)), 3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    fields = {field.name for field in dataclasses.fields(kind.config_class)} | set(saved)
    tensors = outputs(kind.from_pretrained(folder, **plain(name)).eval(), tokenizer)
    cases, counts = [], dict(same=0, other=0, refuses=0, lacks=0)
    # A network that predicts masked tokens has an output matrix, which bella does not read.
    spared = SPARED | ({"tie_word_embeddings"} if "Masked" in kind.__name__ else set())
    for key in sorted(fields - spared):
        for value in others(saved.get(key, getattr(config, key, None))):
            # Bounds must be written as floating-point numbers there.
            if "softcapping" in key and type(value) is int:
                continue
            found = changed(folder, name, key, value, kind, tokenizer)
            same = torch.is_tensor(found) and found.shape == tensors["outputs"].shape and torch.allclose(found, tensors["outputs"], rtol=1e-6, atol=1e-7)
            effect = found if isinstance(found, str) else "same" if same else "other"
            counts[effect] += 1
            if effect == "other":
                tensors[f"outputs.{len(cases)}"] = found
            cases.append(dict(key=key, value=value, effect=effect))
    language.save_file({part: tensor.contiguous() for part, tensor in tensors.items()}, folder / "outputs.safetensors")
    (folder / "cases.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    print(f"{kind.__name__}: {counts['same']} values change nothing, {counts['other']} the numbers; {counts['refuses']} are refused, and {counts['lacks']} ask for other tensors")


SIGHTED = {"llava": [hf.LlamaConfig, hf.MistralConfig, hf.Qwen2Config, hf.Qwen3Config], "paligemma": [hf.GemmaConfig, hf.Gemma2Config]}


def write_sighted(folder, name, seed):
    """A random network that sees, with a random language network of those that it may have."""
    text, draw = SIGHTED[name][seed % len(SIGHTED[name])], random.Random(f"{name} {seed}")
    heads, eyes = draw.choice([2, 4]), draw.choice([2, 3])
    width = heads * draw.choice([4, 6, 8])
    sighted.PATCH, sighted.WIDTH, sighted.BLOCKS = draw.choice([3, 4, 5]), width, draw.choice([3, 4])
    sighted.SIDE = sighted.PATCH * draw.choice([2, 3])
    sighted.TEXT = dict(hidden_size=width, intermediate_size=draw.choice([14, 26]), num_hidden_layers=draw.choice([2, 3]), num_attention_heads=heads,
                        num_key_value_heads=draw.choice([1, heads]), max_position_embeddings=CONTEXT, rms_norm_eps=draw.choice([1e-6, 1e-4]))
    sighted.VISION = dict(hidden_size=eyes * draw.choice([4, 6]), intermediate_size=20, num_hidden_layers=sighted.BLOCKS, num_attention_heads=eyes,
                          image_size=sighted.SIDE, patch_size=sighted.PATCH, layer_norm_eps=draw.choice([1e-5, 1e-3]))
    sighted.SEED = seed
    folder.mkdir(parents=True)
    if name == "llava":
        known = dict(vision_feature_layer=draw.choice([-1, -2]), vision_feature_select_strategy=draw.choice(["default", "full"]),
                     multimodal_projector_bias=draw.random() < 0.5)
        one = sighted.Llava(draw.random() < 0.5, text=text, **known)
    else:
        more = dict(head_dim=draw.choice([4, 6]))
        if text is hf.Gemma2Config:
            more |= dict(query_pre_attn_scalar=draw.choice([4, 9]), sliding_window=100, attn_logit_softcapping=draw.choice([1.5, 20.0]),
                         final_logit_softcapping=draw.choice([None, 2.0]))
        one = sighted.PaliGemma(text, **more)
    one.model.save_pretrained(folder)
    one.tokenizer.save_pretrained(folder)
    generation = draw.choice([4, 5])
    sighted.reference(folder, one, generation)
    sighted.renamed(folder, sighted.NAMES[generation])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="1-3", help="FIRST-LAST")
    parser.add_argument("--only", default="", help="classes whose name has this part")
    parser.add_argument("--keys", action="store_true", help="write changed configs as well")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    first, last = map(int, asked.seeds.split("-"))
    for part, kinds, write in (("language", DECODERS, write_decoder), ("encoder", ENCODERS, write_encoder)):
        for kind in (kind for kind in kinds if asked.only in kind.__name__):
            for seed in range(first, last + 1):
                folder = asked.out / part / f"{kind.__name__}-{seed}"
                shutil.rmtree(folder, ignore_errors=True)
                write(folder, kind, seed)
            if asked.keys:
                write_keys(asked.out / "keys" / kind.__name__, kind)
    for name in (name for name in SIGHTED if asked.only in name):
        for seed in range(first, last + 1):
            folder = asked.out / "sighted" / f"{name}-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            write_sighted(folder, name, seed)


if __name__ == "__main__":
    main()
