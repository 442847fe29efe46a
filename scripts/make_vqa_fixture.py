#!/usr/bin/env python3
"""Writes answers with the official VQA accuracy, EvalAI's and the human confidence, computed here from the published rule.

    python scripts/make_vqa_fixture.py                          # tests/fixtures/vqa/answers.json, 120 sets of ten answers
    python scripts/make_vqa_fixture.py --sets 10000 all.json    # more; BELLA_VQA_SETS=all.json cargo nextest run --test commands vqa::

The sets are random and cover every branch: ten equal answers, numbers as words and digits, articles, contractions, periods
before digits and elsewhere (also more than 32 of them), commas within numbers, marks beside spaces and between letters, line
breaks and tabs. The table of contractions is the one in src/metrics/answers.

    python scripts/make_vqa_fixture.py --sets 10000 all.json --official vqaEval.py --evalai m4c_evaluator.py

compares both accuracies of every set with the authors' own programs: PythonEvaluationTools/vqaEvaluation/vqaEval.py of GT-Vision-Lab/VQA
(commit a013f004) and llava/eval/m4c_evaluator.py of haotian-liu/LLaVA (commit c121f043).
"""

import argparse
import json
import random
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parent.parent
CONTRACTIONS = dict(line.split("\t") for line in
                    (ROOT / "src/metrics/answers/contractions.tsv").read_text().splitlines())
MARKS = list(";/[]\"{}()=+\\_-><@`,?!")
DIGITS = {word: str(number) for number, word in enumerate("zero one two three four five six seven eight nine ten".split())} | {"none": "0"}


def punctuated(text):
    comma = re.search(r"\d,\d", text)
    keep = {mark: "" if comma or f"{mark} " in text or f" {mark}" in text else " " for mark in MARKS}
    replaced = "".join(keep.get(letter, letter) for letter in text)
    # The flag re.UNICODE (32) is passed as the number of replacements.
    return re.sub(r"\.(?!\d)", "", replaced, count=32)


def plain(text):
    words = [DIGITS.get(word, word) for word in text.lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ("a", "an", "the"))


def line(text):
    return re.sub(r"[\n\t]", " ", text).strip()


def score(answer, people):
    """The exact mean over the ten ways to leave one person out."""
    total = Fraction(0)
    for left_out in range(len(people)):
        others = people[:left_out] + people[left_out + 1:]
        total += min(Fraction(1), Fraction(others.count(answer), 3))
    return float(total / len(people))


def official(answer, people):
    answer, people = line(answer), [line(one) for one in people]
    if len(set(people)) > 1:
        answer, people = plain(punctuated(answer)), [plain(punctuated(one)) for one in people]
    return score(answer, people)


def evalai_wording(text):
    text = text.lower()
    for gone in ",?":
        text = text.replace(gone, "")
    return plain(punctuated(line(text.replace("'s", " 's"))))


def evalai(answer, people):
    return score(evalai_wording(answer), [evalai_wording(one) for one in people])


def confidence(people):
    people = [line(one) for one in people]
    return max(map(people.count, people)) / len(people)


WORDS = ["cat", "dog", "Red", "blue", "yes", "no", "tennis racket", "1,000", "3.5", "10", "a.m", "U.S.A.", "it's", "man's", "7",
         "black and white", "los angeles", "St. Louis"]


def base(random):
    """Some text with one or two features of the rule."""
    words = [random.choice(WORDS + list(DIGITS) + list(CONTRACTIONS)) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    return " ".join(words)


def variant(random, text):
    """The same text in another wording."""
    changes = [
        lambda: text, lambda: text, lambda: text.upper(), lambda: text.title(), lambda: random.choice(["a ", "The ", "an "]) + text,
        lambda: text + ".", lambda: text + random.choice(MARKS), lambda: text.replace(" ", random.choice(MARKS)),
        lambda: text.replace(" ", f" {random.choice(MARKS)} "), lambda: f"{random.choice(MARKS)} {text}", lambda: f" {text}\n",
        lambda: text.replace(" ", "\t"), lambda: text.replace("'", ""), lambda: f"{text}, {random.randrange(9)},{random.randrange(9)}00",
        lambda: text + "." * random.choice([2, 31, 33, 40]), lambda: f"{random.randrange(9)}.{random.randrange(9)} {text}",
        lambda: " ".join(next((w for w, d in DIGITS.items() if d == word), word) for word in text.split()),
        lambda: random.choice(MARKS) + text + random.choice(MARKS), lambda: "", lambda: text.replace(" ", "\n\n"),
    ]
    return random.choice(changes)()


def sets(count):
    source = random.Random(20)
    for _ in range(count):
        texts = [base(source) for _ in range(source.choice([1, 1, 2, 3]))]
        if source.random() < 0.15:
            people = [variant(source, texts[0])] * 10
        else:
            people = [variant(source, source.choice(texts)) for _ in range(10)]
        answer = source.choice([lambda: source.choice(people), lambda: variant(source, source.choice(texts)), lambda: base(source)])()
        yield {"answer": answer, "people": people, "accuracy": official(answer, people), "evalai": evalai(answer, people),
               "confidence": confidence(people)}


def theirs(file, name):
    """The class of this name in the authors' file, without its prints in the syntax of Python 2."""
    text, scope = re.sub(r'^(\s*)print ".*$', r"\1pass", Path(file).read_text(), flags=re.MULTILINE), {}
    exec(compile(text, str(file), "exec"), scope)
    return scope[name]


def official_by(program):
    """The official accuracy as the authors' class computes it."""
    program.updateProgress = lambda *_: None

    def score(answer, people):
        truth = [{"answer": one, "answer_confidence": "yes", "answer_id": number} for number, one in enumerate(people, 1)]
        asked = SimpleNamespace(qa={1: {"answers": truth, "question_type": "", "answer_type": "other"}}, getQuesIds=lambda: [1])
        evaluation = program(asked, SimpleNamespace(qa={1: {"answer": answer}}), n=9)
        evaluation.evaluate()
        return evaluation.accuracy["overall"] / 100

    return score


def compare(made, official, evalai):
    """Fails at the first set whose accuracies are not those of the authors' programs."""
    if official:
        score = official_by(theirs(official, "VQAEval"))
        assert all(abs(score(one["answer"], one["people"]) - one["accuracy"]) < 1e-9 for one in made)
    if evalai:
        program = theirs(evalai, "TextVQAAccuracyEvaluator")()
        score = lambda one: program.eval_pred_list([{"pred_answer": one["answer"], "gt_answers": one["people"]}])
        assert all(abs(score(one) - one["evalai"]) < 1e-9 for one in made)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=120)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "tests/fixtures/vqa/answers.json")
    parser.add_argument("--official", metavar="FILE", help="the authors' vqaEval.py")
    parser.add_argument("--evalai", metavar="FILE", help="LLaVA's m4c_evaluator.py")
    arguments = parser.parse_args()
    made = list(sets(arguments.sets))
    compare(made, arguments.official, arguments.evalai)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(one) for one in made)
    arguments.out.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
