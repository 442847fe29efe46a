#!/usr/bin/env python3
"""Runs the authors' own code for BayesTune and AdaHessian on tiny problems in f64, and writes what came out to
tests/fixtures/authors/{bayestune,adahessian}.json, to which the tests beside both hold bella.

| repository | commit | what is run |
|---|---|---|
| minyoungkim21/BayesTune | 8eace1388331a190c4902af0bab794ac3d7a108a | `JiantRunner.run_train_step` of `my_jiant_runner.py` with `Sampler`; the choice in `my_runner2.py` |
| amirgholami/adahessian | 85ebc00ce873c8497a64ca80bbfa5d996109efea | `Adahessian.step` of `image_classification/`, three times; `get_trace` of `instruction/` |

    pip install torch==2.11.0 numpy
    python scripts/make_bayestune_adahessian_goldens.py BAYESTUNE ADAHESSIAN

The arguments are folders with these repositories at these commits. The optimizer of BayesTune's parameters, which its runner is
given, is plain SGD here, as bella's search has it (theirs is AdamW, a difference that docs/methods.md declares).
"""

import argparse
import ast
import contextlib
import copy
import importlib.util
import io
import json
import sys
import types
from pathlib import Path

import numpy as np
import torch

from author_code import absent, given

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors"
JIANT = ["jiant", "jiant.tasks", "jiant.tasks.evaluate", "jiant.utils", "jiant.utils.torch_utils", "jiant.proj", "jiant.proj.main",
         "jiant.proj.main.modeling", "jiant.proj.main.modeling.primary", "jiant.shared", "jiant.shared.constants", "jiant.utils.display",
         "jiant.shared.runner", "jiant.utils.python", "jiant.utils.python.datastructures", "my_container_setup"]


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).tolist()


def module(path, name):
    """Imports one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def chosen(repository, scales, share):
    """Runs the statements of `my_runner2.py` that turn mean scales into the mask of what stays, and returns what is tuned."""
    tree = ast.parse((repository / "my_runner2.py").read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "bs_mask = torch.ones_like(vec)" in ast.unparse(node)]
    silent = types.SimpleNamespace(info=lambda *_: None)
    sampler = types.SimpleNamespace(lamb_=scales, print_lambda_sparsity=lambda *_: "", print_sparsity_patterns=lambda *_: "")
    runner = types.SimpleNamespace(logger=silent, sampler=sampler, post_lamb_mean=scales, jiant_model=None)
    exec(compile(ast.Module(blocks[0].body, []), "my_runner2.py", "exec"), {"torch": torch, "np": np, "runner": runner, "sp": share})
    return [float(not frozen) for mask in runner.bs_mask for frozen in mask.flatten().tolist()]


def search(repository, size, scales, noisy):
    """Five steps of the search on a linear regression, without their warm-up; its scales are collected from the third."""
    runner_code = module(repository / "my_jiant_runner.py", "bayestune_runner")
    sampler_code = module(repository / "my_sampler.py", "bayestune_sampler")
    lr, scale_lr, steps, burn_in = 0.05, 0.01 * min(scales), 5, 3
    net = torch.nn.Linear(3, 4)
    x, y = torch.randn(8, 3), torch.randn(8, 4)
    loss = lambda: ((net(x) - y) ** 2).mean()
    start = copy.deepcopy(net)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.3 * torch.randn_like(p).sign() + 0.05 * torch.randn_like(p)
    sampler = sampler_code.Sampler(net, 0.01, 100.0, 1.0, float(np.log10(size)), scale_lr)
    with torch.no_grad():
        for own in sampler.lamb_:
            low, high = np.log(scales)
            own.copy_((low + (high - low) * torch.rand_like(own)).exp())
    sampler.create_optimizer()
    # The norm of each gradient is clipped by them; nothing is as long as this.
    runner = runner_code.JiantRunner(None, net, None, "cpu", types.SimpleNamespace(n_gpu=1, fp16=False, max_grad_norm=1e12), None)
    batch = types.SimpleNamespace(to=lambda device: None)
    task = types.SimpleNamespace(gradient_accumulation_steps=1)
    runner.jiant_task_container = types.SimpleNamespace(
        task_sampler=types.SimpleNamespace(pop=lambda: ("task", None)), task_specific_configs={"task": task})
    runner_code.wrap_jiant_forward = lambda **_: types.SimpleNamespace(loss=loss())
    runner.user_mode = {"burnin_steps": burn_in, "thin_steps": 1, "nd": 0.7 if noisy else 0.0, "warmup_steps": 0}
    runner.logger = types.SimpleNamespace(info=lambda *_: None)
    runner.log_writer = types.SimpleNamespace(write_entry=lambda *_: None)
    runner.sampler, runner.zero = sampler, start
    optimizer = torch.optim.SGD([{"params": list(net.parameters()), "names": [name for name, _ in net.named_parameters()]}], lr=lr)
    runner.optimizer_scheduler = types.SimpleNamespace(optimizer=optimizer, step=optimizer.step)
    slopes, own_step = [], sampler.optimizer.step

    def step():
        slopes.append(flat(p.grad for p in sampler.lamb_))
        return own_step()

    sampler.optimizer.step = step
    state = types.SimpleNamespace(step=lambda **_: None, task_steps={"task": 0}, global_steps=0)
    found = {"before": [], "after": [], "gradients": [], "noise": [], "scales": []}
    for _ in range(steps):
        found["before"].append(flat(net.parameters()))
        found["gradients"].append(flat(torch.autograd.grad(loss(), list(net.parameters()))))
        found["scales"].append(flat(sampler._transform_positive(sampler.lamb_)))
        noise = [torch.randn_like(p) for p in net.parameters()]
        found["noise"].append(flat(noise))
        # The scales' own noise is left away, so that the gradient is that of the density alone.
        with given(randn_like=noise + [torch.zeros_like(p) for p in sampler.lamb_]):
            pop = types.SimpleNamespace(pop=lambda: (batch, None))
            runner.run_train_step({"task": pop}, state, types.SimpleNamespace(set_postfix=lambda *_: None))
        found["after"].append(flat(net.parameters()))
    mean = copy.deepcopy(sampler.lamb_)
    torch.nn.utils.vector_to_parameters(runner.post_lamb_mom1, mean)
    return found | {
        "start": flat(start.parameters()), "slopes": slopes, "mean_scales": flat(mean), "share": 0.3, "chosen": chosen(repository, mean, 0.3),
        "ess": size, "lr": lr, "temperature": (0.7 if noisy else 0.0) ** 2, "alpha": 0.01, "beta": 100.0, "burn_in": burn_in}


def bayestune(repository):
    absent(*JIANT)
    return {"published": search(repository, 1e12, (1e-7, 1e-2), True), "strong_prior": search(repository, 1e3, (0.005, 0.1), True)}


def adahessian(repository):
    code = module(repository / "image_classification" / "optim_adahessian.py", "adahessian_images").Adahessian
    settings = {"lr": 0.15, "betas": (0.9, 0.99), "eps": 1e-4, "weight_decay": 0.05}
    x, labels = torch.randn(7, 3), torch.randint(4, (7,))
    first = [torch.randn(5, 3), torch.randn(4, 5)]
    own, found = torch.randint_like, {"x": x.tolist(), "labels": labels.tolist(), "start": flat(first), "shapes": [[5, 3], [4, 5]]}

    def gradients(weights):
        logits = (x @ weights[0].T).tanh() @ weights[1].T
        return torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels), weights, create_graph=True)

    @contextlib.contextmanager
    def signed(signs):
        queue = iter(signs)
        torch.randint_like = lambda *_, **__: (next(queue) + 1) / 2
        yield
        torch.randint_like = own

    for name, power in [("whole", 1.0), ("half", 0.5)]:
        weights = [torch.nn.Parameter(weight.clone()) for weight in first]
        optimizer = code(weights, hessian_power=power, **settings)
        rows, trace = {"signs": [], "curvature": [], "after": [], "power": power}, optimizer.get_trace

        def kept(*of):
            traces = trace(*of)
            rows["curvature"].append(flat(traces))
            return traces

        optimizer.get_trace = kept
        for _ in range(3):
            signs = [torch.randn_like(weight).sign() for weight in weights]
            for weight, grad in zip(weights, gradients(weights)):
                weight.grad = grad.clone()
            with signed(signs):
                optimizer.step()
            rows["signs"].append(flat(signs))
            rows["after"].append(flat(weights))
        found[name] = rows
    rows = module(repository / "instruction" / "adahessian.py", "adahessian_instruction").Adahessian
    weights = [torch.nn.Parameter(weight.clone()) for weight in first]
    signs = [torch.randn_like(weight).sign() for weight in weights]
    with signed(signs):
        traces = rows(weights).get_trace(weights, gradients(weights))
    averages = [trace.expand_as(weight) for trace, weight in zip(traces, weights)]
    return found | {"averaged": {"signs": flat(signs), "curvature": flat(averages)}, "lr": 0.15, "beta1": 0.9, "beta2": 0.99,
                    "eps": 1e-4, "weight_decay": 0.05}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bayestune", type=Path)
    parser.add_argument("adahessian", type=Path)
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    for name, make, repository in [("bayestune", bayestune, args.bayestune), ("adahessian", adahessian, args.adahessian)]:
        torch.manual_seed(sum(name.encode()))
        with contextlib.redirect_stdout(io.StringIO()):
            golden = make(repository)
        (OUT / f"{name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(name, (OUT / f"{name}.json").stat().st_size // 1024, "KiB")


if __name__ == "__main__":
    main()
