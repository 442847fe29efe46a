"""The tokens that transformers adds to a tokenizer when it opens a folder, for tests/fixtures/tokens/added.json.

Made with transformers 5.24.0: pip install transformers; python scripts/make_added_token_goldens.py
"""
import json
import shutil
import tempfile
from pathlib import Path

import transformers

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "tests/fixtures/encoder/roberta"
TEXTS = ["the big cat <extra> runs", "a<extra>b", "<other> is <mask> big", "the cat [ENT] the", "big<extra><other>"]
TOKEN = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
CASES = [
    {"settings": {"additional_special_tokens": ["<extra>", "<other>"]}},
    {"settings": {"extra_special_tokens": ["<other>", "<extra>"]}},
    {"settings": {"extra_special_tokens": {"image_token": "<extra>"}}},
    {"settings": {"added_tokens_decoder": {"302": {**TOKEN, "content": "<extra>"}, "301": {**TOKEN, "content": "[ENT]", "special": False, "rstrip": True}}}},
    {"settings": {"added_tokens_decoder": {"301": {**TOKEN, "content": "<extra>"}}}, "special_tokens_map.json": {"additional_special_tokens": ["<other>"]}},
    {"added_tokens.json": {"<other>": 302, "<extra>": 301}},
    {"added_tokens.json": {"[ENT]": 303, "<extra>": 301}, "special_tokens_map.json": {"additional_special_tokens": ["<extra>", "<other>"]}},
    {"special_tokens_map.json": {"mask_token": {"content": "<extra>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}}},
    {"settings": {"mask_token": "cat"}},
]


def main():
    found = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for name in ["tokenizer.json", "tokenizer_config.json"]:
                shutil.copy(SOURCE / name, folder / name)
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **case.get("settings", {})}))
            for name in ["special_tokens_map.json", "added_tokens.json"]:
                if name in case:
                    (folder / name).write_text(json.dumps(case[name]))
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            found.append({**case, "ids": [tokenizer(text)["input_ids"] for text in TEXTS]})
    golden = {"source": f"transformers {transformers.__version__}", "texts": TEXTS, "cases": found}
    (ROOT / "tests/fixtures/tokens/added.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
