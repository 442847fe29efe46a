#!/usr/bin/env python3
"""Makes the prompts of BayesAdapt by its own code and writes them to tests/fixtures/authors/bayesadapt_prompts.json, to which the tests of
src/data/sets/mod.rs and src/model/chat.rs hold bella.

| repository | commit | what is run |
|---|---|---|
| SRI-CSL/BayesAdapt | 3843000 | `Winogrande`, `ARC`, `OBQA`, `BoolQ`; `base_collate_fn`, `instruct_collate_fn` |

    pip install torch==2.11.0 transformers==5.24.0 pillow
    python scripts/make_bayesadapt_prompt_goldens.py BAYESADAPT TEMPLATE

BAYESADAPT is a folder with this repository at this commit; TEMPLATE is the chat template of Qwen/Qwen3-8B, the key `chat_template` of its
tokenizer_config.json, as a file. The samples are made up here, in the form in which the package of data sets returns them: no published
set is needed.
"""

import argparse
import json
import sys
from pathlib import Path

import tokenizers
import transformers

from author_code import Empty, package

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "bayesadapt_prompts.json"
CHOICES = ["the sun ", " a cell, perhaps", "it's the\u00e9 \u201cfirst\u201d", "none\u00a0"]
LETTERS, DIGITS = ["A", "B", "C", "D", "E"], ["1", "2", "3", "4"]


def question(key, stem, labels, texts, answer):
    return {"id": "q", key: stem, "choices": {"text": texts, "label": labels}, "answerKey": answer}


# Of each set: the class's name, its arguments, the table that selects it in bella, and samples.
SETS = {
    "winogrande": ("winogrande", "Winogrande", {"size": "m"}, 'size = "m"', [
        {"sentence": "The cat saw _ .", "option1": "it", "option2": "me", "answer": "2"},
        {"sentence": " Ian put {the} _ on, \u2018so\u2019 Bo\nleft. ", "option1": "hat ", "option2": " coat", "answer": "1"},
    ]),
    "arc": ("arc", "ARC", {"difficulty": "easy"}, "", [
        question("question", "Why does it shine?", LETTERS[:4], CHOICES, "C"),
        question("question", " Which is\nfifth? ", LETTERS, [*CHOICES, "the last \n"], "E"),
        question("question", "Numbers?", DIGITS, CHOICES, "4"),
        question("question", "Three?", LETTERS[:3], CHOICES[:3], "A"),
    ]),
    "openbookqa": ("obqa", "OBQA", {}, "", [
        question("question_stem", "Frilled sharks", LETTERS[:4], CHOICES, "D"),
        question("question_stem", "as the car approached (a)", LETTERS[:4], CHOICES[::-1], "B"),
    ]),
    "boolq": ("boolq", "BoolQ", {}, "", [
        {"question": "is it", "passage": "A {text} -- of words. " * 80, "answer": True, "title": "T"},
        {"question": "was \u00e9 not\u2026", "passage": " short\n", "answer": False, "title": "T"},
    ]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("template", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(options.repository))
    samples = {}
    # What downloads data sets returns the samples.
    sys.modules["datasets"] = Empty("datasets")
    sys.modules["datasets"].load_dataset = lambda *_, **__: {"train": samples["now"], "validation": samples["now"]}
    package("bayesadapt", options.repository / "bayesadapt")
    from bayesadapt.datasets.collate import base_collate_fn, instruct_collate_fn

    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, "?")))
    plain.chat_template = options.template.read_text()

    class Recording:
        """A tokenizer that returns the texts that it gets."""

        apply_chat_template = staticmethod(plain.apply_chat_template)

        def __call__(self, texts, **settings):
            return {"texts": texts, "special": settings["add_special_tokens"]}

    found = {}
    for key, (module, name, arguments, table, all_samples) in SETS.items():
        samples["now"] = all_samples
        own = getattr(__import__(f"bayesadapt.datasets.{module}", fromlist=[name]), name)(split="train", **arguments)
        items = [own[i] for i in range(len(own))]
        (base, labels, _), (chat, _, _) = base_collate_fn(Recording(), items), instruct_collate_fn(Recording(), items)
        assert base["special"] and not chat["special"]
        found[key] = {
            "table": table, "samples": all_samples, "classes": own.labels, "labels": labels.tolist(),
            "instruct": [item["prompt"] for item in items], "base": base["texts"], "chat": chat["texts"],
        }
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{OUT}: {sum(len(one['samples']) for one in found.values())} samples of {len(found)} sets")


if __name__ == "__main__":
    main()
