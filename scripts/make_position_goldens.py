#!/usr/bin/env python3
"""Writes tests/fixtures/positions.json: the frequencies of rotary positions by which transformers' classes turn queries and keys, and what
they multiply cosines and sines by, for many configs, of which they refuse some. The tests of src/model/language/positions.rs hold bella to it.

    pip install transformers==5.24.0 torch==2.15.0
    python scripts/make_position_goldens.py
"""

import json
from pathlib import Path

import transformers as hf
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "positions.json"
CLASSES = {"llama": LlamaRotaryEmbedding, "gemma3_text": Gemma3RotaryEmbedding, "phi3": Phi3RotaryEmbedding}
KINDS = ["full_attention", "sliding_attention"]

SIZES = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=128)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="longrope", short_factor=[1 + k / 16 for k in range(16)], long_factor=[2.0] * 16)


def cases():
    """Pairs of a model type and the keys of its config that are of positions."""
    llama = lambda table, **more: ("llama", dict(rope_scaling=table, **more))
    yield from (llama(None, rope_theta=theta) for theta in (1e4, 5e5, 1e6, 5e6))
    yield from (llama(dict(rope_type=kind, factor=factor)) for kind in ("linear", "dynamic") for factor in (3.0, None))
    for change in ({}, dict(factor=None), dict(factor=None, original_max_position_embeddings=48), dict(factor=0.5), dict(factor=40, mscale=1.0),
                   dict(mscale=0.7, mscale_all_dim=0.4), dict(factor=None, mscale=0.7, mscale_all_dim=0.4), dict(beta_fast=None, beta_slow=None),
                   dict(beta_fast=20, beta_slow=2), dict(beta_fast=0, beta_slow=0), dict(mscale=0, mscale_all_dim=0.4), dict(mscale=0.7, mscale_all_dim=0),
                   dict(attention_factor=None), dict(attention_factor=1.5), dict(truncate=False),
                   dict(original_max_position_embeddings=None), dict(factor=None, original_max_position_embeddings=None)):
        yield llama(YARN | change)
    yield llama(dict(rope_type="yarn", factor=4.0))
    yield llama(dict(rope_type="yarn", factor=None))
    yield llama(dict(rope_type="yarn", original_max_position_embeddings=32))
    yield llama(YARN, original_max_position_embeddings=None)
    for change in ({}, dict(factor=0.5), dict(factor=None), dict(low_freq_factor=None), dict(high_freq_factor=None),
                   dict(original_max_position_embeddings=None)):
        yield llama(LLAMA3 | change, rope_theta=5e5)
    yield "phi3", dict(rope_scaling=LONG, original_max_position_embeddings=32)
    yield "phi3", dict(rope_scaling=LONG | dict(factor=None), original_max_position_embeddings=32)
    yield "phi3", dict(rope_scaling=LONG | dict(factor=3.0), original_max_position_embeddings=32)
    yield "phi3", dict(rope_scaling=LONG | dict(attention_factor=1.25), original_max_position_embeddings=32)
    yield "phi3", dict(rope_scaling=LONG, original_max_position_embeddings=None)
    both = lambda full: ("gemma3_text", dict(head_dim=32, num_hidden_layers=6, rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=1e3))))
    yield both(dict(rope_type="linear", factor=8.0, rope_theta=1e6))
    yield both(dict(rope_type="linear", factor=None, rope_theta=1e6))


def golden(model_type, table):
    """A case with what the class has, by kinds of layers where there are two; nothing where it refuses the config."""
    case = dict(model_type=model_type, config=SIZES | table)
    try:
        found = CLASSES[model_type](hf.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(case["config"]))))
    except Exception as why:  # noqa: BLE001: transformers refuses in many ways
        return case | dict(refused=type(why).__name__)
    names = [f"{kind}_" for kind in KINDS] if model_type == "gemma3_text" else [""]
    of = lambda name: dict(frequencies=getattr(found, f"{name}inv_freq").tolist(), amplitude=getattr(found, f"{name}attention_scaling"))
    return case | dict(ropes=[of(name) for name in names])


def main():
    hf.logging.set_verbosity_error()
    all_cases = [golden(*case) for case in cases()]
    OUT.write_text("[\n" + ",\n".join(map(json.dumps, all_cases)) + "\n]\n")
    print(OUT, OUT.stat().st_size, "bytes;", sum("refused" in case for case in all_cases), "of", len(all_cases), "are refused")


if __name__ == "__main__":
    main()
