#!/usr/bin/env python3
"""Trains networks of texts beside PEFT, and writes texts beside it. Three steps of AdamW on LoRA, rsLoRA and DoRA begin with bella's start
of the factors: the loss of the label words or of a classifier, and what each factor becomes, are compared with those that torch makes of PEFT's
model. Then three members write greedy texts: at each token the probabilities of PEFT's models are averaged, and tokens, probabilities, entropies
and mutual information are compared with those of `bella predict --generate`.

    pip install torch transformers peft safetensors
    cargo build && python scripts/compare_text_training.py [--bella target/debug/bella] [--only gpt2]

The networks are those of tests/fixtures/language and encoder. Three steps divide small gradients by their own size, so both programs train in f64.
transformers computes norms and angles in f32 all the same: bella may be as far from PEFT as five times the distance of PEFT in f32, or 1e-5.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers as hf
from peft import PeftModel
from safetensors.torch import load_file

from compare_exports import ROOT, Place, started
from compare_text_exports import BLOCKS, ENCODER, FUSED, MODERN, TURNED, WORDS, write_texts

BOUND = 1e-5
LANGUAGE, ENCODERS = (ROOT / "tests" / "fixtures" / part for part in ("language", "encoder/folders"))
LR, DECAY, STEPS, TOKENS = 2e-2, 0.1, 3, 12
TRAINING = """
name = "training"
seed = 1
checkpoint.path = "{network}"
{method}
optimizer.adamw = {{ lr = {lr}, weight_decay = {decay} }}
train = {{ epochs = {steps}, batch_size = 40, schedule = "constant", precision = "{precision}" }}
head.{head} = {{}}
subspace.low-rank = {{ rank = 2, alpha = 3.0, targets = {targets}{more} }}
"""
WHOLE = ', whole = ["pooler"]'
# A folder, the layers, the head, and further keys of the updates.
CASES = [
    ("llama", BLOCKS, "label-words", ""), ("llama", BLOCKS[:-1], "label-words", ", rslora = true"),
    ("llama", BLOCKS[:-1], "label-words", ", dora = true"), ("llama-3", BLOCKS[:-1], "label-words", ""),
    ("gemma2", BLOCKS[:-1], "label-words", ""), ("gemma3", BLOCKS[:-1], "label-words", ", dora = true"),
    ("phi3", FUSED[:-1], "label-words", ", dora = true, rslora = true"), ("gpt2", TURNED, "label-words", ", dora = true"),
    ("qwen2", BLOCKS[:-1], "linear", ""), ("qwen3", BLOCKS, "label-words", ", dora = true"),
    ("olmo2", BLOCKS[:-1], "label-words", ', rank_pattern = ["attn.q=4", "1.mlp.fc=3"], alpha_pattern = ["attn.v=7"]'),
    ("smollm3", BLOCKS, "label-words", ", dora = true"), ("qwen3-classifier", BLOCKS[:-1], "checkpoint", ""),
    ("llama-classifier", BLOCKS[:-1], "linear", ""), ("bert", [*ENCODER, "pooler"], "linear", ""),
    ("bert", ENCODER, "checkpoint", ", dora = true"), ("roberta", [*ENCODER, "pooler"], "linear", ""),
    ("xlm-roberta", ENCODER, "linear", ""), ("distilbert", ENCODER, "linear", ", dora = true"),
    ("roberta", ENCODER, "linear", WHOLE), ("distilbert", ENCODER, "linear", WHOLE), ("llama", BLOCKS[:-1], "label-words", ', whole = ["lm_head"]'),
    ("deberta-v2", [*ENCODER, "pooler"], "linear", ""), ("modernbert", [*MODERN, "pooler"], "linear", ", dora = true"),
]
WRITERS = [("llama", BLOCKS, [5, 9, 13, 20, 30]), ("llama-3", BLOCKS, [2, 11]), ("mistral-window", BLOCKS, None), ("gemma2", BLOCKS, 7),
           ("gemma3", BLOCKS, None), ("phi3-long", FUSED, None), ("smollm3", BLOCKS, None), ("gpt2", TURNED, None)]


def trained(place, network, head, targets, more="", method="method.map = {}", lr=LR, steps=STEPS, precision="f64"):
    """The folder of the adapters of a run."""
    config = place.folder / "x.toml"
    words = WORDS.replace('"no", "yes"', '"n", "y"') if "gpt2" in network.name else WORDS
    config.write_text(TRAINING.format(network=network, method=method, lr=lr, decay=DECAY, steps=steps, head=head, targets=json.dumps(targets),
                                      more=more, precision=precision) + words.format(data=place.folder))
    shutil.rmtree(place.folder / "results", ignore_errors=True)
    place.run("train", "--config", config)
    place.export("--to", "peft")
    return place.folder / "out"


def prompts(place, part):
    rows = [json.loads(line) for line in (place.folder / "texts" / f"{part}.jsonl").read_text().splitlines()]
    return [f"is {row['text']} big ?" for row in rows], torch.tensor([row["label"] for row in rows])


def opened(network, adapter, classes=None, kind=torch.float32):
    """PEFT's model, with the classifier of the adapter if it is in the model's class."""
    auto = hf.AutoModelForSequenceClassification if classes else hf.AutoModelForCausalLM
    more = {"attn_implementation": "eager"} if "gemma2" in network.name else {}
    more |= dict(num_labels=classes, ignore_mismatched_sizes=True) if classes else {}
    return PeftModel.from_pretrained(auto.from_pretrained(network, dtype=kind, **more), adapter, is_trainable=True).to(kind)


def trained_names(tensors, more):
    """What is trained of an adapter: PEFT saves DistilBERT's layer on the first token as well, which stays as it is unless it is trained whole."""
    return {name for name in tensors if more == WHOLE or "pre_classifier" not in name}


def stepped(place, network, more, adapter, kind):
    """What torch makes of the factors of an adapter, and of a classifier beside it, by their names in the files."""
    texts, labels = prompts(place, "train")
    tokenizer = hf.AutoTokenizer.from_pretrained(network)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    classifies = network.parent == ENCODERS or "classifier" in network.name
    model = opened(network, adapter, 2 if classifies else None, kind).eval()  # no dropout, of which a classifier has some
    inputs = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    if network.parent == LANGUAGE:
        inputs.pop("token_type_ids", None)
    places = (torch.arange(len(labels)), inputs["attention_mask"].sum(1) - 1)
    beside = load_file(adapter / "head.safetensors") if (adapter / "head.safetensors").exists() else {}
    beside = {key: value.to(kind).requires_grad_() for key, value in beside.items()}
    own = {name.replace(".default", "").replace(".modules_to_save", ""): value for name, value in model.named_parameters()}
    names = trained_names(load_file(adapter / "adapter_model.safetensors"), more)
    factors = {name: own.get(name, own.get(f"{name}.weight")) for name in names} | beside
    words = ["n", "y"] if "gpt2" in network.name else ["no", "yes"]
    optimizer = torch.optim.AdamW(factors.values(), lr=LR, weight_decay=DECAY)
    for _ in range(STEPS):
        if beside:
            logits = model(**inputs, output_hidden_states=True).hidden_states[-1][places] @ beside["weight"].T + beside["bias"]
        elif network.parent == ENCODERS:
            logits = model(**inputs).logits
        elif classifies:
            logits = model.score(model(**inputs, output_hidden_states=True).hidden_states[-1][places])
        else:
            logits = model(**inputs).logits[places][:, tokenizer.convert_tokens_to_ids(words)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
    return {name: value.detach() for name, value in factors.items()}


def steps(place, only):
    for name, targets, head, more in CASES:
        if only and name not in only:
            continue
        network = next(folder / name for folder in (LANGUAGE, ENCODERS) if (folder / name).exists())
        # The start of the factors is that of a run whose steps change nothing.
        start = place.folder / "start"
        shutil.rmtree(start, ignore_errors=True)
        trained(place, network, head, targets, more, lr=1e-30).rename(start)
        out = trained(place, network, head, targets, more)
        found = load_file(out / "adapter_model.safetensors")
        if (out / "head.safetensors").exists():
            found |= load_file(out / "head.safetensors")
        expected = stepped(place, network, more, start, torch.float64)
        assert trained_names(found, more) == expected.keys()
        apart = lambda own: max(((own[key] - value).norm() / value.norm()).item() for key, value in expected.items())
        own = apart(stepped(place, network, more, start, torch.float32))
        yield f"{name} {head}{more}", apart(found), max(BOUND, 5 * own)


def continued(models, ids, stop):
    """The ids of a greedy text with probability, entropy and mutual information of each."""
    written, entropy = [], lambda p: -torch.xlogy(p, p).sum(-1)
    for _ in range(TOKENS):
        tokens = torch.tensor([ids + [one["id"] for one in written]])
        each = torch.stack([model(input_ids=tokens).logits[0, -1].double().softmax(-1) for model in models])
        mean = each.mean(0)
        token = int(mean.argmax())
        if token in stop:
            break
        apart = entropy(mean) - entropy(each).mean()
        written.append(dict(id=token, probability=mean[token].item(), entropy=entropy(mean).item(), mutual_information=apart.item()))
    return written


def texts(place, only):
    for name, targets, ends in WRITERS:
        if only and name not in only:
            continue
        network = place.folder / name
        shutil.rmtree(network, ignore_errors=True)
        shutil.copytree(LANGUAGE / name, network)
        if ends is not None:
            (network / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        adapters = trained(place, network, "label-words", targets, method="method.ensemble = { particles = 3 }", lr=5e-2, precision="f32")
        run = next(place.folder.glob("results/runs/*/*/posterior.safetensors")).parent
        asked = place.folder / "texts" / "test.jsonl"
        lines = place.run("predict", run, asked, "--generate", TOKENS, "--format", "jsonl", "--batch-size", 5).splitlines()
        tokenizer = hf.AutoTokenizer.from_pretrained(network)
        models = [opened(network, adapters / f"particle-{member}").eval() for member in range(3)]
        stop = {tokenizer.eos_token_id, *([ends] if isinstance(ends, int) else ends or [])}
        worst = 0.0
        with torch.no_grad():
            for text, line in zip(prompts(place, "test")[0], map(json.loads, lines)):
                expected = continued(models, tokenizer(text)["input_ids"], stop)
                same = [one["id"] for one in expected] == [one["id"] for one in line["tokens"]]
                same &= line["text"] == tokenizer.decode([one["id"] for one in expected], skip_special_tokens=True)
                numbers = [abs(one[key] - other[key]) for one, other in zip(expected, line["tokens"]) for key in one]
                worst = max(worst, *numbers, 0.0 if same else float("inf"))
        yield f"{name} writes", worst, BOUND


def main():
    options, failed = started(__doc__), False
    hf.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(options.bella).resolve(), Path(folder))
        write_texts(place.folder / "texts")
        for compare in (steps, texts):
            for name, difference, bound in compare(place, options.only):
                failed |= not difference <= bound
                print(f"{name:100} {difference:.1e} of {bound:.1e}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
