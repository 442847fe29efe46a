"""A training step and generation of particles on a language network: bella beside PEFT.

Makes a random Llama of about 90 million parameters (12 blocks of width 768, 4 of 12 heads for keys and values) with a tokenizer of plain words, and prompts of
a given length. PEFT has one adapter for each particle on one network and takes them in turn, as its users do: `set_adapter`, forward
(`logits_to_keep=1`), backward, AdamW; to generate, `generate` with its cache for each adapter. bella trains an ensemble of as many
particles in one pass, and its members write one text together. Both compute in f32. A step's time is the difference between runs
of different length, divided by the steps, so that starting does not count; it is processor time (of all threads) unless --wall is given.
Prints one line of JSON for each round. Needs: torch, transformers, peft, tokenizers.

    cargo build --release && python scripts/bench_language.py --bella target/release/bella --threads 2

With --memory, it measures instead the peak resident memory of bella's training with 1, 2, 4 and 8 particles, on three batches each, and
prints it beside what `bella bench --estimate` says.

    python scripts/bench_language.py --memory --batch-size 1 --length 256
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers as hf
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = 8000
RANK = 8
NEW_TOKENS = 32

# Runs a command and prints the peak of its resident memory in KiB. It is a process of its own, since a process that is started counts
# the memory of the one that starts it.
PEAK = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def make_network(folder, seed):
    """A random Llama and a tokenizer that knows the words w0, w1, ... and the labels."""
    torch.manual_seed(seed)
    config = hf.LlamaConfig(
        vocab_size=WORDS + 4, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=4, max_position_embeddings=1024, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False)
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {"<s>": 0, "</s>": 1, "yes": 2, "no": 3} | {f"w{word}": word + 4 for word in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="no"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def write_task(folder, prompts, length, seed):
    """Prompts of `length` tokens, the first of which is <s>, as JSON lines and as ids `[prompts, length]`."""
    draws = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (prompts, length - 1), generator=draws)
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for place, row in enumerate(words.tolist()):
                label = ("yes", "no")[place % 2]
                file.write(json.dumps({"text": " ".join(f"w{word}" for word in row), "label": label}) + "\n")
    return torch.cat([torch.zeros(prompts, 1, dtype=torch.long), words + 4], 1)


def config(place, arguments, epochs):
    method = "[method.map]" if arguments.particles == 1 else f"[method.ensemble]\nparticles = {arguments.particles}"
    return f"""name = "language-bench"
seed = 1
[checkpoint]
path = "{place}/llama"
kind = "language"
max_tokens = {arguments.length}
[head.label-words]
[data.jsonl]
root = "{place}/task"
prompt = "{{text}}"
labels = ["yes", "no"]
[subspace.low-rank]
rank = {RANK}
alpha = 16
targets = ["attn.q", "attn.v"]
{method}
[optimizer.adamw]
lr = 1e-3
[train]
epochs = {epochs}
batch_size = {arguments.batch_size}
precision = "f32"
select = "last-epoch"
"""


def timed(command, wall):
    """Seconds of a process, and the peak of its resident memory in bytes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip().splitlines()[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start if wall else processor


def bella_step(place, arguments):
    """Seconds of a step: a run of 1 + steps epochs of one batch, less one of a single epoch."""
    seconds = []
    for epochs in (1, 1 + arguments.steps):
        path = place / f"{epochs}.toml"
        path.write_text(config(place, arguments, epochs))
        command = [arguments.bella, "train", "-c", path, "--no-eval", "--force", "--threads", str(arguments.threads), "--out", place / "results"]
        seconds.append(timed(command, arguments.wall))
    return (seconds[1] - seconds[0]) / arguments.steps


def bella_memory(place, arguments):
    """The peak of a training's resident memory and its estimate, in MB, for each number of particles."""
    for arguments.particles in (1, 2, 4, 8):
        path = place / "memory.toml"
        path.write_text(config(place, arguments, 1))
        threads = ["--threads", str(arguments.threads)]
        command = [arguments.bella, "train", "-c", path, "--no-eval", "--force", *threads, "--out", place / "results"]
        peak = int(subprocess.run([sys.executable, "-c", PEAK, *map(str, command)], capture_output=True, text=True, check=True).stdout)
        estimate = [arguments.bella, "bench", "--estimate", path, "--device", "cpu", *threads]
        lines = subprocess.run(estimate, capture_output=True, text=True, check=True).stdout.splitlines()
        told = next(line.removeprefix("memory").strip() for line in lines if line.startswith("memory"))
        print(json.dumps({"particles": arguments.particles, "peak_mb": round(peak * 1024 / 1e6), "estimate": told}), flush=True)


def bella_generation(place, arguments):
    """Seconds of the tokens after the first, for one batch of prompts."""
    run = sorted((place / "results/runs/language-bench").iterdir())[0]
    command = [arguments.bella, "predict", run, place / "task/test.jsonl", "--threads", str(arguments.threads), "--out", place / "results"]
    command += ["--batch-size", str(arguments.batch_size), "--format", "jsonl", "--generate"]
    return timed([*command, str(1 + NEW_TOKENS)], arguments.wall) - timed([*command, "1"], arguments.wall)


def peft_network(place, arguments):
    network = hf.AutoModelForCausalLM.from_pretrained(place / "llama", dtype=torch.float32)
    lora = LoraConfig(r=RANK, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    network = get_peft_model(network, lora, adapter_name="p0")
    for particle in range(1, arguments.particles):
        network.add_adapter(f"p{particle}", lora)
    return network


def clock(wall):
    return time.perf_counter() if wall else time.process_time()


def peft_step(network, ids, arguments):
    labels = torch.tensor([place % 2 for place in range(len(ids))])
    optimizers = []
    for particle in range(arguments.particles):
        network.set_adapter(f"p{particle}")
        optimizers.append(torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-3))
    network.train()

    def step():
        for particle, optimizer in enumerate(optimizers):
            network.set_adapter(f"p{particle}")
            optimizer.zero_grad()
            logits = network(input_ids=ids, logits_to_keep=1).logits[:, -1, 2:4]
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()

    step()
    start = clock(arguments.wall)
    for _ in range(arguments.steps):
        step()
    return (clock(arguments.wall) - start) / arguments.steps


@torch.no_grad()
def peft_generation(network, ids, arguments):
    network.eval()

    def generate(tokens):
        start = clock(arguments.wall)
        for particle in range(arguments.particles):
            network.set_adapter(f"p{particle}")
            network.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=tokens,
                             max_new_tokens=tokens, pad_token_id=1)
        return clock(arguments.wall) - start

    return generate(1 + NEW_TOKENS) - generate(1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bella", default="target/release/bella")
    parser.add_argument("--particles", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, default=256, help="tokens of a prompt")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead of time")
    parser.add_argument("--wall", action="store_true", help="wall time, for an idle machine")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_network(place / "llama", 0)
        if arguments.memory:
            write_task(place / "task", 3 * arguments.batch_size, arguments.length, 1)
            return bella_memory(place, arguments)
        ids = write_task(place / "task", arguments.batch_size, arguments.length, 1)
        network = peft_network(place, arguments)
        rounds = []
        for _ in range(arguments.rounds):
            ours, theirs = bella_step(place, arguments), peft_step(network, ids, arguments)
            writing, generating = bella_generation(place, arguments), peft_generation(network, ids, arguments)
            rounds.append({"step": theirs / ours, "generation": generating / writing})
            print(json.dumps({"bella_step": ours, "peft_step": theirs, "bella_generation": writing, "peft_generation": generating}), flush=True)
    return print(json.dumps({"peft_over_bella": {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}} | vars(arguments)))


if __name__ == "__main__":
    main()
