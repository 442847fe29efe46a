#!/usr/bin/env python3
"""Runs the authors' own code of ScalaBL on one linear layer in f64, and writes what came out to
tests/fixtures/authors/scalabl.json, to which the tests of `[method.scalabl]` hold bella.

| repository | commit | what is run |
|---|---|---|
| SRI-CSL/BayesAdapt | 3843000 | `ScalablLoraWrapper`, three steps of `VITrainer.train_step`, `BLoBKLScheduler`; `ScalaBLLinear.kl_div` with posterior and prior exchanged |

    pip install torch==2.11.0
    python scripts/make_scalabl_goldens.py BAYESADAPT

The argument is a folder with this repository at this commit. Its two optimizers are made here: AdamW for log s and log σ, plain
descent for V and B, and plain descent for the divergence, as its configs have it. Its prior is set to N(0, 1), whose mean and deviation
the layer means to have: it makes them from a tensor that the start of sigma has overwritten by then.
"""

import argparse
import json
import math
import sys
import types
from pathlib import Path

import torch

from author_code import Empty, absent, given, package

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "scalabl.json"
INPUTS, OUTPUTS, RANK, SCALE, SAMPLES, STEPS = 6, 4, 2, 2.0, 5, 3
RATE, STD_RATE, KL_RATE, CYCLE = 0.1, 0.01, 0.002, 3


def load(repository):
    sys.path.insert(0, str(repository))
    absent("peft", "peft.tuners", "peft.tuners.lora", "hydra", "hydra.utils", "hydra.core", "hydra.core.hydra_config", "omegaconf", "tqdm",
           "wandb", "transformers", "accelerate", "accelerate.utils", "torchmetrics", "torchmetrics.functional")
    sys.modules["bayesadapt.utils"] = Empty("bayesadapt.utils")
    for name in ("bayesadapt", "bayesadapt.lorawrappers", "bayesadapt.trainers"):
        package(name, repository / name.replace(".", "/"))
    from bayesadapt.lorawrappers.viwrapper import VILoraWrapper

    sys.modules["bayesadapt.lorawrappers"].VILoraWrapper = VILoraWrapper
    from bayesadapt.lorawrappers.scalabl import ScalablLoraWrapper
    from bayesadapt.schedulers import BLoBKLScheduler
    from bayesadapt.trainers.vi_trainer import VITrainer

    return ScalablLoraWrapper, BLoBKLScheduler, VITrainer


def layer(wrapper):
    base = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    a, b = torch.nn.Linear(INPUTS, RANK, bias=False), torch.nn.Linear(RANK, OUTPUTS, bias=False)
    lora = types.SimpleNamespace(base_layer=base, lora_A=torch.nn.ModuleDict({"default": a}), active_adapters=["default"],
                                 lora_B=torch.nn.ModuleDict({"default": b}), lora_dropout={"default": torch.nn.Identity()},
                                 scaling={"default": SCALE})
    seeds = {}
    own = torch.linalg.svd

    def svd(matrix, **settings):
        seeds["a"] = matrix.clone()
        return own(matrix, **settings)

    torch.linalg.svd = svd
    try:
        found = wrapper(lora)
    finally:
        torch.linalg.svd = own
    base.weight.requires_grad_(False)
    own = found.lora_A["default"]
    own.log_p_mu.fill_(math.log(1e-8))
    own.log_p_sigma.fill_(0.0)
    return found, seeds["a"]


def state(wrapped):
    own = wrapped.lora_A["default"]
    values = {"mean": own.log_s.exp(), "std": own.log_s_sigma.exp(), "directions": own.Vh, "b": wrapped.lora_B["default"].weight}
    return {name: value.detach().clone() for name, value in values.items()}


def reverse(kl_div):
    """Their divergence is KL(p ‖ q), so that q in the place of p, and p in that of q, gives KL(q ‖ p); with its gradients."""
    log_mean = (torch.randn(5) * 0.5).requires_grad_()
    log_std = (torch.randn(5) * 0.3 - 2.0).requires_grad_()
    prior = 0.7
    divergence = kl_div(types.SimpleNamespace(log_p_mu=log_mean, log_p_sigma=log_std, log_s=torch.full((5,), -math.inf),
                                              log_s_sigma=torch.full((5,), math.log(prior))))
    by_log_mean, by_log_std = torch.autograd.grad(divergence, [log_mean, log_std])
    return {"log_mean": log_mean, "log_std": log_std, "prior": prior, "divergence": divergence.item(), "by_log_mean": by_log_mean,
            "by_log_std": by_log_std}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bayesadapt", type=Path)
    wrapper, scheduler, vi = load(parser.parse_args().bayesadapt)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(21)
    wrapped, a = layer(wrapper)
    own, b = wrapped.lora_A["default"], wrapped.lora_B["default"]
    x, labels = torch.randn(SAMPLES, INPUTS), torch.tensor([0, 1, 2, 3, 0])
    golden = {"x": x, "labels": labels, "base": wrapped.base_layer.weight, "scale": SCALE, "a": a, "before": state(wrapped),
              "rate": RATE, "std_rate": STD_RATE, "kl_rate": KL_RATE, "cycle": CYCLE}
    # Their trainer loads a language model when its `model` is asked for.
    trainer = object.__new__(type("Trainer", (vi,), {"model": wrapped}))
    trainer.compute_logits = lambda inputs: wrapped(inputs).unsqueeze(1)
    moments = torch.optim.AdamW([own.log_s, own.log_s_sigma], lr=STD_RATE, weight_decay=0.0)
    weights = torch.optim.SGD([own.Vh, b.weight], lr=RATE)
    trainer.nll_optimizer = types.SimpleNamespace(
        zero_grad=lambda: (moments.zero_grad(), weights.zero_grad()), step=lambda: (moments.step(), weights.step()),
        param_groups=moments.param_groups)
    trainer.nll_scheduler = types.SimpleNamespace(step=lambda: None)
    kl = torch.optim.SGD([own.log_s, own.log_s_sigma], lr=KL_RATE)
    trainer.kl_optimizer = kl
    found = {"divergence": [], "weights": [], "after": []}
    golden["draws"] = [torch.randn(RANK) for _ in range(STEPS)]
    # Their scheduler with a cycle of three steps, and without its warm-up and decay.
    plan = object.__new__(scheduler)
    plan.__dict__.update(warmup_steps=0, total_steps=10**12, M=CYCLE, use_exponential=True, _denom=2 ** (CYCLE + 1) - 1, last_epoch=0,
                         base_lrs=[KL_RATE])

    def advance():
        kl.param_groups[0]["lr"] = plan.get_lr()[0]
        plan.last_epoch += 1

    advance()
    trainer.kl_scheduler = types.SimpleNamespace(step=advance)
    for draw in golden["draws"]:
        found["weights"].append(plan.last_pi)
        with given(randn_like=[draw]):
            log = trainer.train_step((x, labels, None))
        found["divergence"].append(log["train/kl_loss"])
        found["after"].append(state(wrapped))
    golden = golden | found | {"reverse": reverse(type(own).kl_div.fget)}

    def numbers(value):
        if isinstance(value, torch.Tensor):
            return value.detach().tolist()
        if isinstance(value, dict):
            return {key: numbers(item) for key, item in value.items()}
        return [numbers(item) for item in value] if isinstance(value, list) else value

    OUT.write_text(json.dumps(numbers(golden), separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
