#!/usr/bin/env python3
"""Writes tests/fixtures/tokens/kinds.json: the kinds of tokens (`token_type_ids`) that `AutoTokenizer` of transformers returns for a pair of texts
unless it is told to, or nothing, by the type of the network, the class and the settings of the tokenizer. The test of src/model/module/tokens.rs
holds bella to it.

    pip install transformers==5.24.0 tokenizers
    python scripts/make_kind_goldens.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import transformers as hf

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
OUT = FIXTURES / "tokens" / "kinds.json"
PIECES, BYTES, SENTENCES, UNIGRAMS = (f"encoder/folders/{name}" for name in ("bert", "roberta", "deberta-v2", "xlm-roberta"))
KEPT = dict(do_lower_case=False, keep_accents=True)
# The tokenizer, the type of the network, classes of which None is an absent one, and other settings.
FOLDERS = [
    (PIECES, "bert", [None, "BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend", "TokenizerOfNobody"], {}),
    (PIECES, "electra", [None, "ElectraTokenizer", "ElectraTokenizerFast", "TokenizersBackend"], {}),
    (PIECES, "distilbert", [None, "DistilBertTokenizer", "BertTokenizer"], {}),
    (PIECES, "modernbert", [None], {}),
    (PIECES, "albert", ["TokenizersBackend", "BertTokenizer"], {}),
    (SENTENCES, "albert", [None, "AlbertTokenizer", "AlbertTokenizerFast"], KEPT),
    (SENTENCES, "deberta-v2", [None, "DebertaV2Tokenizer", "DebertaV2TokenizerFast", "PreTrainedTokenizerFast"], {}),
    (BYTES, "roberta", [None, "RobertaTokenizerFast", "TokenizersBackend"], {}),
    (UNIGRAMS, "xlm-roberta", [None, "XLMRobertaTokenizer"], dict(add_prefix_space=True)),
]
NAMES = [None, ["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]]
PAIR = dict(first="the cat runs", second="a bird sees the sea .")


def golden(tokenizer, model_type, settings):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(FIXTURES / tokenizer / "tokenizer.json", folder)
        config = dict(model_type=model_type)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        found = hf.AutoTokenizer.from_pretrained(folder)(*PAIR.values()).get("token_type_ids")
    return dict(tokenizer=tokenizer, config=config, settings=settings, **PAIR, kinds=found)


def main():
    hf.logging.set_verbosity_error()
    cases = []
    for tokenizer, model_type, classes, more in FOLDERS:
        own = json.loads((FIXTURES / tokenizer / "tokenizer_config.json").read_text())
        own = {key: own[key] for key in ("model_max_length", *(key for key in own if key.endswith("_token")))}
        for name in classes:
            for names in NAMES:
                chosen = dict(tokenizer_class=name, model_input_names=names)
                cases.append(golden(tokenizer, model_type, own | more | {key: value for key, value in chosen.items() if value}))
    OUT.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    print(OUT, OUT.stat().st_size, "bytes;", sum(case["kinds"] is not None for case in cases), "of", len(cases), "have kinds")


if __name__ == "__main__":
    main()
