#!/usr/bin/env python3
"""Writes tests/fixtures/encoder: the smallest random text encoders, exported by scripts/export_text_encoder.py from folders as
transformers saves them, with their tokenizers, and what transformers computes from them (texts.json: texts, pairs and their token
ids and kinds; reference.safetensors: the outputs of all texts and of all pairs, alone in their batch, and gradients by some weights).
Then tests/fixtures/encoder/folders: such encoders as transformers saves them, with what it computes from batches of texts and of pairs,
padded on either side, and the gradients of low-rank updates (reference.safetensors). Then tests/fixtures/encoder/peft: adapters that PEFT makes of
some of these folders for classification, with the layers that it trains whole, and its logits (expected.safetensors). Then
tests/fixtures/encoder/sentences: what sentence-transformers writes beside some of these folders, and the features that it encodes texts to
(expected.safetensors).

    pip install torch transformers tokenizers safetensors peft sentence-transformers
    python scripts/make_encoder_fixtures.py [folders [NAME ...] | peft | sentences]     # those alone, of folders all or some

The archives were written with transformers 5.23.0, the folders with transformers 5.24.0 and torch 2.11.0, the adapters
with peft 0.21.2, the features with sentence-transformers 6.2.0.
"""

import functools
import json
import shutil
import sys
import tempfile
from pathlib import Path

import tokenizers as tk
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch.func import functional_call

import export_text_encoder as export

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "encoder"
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
WORDS = """the a cat dog fish bird tree house sun moon sea river runs sleeps eats sees likes is was big small red blue green and or not
in on under . , ? ! yes no ##s ##er""".split()
CORPUS = ["the cat sees the moon and the dog sleeps under a tree.", "a big red fish likes the blue sea, or not?",
          "is the sun green? no", "the small bird runs in the house. yes, it is \u00fcber caf\u00e9 10% big"]
TEXTS = ["the cat sees the moon", "fish", "a big red fish likes the blue sea , or not ?", "is the sun green ? no , the sun is red !",
         "the small bird runs in the house and the dog sleeps under a tree . yes , the tree was big and the house was not green ."]
PAIRS = [["the cat runs", "the cat sleeps"], ["a bird", "the bird sees the sea and the river ."], ["is the dog in the house ?", "no"]]


# What the tokenizers of BERT and DeBERTa return; that which tokenizers without a class of their own return has no kinds.
NAMES = ["input_ids", "token_type_ids", "attention_mask"]


def given(tokenizer, *texts, **how):
    """The inputs of a network, which takes the first kind for all tokens where the tokenizer returns no kinds."""
    inputs = tokenizer(*texts, return_tensors="pt", **how)
    return {"token_type_ids": torch.zeros_like(inputs["input_ids"]), **inputs}


def pieces_of_words():
    """A tokenizer as BERT's, with two kinds of tokens."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = tk.Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = tk.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                      sep_token="[SEP]", model_max_length=40, model_input_names=NAMES)


def pairs_of_bytes():
    """A tokenizer as RoBERTa's."""
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>",
                                      unk_token="<unk>", pad_token="<pad>", model_max_length=96)


SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def between_marks(tokenizer, **more):
    """A tokenizer whose texts stand between [CLS] and [SEP]."""
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                      sep_token="[SEP]", mask_token="[MASK]", model_max_length=96, **more)


@functools.cache
def pieces_of_sentences():
    """A tokenizer as DeBERTa's, of a unigram model, which is another one each time that it is trained."""
    tokenizer = tk.Tokenizer(models.Unigram())
    tokenizer.normalizer = tk.normalizers.Sequence([tk.normalizers.Strip(), tk.normalizers.NFKC()])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return between_marks(tokenizer, model_input_names=NAMES)


@functools.cache
def unigrams():
    """A tokenizer as XLM-RoBERTa's, which is another one each time that it is trained."""
    tokenizer = tk.Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = tk.normalizers.NFKC(), pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False))
    vocabulary = [*map(tuple, json.loads(tokenizer.to_str())["model"]["vocab"]), ("<mask>", 0.0)]
    return hf.XLMRobertaTokenizer(vocab=vocabulary, model_max_length=96)


def bytes_between_marks():
    """A tokenizer as ModernBERT's."""
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.normalizer = tk.normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return between_marks(tokenizer)


def randomised(model, seed=11):
    """Every parameter random, so that none of them can be left out unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.5 if parameter.dim() < 2 else 0.3))
            if ("LayerNorm" in name or "norm." in name) and name.endswith("weight"):
                parameter.add_(1.0)
    return model.eval()


DEBERTA = dict(**SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0, max_position_embeddings=48, pad_token_id=0)
NETWORKS = {
    "bert": (hf.BertForSequenceClassification, pieces_of_words, "pooled",
             lambda v: hf.BertConfig(vocab_size=v, **SMALL, max_position_embeddings=40)),
    "roberta": (hf.RobertaForSequenceClassification, pairs_of_bytes, "classifier",
                lambda v: hf.RobertaConfig(vocab_size=v, **SMALL, max_position_embeddings=98, type_vocab_size=1, num_labels=3,
                                           id2label={0: "entailment", 1: "neutral", 2: "contradiction"},
                                           label2id={"entailment": 0, "neutral": 1, "contradiction": 2})),
    "deberta": (hf.DebertaForSequenceClassification, pieces_of_words, "first", lambda v: hf.DebertaConfig(vocab_size=v, **DEBERTA)),
    "deberta-v2": (hf.DebertaV2ForSequenceClassification, pieces_of_words, "mean",
                   lambda v: hf.DebertaV2Config(vocab_size=v, **DEBERTA, position_buckets=8, norm_rel_ebd="layer_norm",
                                                share_att_key=True, position_biased_input=False, max_relative_positions=-1)),
}
LAYERS = ("word_embeddings.weight", "layer.0.output.dense.weight", "layer.1.attention.self.value.bias")


def expected(encoder, tokenizer, name):
    """The outputs of each text alone, [N, D], and gradients of their sum with coefficients by some weights."""
    tensors = {}
    for what, texts in (("texts", TEXTS), ("pairs", PAIRS)):
        outputs = []
        for text in texts:
            one = given(tokenizer, *(text if what == "pairs" else [text]))
            taken = [one["input_ids"], one["attention_mask"]]
            if isinstance(encoder, export.EncoderOfKinds):
                taken.append(one["token_type_ids"])
            outputs.append(encoder(*taken))
        tensors[what] = torch.cat(outputs)
    coefficients = torch.randn(tensors["pairs"].shape, generator=torch.Generator().manual_seed(5))
    parameters = {key.removeprefix("model."): p for key, p in encoder.model.named_parameters() if key.endswith(LAYERS)}
    gradients = torch.autograd.grad((tensors["pairs"] * coefficients).sum(), list(parameters.values()))
    tensors["coefficients"] = coefficients
    return tensors | {f"{key}.gradient": gradient for key, gradient in zip(parameters, gradients)}


MODERN = SMALL | dict(num_hidden_layers=3, max_position_embeddings=96, local_attention=6, pad_token_id=0, cls_token_id=1, sep_token_id=2,
                      bos_token_id=1, eos_token_id=2)
BERT = lambda v, **more: hf.BertConfig(vocab_size=v, **SMALL, max_position_embeddings=40, **more)
DISTILLED = dict(dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=40)
ROBERTA = lambda v, **more: hf.RobertaConfig(vocab_size=v, **SMALL, max_position_embeddings=98, type_vocab_size=1, **more)
FOLDERS = {
    "bert": (hf.BertForSequenceClassification, pieces_of_words, BERT, {}),
    "bert-masked": (hf.BertForMaskedLM, pieces_of_words, BERT, dict(hidden_act="gelu_new", layer_norm_eps=1e-5)),
    "roberta": (hf.RobertaForSequenceClassification, pairs_of_bytes, ROBERTA,
                dict(num_labels=3, id2label={0: "entailment", 1: "neutral", 2: "contradiction"},
                     label2id={"entailment": 0, "neutral": 1, "contradiction": 2})),
    "roberta-model": (hf.RobertaModel, pairs_of_bytes, ROBERTA, {}),
    "xlm-roberta": (hf.XLMRobertaForSequenceClassification, unigrams, lambda v, **more: hf.XLMRobertaConfig(vocab_size=v, **more),
                    dict(**SMALL, max_position_embeddings=98, type_vocab_size=1, num_labels=3)),
    "distilbert": (hf.DistilBertForSequenceClassification, pieces_of_words, lambda v, **more: hf.DistilBertConfig(vocab_size=v, **more), DISTILLED),
    "distilbert-masked": (hf.DistilBertForMaskedLM, pieces_of_words, lambda v, **more: hf.DistilBertConfig(vocab_size=v, **more),
                          DISTILLED | dict(activation="gelu_new", sinusoidal_pos_embds=True)),
    "deberta-v2": (hf.DebertaV2ForSequenceClassification, pieces_of_sentences, lambda v, **more: hf.DebertaV2Config(vocab_size=v, **more),
                   DEBERTA | dict(position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False,
                                  max_relative_positions=-1, max_position_embeddings=96)),
    "deberta-v2-model": (hf.DebertaV2Model, pieces_of_sentences, lambda v, **more: hf.DebertaV2Config(vocab_size=v, **more),
                         DEBERTA | dict(pos_att_type=["p2c"], share_att_key=True, type_vocab_size=2, max_position_embeddings=96)),
    "electra": (hf.ElectraForSequenceClassification, pieces_of_words, lambda v, **more: hf.ElectraConfig(vocab_size=v, **more),
                SMALL | dict(embedding_size=10, max_position_embeddings=40, num_labels=3)),
    "electra-model": (hf.ElectraForPreTraining, pieces_of_words, lambda v, **more: hf.ElectraConfig(vocab_size=v, **more),
                      SMALL | dict(embedding_size=16, max_position_embeddings=40)),
    "albert": (hf.AlbertForSequenceClassification, pieces_of_words, lambda v, **more: hf.AlbertConfig(vocab_size=v, **more),
               SMALL | dict(embedding_size=10, max_position_embeddings=40, num_hidden_layers=5, num_hidden_groups=2)),
    "albert-masked": (hf.AlbertForMaskedLM, pieces_of_words, lambda v, **more: hf.AlbertConfig(vocab_size=v, **more),
                      SMALL | dict(embedding_size=10, max_position_embeddings=40)),
    "mpnet": (hf.MPNetForSequenceClassification, pairs_of_bytes, lambda v, **more: hf.MPNetConfig(vocab_size=v, **more),
              SMALL | dict(max_position_embeddings=98, num_labels=3)),
    "mpnet-model": (hf.MPNetModel, pairs_of_bytes, lambda v, **more: hf.MPNetConfig(vocab_size=v, **more),
                    SMALL | dict(max_position_embeddings=98, relative_attention_num_buckets=40)),
    "modernbert": (hf.ModernBertForSequenceClassification, bytes_between_marks, lambda v, **more: hf.ModernBertConfig(vocab_size=v, **more),
                   MODERN | dict(classifier_pooling="mean")),
    "modernbert-model": (hf.ModernBertModel, bytes_between_marks, lambda v, **more: hf.ModernBertConfig(vocab_size=v, **more),
                         MODERN | dict(norm_bias=True, attention_bias=True, mlp_bias=True)),
}
ADAPTED_DEBERTA = {"blocks.0.attn.q": "layer.0.attention.self.query_proj", "blocks.1.attn.k": "layer.1.attention.self.key_proj",
                   "blocks.1.attn.v": "layer.1.attention.self.value_proj", "blocks.0.attn.proj": "layer.0.attention.output.dense",
                   "blocks.1.mlp.fc": "layer.1.intermediate.dense", "blocks.0.mlp.proj": "layer.0.output.dense"}
ADAPTED_MODERN = {"blocks.0.attn.qkv": "layers.0.attn.Wqkv", "blocks.1.attn.qkv": "layers.1.attn.Wqkv", "blocks.0.attn.proj": "layers.0.attn.Wo",
                  "blocks.2.attn.qkv": "layers.2.attn.Wqkv", "blocks.1.mlp.gate_fc": "layers.1.mlp.Wi", "blocks.2.mlp.proj": "layers.2.mlp.Wo"}
ADAPTED_DISTILLED = {"blocks.0.attn.q": "layer.0.attention.q_lin", "blocks.1.attn.k": "layer.1.attention.k_lin",
                     "blocks.1.attn.v": "layer.1.attention.v_lin", "blocks.0.attn.proj": "layer.0.attention.out_lin",
                     "blocks.1.mlp.fc": "layer.1.ffn.lin1", "blocks.0.mlp.proj": "layer.0.ffn.lin2"}
ADAPTED = {"blocks.0.attn.q": "encoder.layer.0.attention.self.query", "blocks.1.attn.k": "encoder.layer.1.attention.self.key",
           "blocks.1.attn.v": "encoder.layer.1.attention.self.value", "blocks.0.attn.proj": "encoder.layer.0.attention.output.dense",
           "blocks.1.mlp.fc": "encoder.layer.1.intermediate.dense", "blocks.0.mlp.proj": "encoder.layer.0.output.dense"}
ADAPTED_ALBERT = {"embed_proj": "encoder.embedding_hidden_mapping_in"} | {
    f"blocks.{group}.{ours}": f"albert_layer_groups.{group}.albert_layers.0.{theirs}"
    for group, ours, theirs in ((0, "attn.q", "attention.query"), (0, "attn.v", "attention.value"), (0, "attn.proj", "attention.dense"),
                                (0, "mlp.fc", "ffn"), (0, "mlp.proj", "ffn_output"))}
ADAPTED_MPNET = {"blocks.0.attn.q": "encoder.layer.0.attention.attn.q", "blocks.1.attn.k": "encoder.layer.1.attention.attn.k",
                 "blocks.1.attn.v": "encoder.layer.1.attention.attn.v", "blocks.0.attn.proj": "encoder.layer.0.attention.attn.o",
                 "blocks.1.mlp.fc": "encoder.layer.1.intermediate.dense", "blocks.0.mlp.proj": "encoder.layer.0.output.dense"}
ADAPTED_OF = {"deberta-v2": ADAPTED_DEBERTA, "modernbert": ADAPTED_MODERN, "distilbert": ADAPTED_DISTILLED, "albert": ADAPTED_ALBERT,
              "mpnet": ADAPTED_MPNET}
RANK, SCALE = 2, 0.5
# Those that read padding in front of a text in the place of its first token, as bella does.
BOTH_SIDES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "mpnet")


def outputs(model, call, inputs):
    """The logits of a classifier, what BERT pools, or the hidden state of the first token."""
    if type(model) is hf.BertModel:
        return call(**inputs).pooler_output
    if any(kind in type(model).__name__ for kind in ("MaskedLM", "PreTraining")):
        return call(**inputs, output_hidden_states=True).hidden_states[-1][:, 0]
    output = call(**inputs)
    return output.logits if "logits" in output else output.last_hidden_state[:, 0]


def low_rank(model, inputs):
    """Gradients of sum(coefficients * outputs) by A and B, where a layer's weight is W + SCALE B A."""
    generator = torch.Generator().manual_seed(7)
    weights, found = {}, {}
    for ours, theirs in ADAPTED_OF.get(model.config.model_type, ADAPTED).items():
        name = next(name for name, _ in model.named_modules() if name.endswith(theirs))
        weight = model.get_submodule(name).weight.detach()
        a = (torch.randn(RANK, weight.shape[1], generator=generator) * 0.3).requires_grad_()
        b = (torch.randn(weight.shape[0], RANK, generator=generator) * 0.3).requires_grad_()
        weights[f"{name}.weight"], found[ours] = weight + SCALE * b @ a, (a, b)
    adapted = outputs(model, lambda **inputs: functional_call(model, weights, (), inputs, tie_weights=False), inputs)
    coefficients = torch.randn(adapted.shape, generator=generator)
    gradients = iter(torch.autograd.grad((adapted * coefficients).sum(), [leaf for pair in found.values() for leaf in pair]))
    tensors = {"adapted": adapted, "coefficients": coefficients}
    for ours, (a, b) in found.items():
        tensors |= {f"{ours}.A": a, f"{ours}.B": b, f"{ours}.A.gradient": next(gradients), f"{ours}.B.gradient": next(gradients)}
    return tensors


def list_keys():
    """The fields of every class of configs."""
    from dataclasses import fields

    classes = [hf.BertConfig, hf.RobertaConfig, hf.XLMRobertaConfig, hf.CamembertConfig, hf.DistilBertConfig, hf.DebertaV2Config, hf.ModernBertConfig,
               hf.ElectraConfig, hf.AlbertConfig, hf.MPNetConfig]
    told = {kind.model_type: sorted(field.name for field in fields(kind)) for kind in classes}
    (OUT / "keys.json").write_text(json.dumps(told, indent=1) + "\n")


def folders():
    list_keys()
    for name, (kind, tokenizer, config, more) in FOLDERS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        folder, tokenizer = OUT / "folders" / name, tokenizer()
        shutil.rmtree(folder, ignore_errors=True)
        model = randomised(kind(config(len(tokenizer), **more)))
        model.save_pretrained(folder)
        if name in ("bert", "roberta"):
            export.write_tokenizer(OUT / name, export.positions(model), folder)
        elif name in ("deberta-v2", "distilbert", "modernbert", "xlm-roberta"):
            tokenizer.save_pretrained(folder)
        write_reference(model, tokenizer, folder)


def write_reference(model, tokenizer, folder):
    """What transformers computes from batches of texts and of pairs, and the gradients of low-rank updates."""
    tensors = {}
    for what, texts in (("texts", (TEXTS,)), ("pairs", tuple(zip(*PAIRS)))):
        # In front of a text, the others read the padding in the place of its first token.
        for side in ("right", "left")[:2 if model.config.model_type in BOTH_SIDES else 1]:
            inputs = given(tokenizer, *map(list, texts), padding=True, padding_side=side)
            keys = ("input_ids", "attention_mask", "token_type_ids")[:3 if getattr(model.config, "type_vocab_size", 0) > 1 else 2]
            taken = {key: inputs[key] for key in keys}
            with torch.no_grad():
                tensors[f"{what}.{side}"] = outputs(model, model, taken)
            tensors |= {f"{what}.{side}.{key}": value for key, value in taken.items()}
    tensors |= low_rank(model, {key: tensors[f"pairs.right.{key}"] for key in keys})
    save_file({key: tensor.detach().contiguous() for key, tensor in tensors.items()}, folder / "reference.safetensors")


def adapters():
    from peft import LoraConfig, get_peft_model

    # The last ones have no weights of the layer in front of the classifier, which PEFT saves where it trains it.
    whole = dict(modules_to_save=["pooler", "classifier"])
    for name, ends, more in (("distilbert", ["q_lin", "lin2"], {}), ("roberta", ["query", "dense"], {}),
                             ("electra", ["value", "embeddings_project"], {}), ("mpnet", ["q", "o"], {}), ("albert", ["query", "ffn"], {}),
                             ("roberta-model", ["query", "value"], {}), ("distilbert-masked", ["q_lin", "lin2"], {}),
                             ("electra-model", ["value"], {}), ("mpnet-model", ["q"], {}), ("bert-masked", ["query"], whole),
                             ("albert-masked", ["query"], whole), ("deberta-v2-model", ["query_proj"], whole)):
        network, folder = OUT / "folders" / name, OUT / "peft" / name
        model = hf.AutoModelForSequenceClassification.from_pretrained(network, num_labels=2, ignore_mismatched_sizes=True)
        # More directions than ELECTRA's embeddings have channels.
        rank = 12 if name == "electra" else 2
        model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=3, target_modules=ends, task_type="SEQ_CLS", **more)).eval()
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for parameter in (parameter for parameter in model.parameters() if parameter.requires_grad):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        # PEFT names the path of the network.
        settings = folder / "adapter_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": name}, indent=2) + "\n")
        stored = load_file(network / "reference.safetensors")
        inputs = {key.removeprefix("pairs.right."): value for key, value in stored.items() if key.startswith("pairs.right.")}
        with torch.no_grad():
            save_file(inputs | {"logits": model(**inputs).logits}, folder / "expected.safetensors")


def sentences():
    from sentence_transformers import SentenceTransformer, models as parts

    for name, pooling, unit in (("bert", "mean", True), ("roberta-model", "cls", True), ("mpnet-model", "mean", False),
                                ("xlm-roberta", "mean", True), ("distilbert-masked", "mean", False), ("modernbert-model", "mean", True)):
        own = name.removesuffix("-model").removesuffix("-masked")
        tokenizer = {"mpnet": "roberta"}.get(own, own)
        folder = OUT / "sentences" / name
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as network, tempfile.TemporaryDirectory() as saved:
            shutil.copytree(OUT / "folders" / name, network, dirs_exist_ok=True)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(OUT / "folders" / tokenizer / file, network)
            transformer = parts.Transformer(network, max_seq_length=32)
            modules = [transformer, parts.Pooling(transformer.get_word_embedding_dimension(), pooling_mode=pooling)]
            model = SentenceTransformer(modules=modules + [parts.Normalize()] * unit, device="cpu").eval()
            model.save(saved)
            for file in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(saved) / file, folder / file)
            inputs = transformer.tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
            kinds = {"token_type_ids": torch.zeros_like(inputs["input_ids"])} if name == "bert" else {}
            features = model.encode(TEXTS, convert_to_tensor=True)
            expected = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"], "features": features} | kinds
            save_file({key: tensor.contiguous() for key, tensor in expected.items()}, folder / "expected.safetensors")


def main():
    asked = sys.argv[1:2]
    if asked in ([], ["folders"]):
        folders()
    if asked in ([], ["peft"]):
        adapters()
    if asked in ([], ["sentences"]):
        sentences()
    if sys.argv[1:]:
        return
    for name, (kind, tokenizer, features, config) in NETWORKS.items():
        folder, tokenizer = OUT / name, tokenizer()
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as saved:
            randomised(kind(config(len(tokenizer)))).save_pretrained(saved)
            tokenizer.save_pretrained(saved)
            encoder = export.wrapped(export.opened(saved, features, None, False), features)
            export.write_tokenizer(saved, export.positions(encoder.model), folder)
            export.write(encoder, folder)
        tensors = expected(encoder, tokenizer, name)
        save_file({key: tensor.detach().contiguous() for key, tensor in tensors.items()}, folder / "reference.safetensors")
        plain = lambda *texts: {key: value[0].tolist() for key, value in given(tokenizer, *texts).items()}
        coded = {"texts": [plain(text) for text in TEXTS], "pairs": [plain(*pair) for pair in PAIRS]}
        told = {"texts": TEXTS, "pairs": PAIRS}
        told |= {f"{what}_{key}": [one[theirs] for one in all] for what, all in coded.items()
                 for key, theirs in (("ids", "input_ids"), ("kinds", "token_type_ids"))}
        told["texts_cut"] = [tokenizer(text, max_length=8, truncation=True)["input_ids"] for text in TEXTS]
        told["pairs_cut"] = [tokenizer(*pair, max_length=8, truncation=True)["input_ids"] for pair in PAIRS]
        (folder / "texts.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
