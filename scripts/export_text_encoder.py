#!/usr/bin/env python3
"""Export a text encoder of Hugging Face (BERT, RoBERTa, DeBERTa v1 to v3, and others that trace) as a TorchScript module for bella.

    export_text_encoder.py roberta-base/ --out encoders/roberta-base
    export_text_encoder.py microsoft/deberta-v3-base --features mean --out encoders/deberta-v3-base
    export_text_encoder.py roberta-base/ --features classifier --num-labels 2 --out encoders/roberta-base-2
    export_text_encoder.py sst2-roberta/ --features classifier --out encoders/sst2-roberta

The model is a folder that transformers has written, or a name that it downloads. The folder of --out gets an archive of its name (NAME/NAME.pt), whose
forward(input_ids, attention_mask) takes int64 [B, T] and returns features [B, D] (or logits [B, C]), and tokenizer.json,
tokenizer_config.json and config.json beside it. A model with kinds of tokens (BERT) has forward(input_ids, attention_mask,
token_type_ids). --features says what is returned:

    first        the last hidden state of the first token (default)
    mean         the mean of the last hidden states of all tokens
    pooled       the model's own pooling (BERT: a layer on the first token)
    classifier   the logits of the model's classifier, which bella recognises as such: [head.checkpoint] keeps it, and [head.linear]
                 puts a new one per particle in the place of its last layer. --num-labels makes a new one, as for fine-tuning.

The module is traced, and compared with transformers on texts of many lengths and batch sizes, padded and as pairs; then `bella
inspect` is run where the binary is found. Nothing is written that does not pass. --random writes a model of the config with random
weights. Needs torch and transformers (versions 4 and 5 are known).
"""

import argparse
import inspect as signatures
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from clip_modules import write_archive

MAX_DIFFERENCE = 1e-5
# batch sizes and lengths of the comparison; the trace is made at another one
SHAPES = ((1, 1), (1, 3), (2, 4), (5, 17), (3, 33), (2, 128), (1, 512))
TRACED = (2, 9)


class Encoder(torch.nn.Module):
    def __init__(self, model, features):
        super().__init__()
        self.model, self.features = model, features

    def forward(self, input_ids, attention_mask):
        return self.pooled(attention_mask, self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False))

    def pooled(self, attention_mask, output):
        if self.features == "classifier":
            return output[0]
        if self.features == "pooled":
            return output[1]
        if self.features == "first":
            return output[0][:, 0]
        mask = attention_mask.unsqueeze(2).to(output[0].dtype)
        return (output[0] * mask).sum(1) / mask.sum(1)


class EncoderOfKinds(Encoder):
    def forward(self, input_ids, attention_mask, token_type_ids):
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self.pooled(attention_mask, self.model(**inputs, return_dict=False))


def free_lengths():
    """DeBERTa cuts its relative positions to the length of the text, which a trace would freeze. Uncut they give the same numbers."""
    from transformers.models.deberta import modeling_deberta
    from transformers.models.deberta_v2 import modeling_deberta_v2

    for module in (modeling_deberta, modeling_deberta_v2):
        if hasattr(module, "compute_attention_span"):
            module.compute_attention_span = lambda query, key, most: torch.tensor(most)


def opened(name, features, labels, random):
    """The model in evaluation mode, as transformers has it."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, logging

    config = AutoConfig.from_pretrained(name)
    if labels is not None:
        config.num_labels = labels
    logging.set_verbosity_error()  # what of the folder is not needed
    kind = AutoModelForSequenceClassification if features == "classifier" else AutoModel
    more = {"attn_implementation": "eager"}
    if random:
        torch.manual_seed(1)
        model = kind.from_config(config, **more)
    else:
        model = kind.from_pretrained(name, config=config, ignore_mismatched_sizes=labels is not None, **more)
    if features == "pooled" and getattr(model, "pooler", None) is None:
        sys.exit(f"{name}: a {config.model_type} model without a pooling of its own: --features first or mean")
    return model.eval().float()


def wrapped(model, features):
    kinds = getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in signatures.signature(model.forward).parameters
    return (EncoderOfKinds if kinds else Encoder)(model, features).eval()


def positions(model):
    """The most tokens that the model reads; RoBERTa's positions begin behind that of the padding token."""
    config = model.config
    table = next((m for name, m in model.named_modules() if name.endswith("position_embeddings")), None)
    if not isinstance(table, torch.nn.Embedding):
        return getattr(config, "max_position_embeddings", 512)
    return table.num_embeddings - (table.padding_idx + 1 if table.padding_idx is not None else 0)


def inputs(encoder, shape, seed):
    """Random texts of different lengths, filled up by the padding token; the second half of each is of the second kind."""
    generator = torch.Generator().manual_seed(seed)
    (batch, length), config = shape, encoder.model.config
    ids = torch.randint(0, config.vocab_size, shape, generator=generator)
    mask = torch.ones(shape, dtype=torch.long)
    padding = config.pad_token_id if config.pad_token_id is not None else 0
    ids[ids == padding] = padding + 1
    for row in range(1, batch):
        mask[row, max(1, length - row * length // batch):] = 0
    ids[mask == 0] = padding
    kinds = (torch.arange(length) > length // 2).long().expand(shape) * mask
    return (ids, mask, kinds) if isinstance(encoder, EncoderOfKinds) else (ids, mask)


def trace(encoder):
    free_lengths()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(encoder, inputs(encoder, TRACED, 2), check_trace=False)


def difference(archive, encoder, most):
    """The largest relative difference of an archive from transformers, over all lengths and batch sizes."""
    worst = 0.0
    for batch, length in sorted({(batch, min(length, most)) for batch, length in SHAPES}):
        given = inputs(encoder, (batch, length), 3)
        try:
            with torch.no_grad():
                found, expected = archive(*given), encoder(*given)
        except RuntimeError as error:
            sys.exit(f"it fails on {batch} texts of {length} tokens, though it was traced at {TRACED}: {str(error).strip().splitlines()[-1][:150]}")
        apart = ((found - expected).abs().max() / expected.abs().max()).item()
        print(f"self-check, {batch} x {length} tokens: relative difference {apart:.1e} (bound {MAX_DIFFERENCE:.0e})")
        worst = max(worst, apart)
    return worst


def write_tokenizer(name, most, out):
    """The publisher's tokenizer in the form that bella reads, for texts of at most `most` tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    tokenizer.model_max_length = min(tokenizer.model_max_length, most)
    tokenizer.save_pretrained(out)
    if not (out / "tokenizer.json").is_file():
        sys.exit(f"{name}: its tokenizer has no fast form (tokenizer.json), which bella needs")
    # the options of this package that are no part of the tokenizer
    for beside in ("special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "spm.model"):
        (out / beside).unlink(missing_ok=True)


def archive_in(out):
    """The archive of a folder, which results name by its stem."""
    return out / f"{out.resolve().name}.pt"


def write(encoder, out):
    """Write the module into the folder, and its config if it agrees with transformers."""
    archive = archive_in(out)
    size = write_archive(trace(encoder), archive)
    print(f"{archive.name}  {size} bytes, {sum(p.numel() for p in encoder.parameters())} parameters")
    apart = difference(torch.jit.load(archive, map_location="cpu"), encoder, positions(encoder.model))
    if not apart <= MAX_DIFFERENCE:
        sys.exit(f"{archive.name}: no trace of this model gives its numbers at every length")
    encoder.model.config.save_pretrained(out)


def inspect(archive, out, binary):
    """Let bella read the module before it takes its place in the folder `out`."""
    found = binary or shutil.which("bella") or Path(__file__).resolve().parent.parent / "target/release/bella"
    if not Path(found).is_file():
        print(f"no bella binary found: run `bella inspect {archive_in(out)}` yourself")
    elif subprocess.run([found, "inspect", archive]).returncode:
        sys.exit(f"{archive.name}: bella refuses it, so nothing is written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder that transformers has written, or the name of one that it downloads")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--features", choices=("first", "mean", "pooled", "classifier"), default="first", help="what the module returns")
    parser.add_argument("--num-labels", type=int, help="classes of a new classifier (with --features classifier)")
    parser.add_argument("--random", action="store_true", help="random weights of the model's config")
    parser.add_argument("--bella", help="the binary for the last check (default: found in PATH or target/release)")
    args = parser.parse_args()
    if args.num_labels is not None and args.features != "classifier":
        sys.exit("--num-labels: is for --features classifier")

    if args.out.resolve() == Path(args.model).resolve():
        sys.exit(f"--out {args.out}: is the folder of the model, whose files would be replaced: name another one")

    model = opened(args.model, args.features, args.num_labels, args.random)
    most = positions(model)
    folder = args.out.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # What the folder has stays until the new files have passed.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as place:
        made = Path(place) / folder.name
        write_tokenizer(args.model, most, made)
        write(wrapped(model, args.features), made)
        inspect(archive_in(made), args.out, args.bella)
        folder.mkdir(exist_ok=True)
        for file in made.iterdir():
            file.replace(folder / file.name)
    print(f'\n[checkpoint]\npath = "{archive_in(args.out)}"\nkind = "module"\nmax_tokens = {min(most, 512)}')


if __name__ == "__main__":
    main()
