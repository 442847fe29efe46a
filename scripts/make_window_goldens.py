#!/usr/bin/env python3
"""Writes tests/fixtures/windows.json: the window of every block (null where a token sees all before it) that transformers' classes read from
many configs. The test of src/model/language/config.rs holds bella to it.

    pip install transformers==5.24.0
    python scripts/make_window_goldens.py
"""

import itertools
import json
from pathlib import Path

import transformers as hf

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "windows.json"
BLOCKS = 7
FULL, SLIDING = "full_attention", "sliding_attention"
LISTED = [FULL, SLIDING, SLIDING, FULL, SLIDING, FULL, FULL]
# The values of the keys by which each class chooses windows; None leaves a key out, and all ways to combine them are tried.
KEYS = {
    "mistral": dict(sliding_window=[None, 64]),
    "qwen2": dict(use_sliding_window=[None, True], sliding_window=[None, 64], max_window_layers=[None, 3], layer_types=[None, LISTED]),
    "qwen3": dict(use_sliding_window=[None, True], sliding_window=[None, 64], max_window_layers=[None, 3], layer_types=[None, LISTED]),
    "gemma2": dict(sliding_window=[None, 64], layer_types=[None, LISTED]),
    "gemma3_text": dict(sliding_window=[None, 64], sliding_window_pattern=[None, 3], _sliding_window_pattern=[None, 2], layer_types=[None, LISTED]),
}


def windows(model_type, config):
    found = hf.CONFIG_MAPPING[model_type].from_dict(config)
    kinds = getattr(found, "layer_types", None) or [SLIDING] * BLOCKS
    return [found.sliding_window if kind == SLIDING else None for kind in kinds]


def main():
    hf.logging.set_verbosity_error()
    cases = []
    for model_type, keys in KEYS.items():
        for values in itertools.product(*keys.values()):
            config = dict(num_hidden_layers=BLOCKS) | {key: value for key, value in zip(keys, values) if value is not None}
            cases.append(dict(model_type=model_type, config=config, windows=windows(model_type, config)))
    OUT.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    print(OUT, OUT.stat().st_size, "bytes;", len(cases), "configs")


if __name__ == "__main__":
    main()
