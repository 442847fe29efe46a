#!/usr/bin/env python3
"""Runs what `bella export` prints for networks of texts: language networks, LLaVA and PaliGemma are loaded by transformers, adapters by PEFT,
and text encoders by TorchScript or transformers; their logits are compared with bella's, and adapters come back bit for bit. Then adapters that
PEFT itself has made, and models into which it has merged them, come in, and bella's logits are compared with theirs.

    pip install torch transformers peft safetensors pillow
    cargo build && python scripts/compare_text_exports.py [--bella target/debug/bella] [--only llama-3]

The networks are those of tests/fixtures/language, llava, paligemma and encoder: the smallest of every family, with random weights. With
transformers 4.52 to 4.57 installed, `--generation 4` exports for it.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from compare_exports import BOUND, ROOT, Place, coming_back, printed, randomised, runners, started

FIXTURES = ROOT / "tests" / "fixtures"
# Of weights that are stored in bf16 again after merging.
HALF_BOUND = 3e-2
# Folders of which transformers 4 reads the names and the rotary positions.
OLD = ["llama", "mistral", "llava transformers-4"]
BLOCKS = ["attn.q", "attn.k", "attn.v", "attn.proj", "mlp.gate", "mlp.fc", "mlp.proj", "lm_head"]
FUSED = ["attn.qkv", "attn.proj", "mlp.gate_fc", "mlp.proj", "lm_head"]
TURNED = ["attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"]
ENCODER = ["attn.q", "attn.k", "attn.v", "attn.proj", "mlp.fc", "mlp.proj"]
MODERN = ["attn.qkv", "attn.proj", "mlp.gate_fc", "mlp.proj"]
TOWER = ["vision.attn.qkv", "vision.attn.proj", "vision.mlp.fc", "vision.mlp.proj"]
SIGHT = ["projector.linear_1", "projector.linear_2", *TOWER]
TRAINING = """
method.svgd = {{ particles = 2, gamma = 0.01 }}
optimizer.adamw.lr = 2e-2
train = {{ epochs = 2, batch_size = 8 }}
head = {{ {head} = {{}} }}
subspace = {{ {subspace} }}
"""
WORDS = 'data.jsonl = {{ root = "{data}/texts", prompt = "is {{text}} big ?", labels = ["no", "yes"] }}\n'
# Words of one token for GPT-2's tokenizer.
LETTERS = WORDS.replace('"no", "yes"', '"n", "y"')
QUESTIONS = 'data.vqa-v2 = {{ root = "{data}/vqa"{labels} }}\n'


def write_texts(folder):
    """Sentences that say big or small, in the words of the fixtures' tokenizers."""
    folder.mkdir()
    nouns = ["cat", "dog", "fish", "bird", "tree", "house"]
    for name, numbers in (("train", range(40)), ("test", range(7, 27))):
        size = lambda i: ("big", 1) if i % 2 == 0 else ("small", 0)
        line = lambda i: {"text": f"the {size(i)[0]} {nouns[i // 2 % 6]}" + " runs" * (i % 4), "label": size(i)[1]}
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line(i)) + "\n" for i in numbers))


def write_questions(folder):
    """Questions about grey images in the layout of VQA v2."""
    generator = torch.Generator().manual_seed(1)
    for part, count in (("train2014", 16), ("val2014", 6)):
        (folder / part).mkdir(parents=True)
        questions, annotations = [], []
        for i in range(count):
            pixels = torch.randint(0, 256, (20, 20, 3), dtype=torch.uint8, generator=generator)
            Image.fromarray(pixels.numpy()).save(folder / part / f"COCO_{part}_{i:012}.jpg")
            questions.append({"image_id": i, "question_id": 10 * i, "question": "What is it?"})
            kind, answer = [("yes/no", "yes"), ("number", "2")][i % 2]
            answers = [{"answer": answer, "answer_id": n} for n in range(1, 11)]
            annotations.append({"question_id": 10 * i, "answer_type": kind, "multiple_choice_answer": answer, "answers": answers})
        for name, key, table in (("OpenEnded_mscoco", "questions", questions), ("mscoco", "annotations", annotations)):
            (folder / f"v2_{name}_{part}_{key}.json").write_text(json.dumps({"data_subtype": part, key: table}))


def low_rank(layers):
    return f"low-rank = {{ rank = 2, targets = {json.dumps(layers)} }}"


def train(place, network, data, head, subspace):
    config = place.folder / "x.toml"
    text = f'name = "exports"\nseed = 1\ncheckpoint.path = "{network}"\n' + data.format(data=place.folder) + TRAINING.format(head=head, subspace=subspace)
    config.write_text(text)
    shutil.rmtree(place.folder / "results", ignore_errors=True)
    place.run("train", "--config", config)
    return config


def leaving(place, network, data, layers, head, package):
    """Adapters and whole models of low-rank updates, of all weights, and with a classifier of their own."""
    config = train(place, network, data, head, low_rank(layers))
    for what, more in [("peft", ["--particle", 1]), ("peft", ["--soup"]), ("weights", ["--particle", 0]), ("weights", ["--soup"])]:
        yield f"{what} {more[0].strip('-')}", printed(place.export("--to", what, *more, *package))
    yield from coming_back(place, config, package)
    if head != "linear":
        yield from together(place)
    yield "weights full", printed(train(place, network, data, head, "full = {}") and place.export("--to", "weights", "--particle", 1, *package))
    if head == "answers":
        return
    train(place, network, data, "linear", low_rank(layers[:2]))
    for what in ("peft", "weights"):
        yield f"{what} with a classifier", printed(place.export("--to", what, "--particle", 0, *package))
    if "gemma2" in str(network):
        return  # its logits are bounded, for which a head beside the model has no place
    train(place, network, data, head, "last-layer = {}")
    yield "weights of the last layer", printed(place.export("--to", "weights", "--particle", 0))


def together(place):
    """The whole posterior in one file at other batch sizes, one particle of which transformers computes from its merged weights."""
    place.export("--to", "weights", "--particle", 1)
    merged = place.folder / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    shutil.copytree(place.folder / "out", merged)
    model, posterior = opened(merged).eval(), next(place.folder.glob("results/runs/*/*/posterior.safetensors"))
    with safe_open(posterior, "pt") as file:
        rows = json.loads(file.metadata()["head"]).get("rows")
    for what in ("torchscript", "onnx"):
        place.export("--to", what)
        expected = load_file(place.folder / "out" / "expected.safetensors")
        inputs = {name: expected[name] for name in ("input_ids", "attention_mask", "token_type_ids", "pixel_values") if name in expected}
        last, run, worst = expected["attention_mask"].sum(1) - 1, runners(place.folder / "out", what), 0.0
        with torch.no_grad():
            theirs = model(**inputs).logits[torch.arange(len(last)), last]
            for count in (1, 7):
                index = torch.arange(count) % len(last)
                logits = torch.as_tensor(run(*[tensor[index] for tensor in inputs.values()])[0])
                worst = max(worst, ((logits - expected["logits"][:, index]).abs().max() / expected["logits"].abs().max()).item())
                theirs_now = theirs[index] if rows is None else theirs[index][:, rows]
                worst = max(worst, ((logits[1] - theirs_now).abs().max() / theirs.abs().max()).item())
        yield f"{what} with all particles", worst


def halves(place, network, data):
    """A copy whose weights are bf16: adapters are exact, merged weights are rounded."""
    copy = place.folder / "half"
    shutil.copytree(network, copy)
    for path in copy.glob("model*.safetensors"):
        save_file({name: tensor.bfloat16() for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    train(place, copy, data, "label-words", low_rank(BLOCKS))
    yield "peft of bf16", printed(place.export("--to", "peft", "--particle", 1))
    yield "weights in bf16", printed(place.export("--to", "weights", "--particle", 1)) * BOUND / HALF_BOUND


def encoders(place):
    for name in ("bert", "roberta", "deberta-v2"):
        network = FIXTURES / "encoder" / name / f"{name}.pt"
        for subspace in ('low-rank = { rank = 2, targets = ["linear"] }', "full = {}"):
            # The encoders have classifiers of three classes.
            config = f'checkpoint.kind = "module"\n{WORDS}'.replace('"yes"', '"yes", "maybe"')
            train(place, network, config, "linear", subspace)
            yield f"{name} {subspace.split()[0]}", printed(place.export("--to", "weights", "--particle", 1))


def folders(place):
    """Text encoders that bella computes from their folders, with the layer on the first token and without it."""
    from transformers import AutoModelForSequenceClassification

    for name in ("bert", "bert-masked", "roberta", "roberta-model", "xlm-roberta", "distilbert", "distilbert-masked", "electra", "electra-model",
                 "albert", "albert-masked", "mpnet", "mpnet-model", "deberta-v2", "deberta-v2-model", "modernbert", "modernbert-model"):
        network = FIXTURES / "encoder" / "folders" / name
        own = name.removesuffix("-model").removesuffix("-masked")
        tokenizer = network.parent / {"electra": "bert", "albert": "bert", "mpnet": "roberta"}.get(own, own)
        data, classifies = f'checkpoint.tokenizer = "{tokenizer}"\n{WORDS}', name == own
        # DistilBERT's layer leaves whole, with its update added, so that its logits are rounded otherwise when it has come back.
        layers = (MODERN if "modern" in name else ENCODER) + (["pooler"] if classifies and name != "distilbert" else [])
        config = train(place, network, data, "linear", low_rank(layers))
        for what, more in [("peft", ["--particle", 1]), ("peft", ["--soup"]), ("weights", ["--particle", 0]), ("weights", ["--soup"])]:
            yield f"{name} {what} {more[0].strip('-')}", printed(place.export("--to", what, *more))
        for what, difference in coming_back(place, config, []):
            yield f"{name} {what}", difference
        place.export("--to", "weights")
        merged = place.folder / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        shutil.copytree(place.folder / "out", merged)
        for what in ("torchscript", "onnx"):
            place.export("--to", what)
            expected = load_file(place.folder / "out" / "expected.safetensors")
            inputs = {key: expected[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in expected}
            run, worst = runners(place.folder / "out", what), 0.0
            for count in (1, 7):
                index = torch.arange(count) % len(expected["input_ids"])
                logits = torch.as_tensor(run(*[tensor[index] for tensor in inputs.values()])[0])
                worst = max(worst, ((logits - expected["logits"][:, index]).abs().max() / expected["logits"].abs().max()).item())
                for particle in range(2 if classifies else 0):
                    model = AutoModelForSequenceClassification.from_pretrained(merged / f"particle-{particle}", dtype=torch.float32).eval()
                    with torch.no_grad():
                        theirs = model(**{key: tensor[index] for key, tensor in inputs.items()}).logits
                    worst = max(worst, ((logits[particle] - theirs).abs().max() / theirs.abs().max()).item())
            yield f"{name} {what} with all particles", worst
        train(place, network, data, "linear", "full = {}")
        yield f"{name} weights full", printed(place.export("--to", "weights", "--particle", 1))
        if name in ADAPTED_BY_PEFT:
            yield from classifying(place, network, data, ADAPTED_BY_PEFT[name])
        if name == "bert":
            train(place, network, data, "checkpoint", low_rank(ENCODER))
            yield f"{name} peft of its own classifier", printed(place.export("--to", "peft", "--particle", 0))
            yield f"{name} weights with its own classifier", printed(place.export("--to", "weights", "--particle", 0))


def imported(place, model, network, data, to):
    """What bella exports of an adapter and a classifier that PEFT has saved: inputs and logits."""
    adapter, config = place.folder / "peft", place.folder / "x.toml"
    shutil.rmtree(adapter, ignore_errors=True)
    model.save_pretrained(adapter)
    config.write_text(f'name = "exports"\nseed = 1\ncheckpoint.path = "{network}"\n' + data.format(data=place.folder) + "head.linear = {}\n")
    shutil.rmtree(place.folder / "results", ignore_errors=True)
    run = place.run("import", adapter, "--config", config).strip()
    place.export(run, "--to", to)
    return load_file(place.folder / "out" / "expected.safetensors")


# Of these, PEFT trains a classifier and what a class has in front of it.
ADAPTED_BY_PEFT = {"bert": ["query", "value", "dense"], "roberta": ["query", "value", "dense"], "distilbert": ["q_lin", "lin1"],
                   "electra": ["value", "embeddings_project"], "albert": ["query", "ffn"], "mpnet": ["v", "dense"]}


def classifying(place, network, data, ends):
    """An adapter that PEFT makes of a network that classifies, with its trained classifier."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    settings = dict(r=2, lora_alpha=3, rank_pattern={"value": 4}, target_modules=ends, task_type="SEQ_CLS")
    network_of_two = AutoModelForSequenceClassification.from_pretrained(network, num_labels=2, ignore_mismatched_sizes=True, dtype=torch.float32)
    model = get_peft_model(network_of_two, LoraConfig(**settings))
    model = randomised(model, 0)
    expected = imported(place, model, network, data, "weights")
    logits = expected.pop("logits")
    with torch.no_grad():
        found = model.eval()(**expected).logits
    yield f"import of PEFT's classifier on {network.name}", ((found - logits).abs().max() / found.abs().max()).item()


def without_output(place):
    """Decoders that classify the last token or give features alone, and classifiers that PEFT trains on those and on one that writes."""
    for name, head, layers in (("llama-classifier", "linear", BLOCKS[:-1]), ("qwen3-classifier", "checkpoint", BLOCKS[:-1]),
                               ("gpt2-classifier", "checkpoint", TURNED), ("mistral-model", "linear", BLOCKS[:-1])):
        network = FIXTURES / "language" / name
        config = train(place, network, WORDS, head, low_rank(layers))
        for what, more in [("peft", ["--particle", 1]), ("peft", ["--soup"]), ("weights", ["--particle", 0]), ("weights", ["--soup"])]:
            yield f"{name} {what} {more[0].strip('-')}", printed(place.export("--to", what, *more))
        for what, difference in coming_back(place, config, []):
            yield f"{name} {what}", difference
        for what in ("torchscript", "onnx"):
            yield f"{name} {what} with all particles", in_one_file(place, what)
        yield f"{name} weights full", printed(train(place, network, WORDS, head, "full = {}") and place.export("--to", "weights", "--particle", 1))
    for name in ("llama-classifier", "gpt2-classifier", "llama"):
        yield from scored_by_peft(place, name)


def in_one_file(place, what):
    """The difference of the logits of a posterior in one file, at two batch sizes."""
    place.export("--to", what)
    expected = load_file(place.folder / "out" / "expected.safetensors")
    run, worst = runners(place.folder / "out", what), 0.0
    for count in (1, 7):
        index = torch.arange(count) % len(expected["input_ids"])
        logits = torch.as_tensor(run(*[expected[key][index] for key in ("input_ids", "attention_mask")])[0])
        worst = max(worst, ((logits - expected["logits"][:, index]).abs().max() / expected["logits"].abs().max()).item())
    return worst


def scored_by_peft(place, name):
    """An adapter that PEFT makes of a decoder that classifies, with its trained classifier."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    network = FIXTURES / "language" / name
    model = AutoModelForSequenceClassification.from_pretrained(network, num_labels=2, ignore_mismatched_sizes=True, dtype=torch.float32)
    model.config.pad_token_id = 0
    ends = ["c_attn", "c_fc"] if "gpt2" in name else ["q_proj", "v_proj", "down_proj"]
    model = randomised(get_peft_model(model, LoraConfig(r=2, lora_alpha=3, target_modules=ends, task_type="SEQ_CLS", use_rslora=True)), 0)
    expected = imported(place, model, network, WORDS, "onnx")
    inputs = {key: expected[key] for key in ("input_ids", "attention_mask")}
    places = (torch.arange(len(inputs["input_ids"])), inputs["attention_mask"].sum(1) - 1)
    with torch.no_grad():
        # The random tokens may be those of padding, which the class itself does not take for the last one of a text.
        found = model.score(model.eval()(**inputs, output_hidden_states=True).hidden_states[-1][places])
    logits = expected["logits"].reshape(found.shape)
    yield f"import of PEFT's classifier on {name}", ((found - logits).abs().max() / found.abs().max()).item()


def opened(network):
    import transformers

    config = json.loads((Path(network) / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0]) if "vision_config" in config else transformers.AutoModelForCausalLM
    # Bounds of scores are computed by the plain code alone.
    return kind.from_pretrained(network, dtype=torch.float32, attn_implementation="eager" if "gemma2" in str(network) else None)


def compared(place, what, network, data, head, folders, models, options=()):
    """Imports folders and compares the logits of every particle with those of the package's model."""
    from transformers import AutoTokenizer

    config = place.folder / "x.toml"
    text = f'name = "exports"\nseed = 1\ncheckpoint.path = "{network}"\n' + data.format(data=place.folder) + f"head.{head} = {{}}\n"
    config.write_text(text)
    shutil.rmtree(place.folder / "results", ignore_errors=True)
    run = place.run("import", *folders, "--config", config, *options).strip()
    place.export(run, "--to", "weights")
    tokens = AutoTokenizer.from_pretrained(network).convert_tokens_to_ids
    ids = tokens(["n", "y"] if data == LETTERS else ["no", "yes"]) if head == "label-words" else slice(None)
    for number, model in enumerate(models):
        own = place.folder / "out" / ("" if len(models) == 1 else f"particle-{number}")
        expected = load_file(own / "expected.safetensors")
        logits = expected.pop("logits")
        last = expected["attention_mask"].sum(1) - 1
        with torch.no_grad():
            found = model(**expected).logits[torch.arange(len(last)), last][:, ids]
        yield f"import of {what} {number}", ((found - logits).abs().max() / found.abs().max()).item()


def coming(place, network, data, head):
    """Adapters that PEFT makes, and models into which it has merged them."""
    from peft import LoraConfig, get_peft_model

    ends = ["q_proj", "v_proj", "down_proj", "lm_head"] + (["linear" if "paligemma" in str(network) else "linear_1", "fc1", "k_proj"] if head == "answers" else [])
    larger = "v_proj"
    if "phi3" in str(network):
        ends, larger = ["qkv_proj", "gate_up_proj", "down_proj", "lm_head"], "qkv_proj"
    if "gpt2" in str(network):
        ends, larger = ["c_attn", "c_fc", "c_proj"], "c_attn"
    settings = dict(r=2, lora_alpha=3, use_rslora=True, rank_pattern={larger: 4}, alpha_pattern={"down_proj": 7}, target_modules=ends)
    folders, models = [], []
    for number in range(2):
        torch.manual_seed(number)
        models.append(randomised(get_peft_model(opened(network), LoraConfig(**settings)), number))
        folders.append(place.folder / f"peft-{number}")
        models[-1].save_pretrained(folders[-1])
    yield from compared(place, "PEFT's", network, data, head, folders, models)
    models[0].config.tie_word_embeddings = models[0].base_model.model.config.tie_word_embeddings
    if not models[0].config.tie_word_embeddings:
        merged = models[0].merge_and_unload()
        merged.save_pretrained(place.folder / "merged")
        yield from compared(place, "merged", network, data, head, [place.folder / "merged"], [merged])
        # The ranks of a tower's queries, keys and values add up.
        rank = 8 if head == "answers" else 6
        yield from compared(place, f"merged at rank {rank}", network, data, head, [place.folder / "merged"], [merged], ["--rank", rank])
    for folder in [*folders, place.folder / "merged"]:
        shutil.rmtree(folder, ignore_errors=True)


def cases():
    language = FIXTURES / "language"
    for name in ("llama", "llama-3", "llama-linear", "llama-yarn", "mistral", "mistral-window", "qwen3", "qwen3-biased", "gemma", "gemma2", "gemma3",
                 "olmo2", "smollm3"):
        yield name, language / name, WORDS, BLOCKS, "label-words"
    for name in ("phi3", "phi3-long"):
        yield name, language / name, WORDS, FUSED, "label-words"
    yield "qwen2", language / "qwen2", WORDS, BLOCKS[:-1], "linear"
    yield "gpt2", language / "gpt2", LETTERS, TURNED, "label-words"
    for name in ("transformers-4", "transformers-5"):
        yield f"llava {name}", FIXTURES / "llava" / name, QUESTIONS.replace("{labels}", ""), BLOCKS + SIGHT, "answers"
    asked = ', prompt = "<image>answer en {{question}}", resize = "stretch"'
    for name in ("gemma", "gemma2"):
        yield f"paligemma {name}", FIXTURES / "paligemma" / name, QUESTIONS.replace("{labels}", asked), BLOCKS + ["projector.linear", *TOWER], "answers"
    closed = QUESTIONS.replace("{labels}", ', labels = ["yes", "2"]')
    yield "llava with words", FIXTURES / "llava" / "transformers-5", closed, BLOCKS + SIGHT, "label-words"


def differences(place, only, generation):
    package = ["--for", f"transformers-{generation}"]
    for name, network, data, layers, head in cases():
        if only and name not in only or generation == 4 and name not in OLD:
            continue
        for found in leaving(place, network, data, layers, head, package):
            yield name, *found
        if head != "linear" and "with" not in name:
            for found in coming(place, network, data, head):
                yield name, *found
        if name == "llama-3":
            for found in halves(place, network, data):
                yield name, *found
    if (not only or "encoders" in only) and generation == 5:
        for found in encoders(place):
            yield "encoders", *found
    if (not only or "without_output" in only) and generation == 5:
        for found in without_output(place):
            yield "without_output", *found
    if (not only or "folders" in only) and generation == 5:
        for found in folders(place):
            yield "folders", *found


def main():
    options = started(__doc__)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(options.bella).resolve(), Path(folder))
        write_texts(place.folder / "texts")
        write_questions(place.folder / "vqa")
        for name, what, difference in differences(place, options.only, options.generation):
            print(f"{name:24} {what:32} {difference:.1e}", flush=True)
            worst = max(worst, difference)
    print(f"largest relative difference {worst:.1e}, bound {BOUND:.0e}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    main()
