#!/usr/bin/env python3
"""Runs the authors' own code for BLoB, TFB, SWAG, cSGMCMC, VOGN and BayesVLM on tiny problems in f64, and writes what came out to
tests/fixtures/authors/<method>.json, to which the tests beside the methods hold bella.

| repository | commit | what is run |
|---|---|---|
| Wang-ML-Lab/bayesian-peft | bc6a4a701bea29d78543ab982396e9b70116e01d | `BLoB.fit`, one batch; `TFBLoRA.fit`, the whole search |
| wjmaddox/swa_gaussian | 61a918fa1c3e732dd19fc278ad3a5969f24d5a72 | `SWAG.collect_model` twelve times, `SWAG.sample` |
| ruqizhang/csgmcmc | 2d85c6683a4b82d54208491d39eb74319077ccd2 | the steps of `cifar_csgmcmc.py` and `cifar_csghmc.py`, two cycles |
| cybertronai/pytorch-sso | d16173236728fdd1e943bc3b61243bfb28f95348 | `VOGN.step`, five times; once with a running mean of gradients |
| AaltoML/BayesVLM | 855be8b601bf5e3e3136c0a01a585bdfe5d9ad4c | Hessians, covariances, the moments of logits, their probit |

    pip install torch==2.11.0 torchmetrics peft transformers
    python scripts/make_method_goldens.py BAYESIAN_PEFT SWA_GAUSSIAN CSGMCMC PYTORCH_SSO BAYESVLM

The arguments are folders with these repositories at these commits.
"""

import argparse
import contextlib
import io
import json
import sys
import types
from pathlib import Path

import torch

from author_code import absent, functions, given, package, without_gpu

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors"


def numbers(value):
    """Returns tensors as nested lists."""
    if isinstance(value, torch.Tensor):
        return value.detach().tolist()
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    return [numbers(item) for item in value] if isinstance(value, (list, tuple)) else value


def signs(*shape):
    return torch.randn(*shape).sign()


class Tiny(torch.nn.Module):
    """One linear layer with four classes, in the form that the authors' wrappers call."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4, bias=False)

    def forward(self, x, labels=None):
        return types.SimpleNamespace(logits=self.fc(x))


def lora(wrapper, **settings):
    """Returns the authors' wrapper around a tiny network with a LoRA of rank 2 and scale 2, and its layer."""
    import peft

    chosen = dict(bayes_eps=0.05, bayes_beta=0.2, bayes_train_n_samples=1, bayes_eval_n_samples=1, bayes_klreweighting=True,
                  bayes_kllr=0.01, load_lora_path=None, load_lora_huggingface_repo=None, max_train_steps=4, batch_size=5,
                  n_epochs=1, epoch=0, outdim=4, warmup_ratio=0, opt="sgd", opt_wd=0.0, lr=0.1, dataset_type="bertds",
                  eval_per_steps=100)
    args = types.SimpleNamespace(**(chosen | settings))
    accelerator = types.SimpleNamespace(backward=lambda loss: loss.backward(), gather=lambda found: found, num_processes=1,
                                        is_local_main_process=True, device="cpu")
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["fc"], lora_dropout=0.0)
    model = wrapper(Tiny(), config, args, accelerator)
    layer = model.base_model.model.fc
    with torch.no_grad():
        layer.lora_B["default"].weight.copy_(torch.randn(4, 2))
    return model, layer


def factors(layer):
    return {"a": layer.lora_A["default"].weight.clone(), "b": layer.lora_B["default"].weight.clone(),
            "root": layer.lora_A_rho["default"].clone()}


def load_wrappers(repository):
    """Lets the authors' wrappers be imported where 8-bit layers are not installed."""
    sys.path.insert(0, str(repository))
    absent("peft.tuners.lora.bnb")


def blob(repository):
    load_wrappers(repository)
    from modelwrappers.blob import BLoB

    model, layer = lora(BLoB)
    model.double()
    model.M, pi = 3, []
    model.wandb_logger = types.SimpleNamespace(log=lambda row: pi.append(row["pi"]))
    x, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    base, before, found = layer.base_layer.weight.clone(), factors(layer), {}
    stepped = {id(p) for group in model.opt.param_groups for p in group["params"]}
    own = model.opt.step

    def step():
        # The gradients of the loss, before those of the divergence are added.
        found.setdefault("root_gradient", layer.lora_A_rho["default"].grad.clone())
        return own()

    model.opt.step = step
    draws = {"inputs": signs(5, 3), "outputs": signs(5, 2), "noise": torch.randn(2, 3)}
    batch = {"x": x, "labels": labels}
    with given(uniform_=[draws["inputs"], draws["outputs"]], randn_like=[draws["noise"]]):
        model.fit([batch], None)
    after = factors(layer)
    model.fit([batch] * 5, None)
    return {"x": x, "labels": labels, "base": base, "scale": 2.0, "before": before, "draws": draws, "after": after, "weights": pi,
            "root_is_in_optimizer": id(layer.lora_A_rho["default"]) in stepped, "lr": 0.1, "kl_lr": 0.01, "prior_std": 0.2,
            "cycle": 3, **found}


def tfb(repository):
    load_wrappers(repository)
    from modelwrappers.tfblora import TFBLoRA

    # Their code for the factors works in f32 alone.
    torch.set_default_dtype(torch.float32)
    model, layer = lora(TFBLoRA, bayes_train_n_samples=3)
    start = {"a": torch.randn(2, 3), "b": torch.randn(4, 2)}
    layer.lora_A["default"].weight.data, layer.lora_B["default"].weight.data = start["a"].clone(), start["b"].clone()
    model._wrap_lora_layer_var_infer(layer)
    model._update_lora_layers([layer], 0.07)
    turned = factors(layer)
    # Anchors whose logits move with the spread, as three draws would move them.
    anchors, count = torch.randn(6, 4) * 3, 6
    single = moves = torch.randn(3, 6, 4) * 3
    model.forward_logits = lambda batch, **_: (anchors + model.args.bayes_beta * moves).permute(1, 0, 2)
    probabilities = anchors.softmax(-1)
    model.all_ori_probs, model.all_ori_predicted_classes = probabilities, probabilities.argmax(-1)
    searches = {}
    # The defaults of their parser, without the division by the number of anchors, and the settings of their scripts.
    for name, largest, ratio, halvings, scale in [("parser", 0.2, 0.01 / count, 10, 1.0), ("scripts", 0.015, 0.003, 5, 2.0)]:
        moves, model.args.bayes_beta = scale * single, largest
        model.fit([None], target_ratio=ratio, max_iters=halvings)
        searches[name] = {"moves": moves, "ratio": ratio, "largest": largest, "halvings": halvings, "found": model.args.bayes_beta}
    torch.set_default_dtype(torch.float64)
    return {"start": start, "spread": 0.07, "a": turned["a"], "b": turned["b"], "std": turned["root"] ** 2, "anchors": anchors,
            **searches}


def swag(repository):
    package("swag", repository / "swag")
    package("swag.posteriors", repository / "swag" / "posteriors")
    from swag.posteriors.swag import SWAG

    net = torch.nn.Linear(3, 2, bias=False).double()
    kept = SWAG(lambda: torch.nn.Linear(3, 2, bias=False).double(), no_cov_mat=False, max_num_models=5)
    optimizer, start = torch.optim.SGD(net.parameters(), lr=0.1), net.weight.clone()
    gradients = torch.randn(12, 2, 3)
    for gradient in gradients:
        net.weight.grad = gradient.clone()
        optimizer.step()
        kept.collect_model(net)
    (mean,), (variance,), (deviations,) = kept.generate_mean_var_covar()
    epsilon, along = torch.randn(6), torch.randn(5)
    with without_gpu(), given(randn_like=[epsilon], normal_=[along]):
        kept.sample(scale=0.5, cov=True)
    return {"start": start, "gradients": gradients, "lr": 0.1, "columns": 5, "mean": mean, "variance": variance,
            "deviations": deviations, "epsilon": epsilon, "along": along, "draw": kept.base.weight}


def csgmcmc(repository):
    """Two cycles of ten steps, of which the last fifty epochs' rule takes the last two as sampling steps."""
    found = {}
    for name, script, names, alpha in [("sgld", "cifar_csgmcmc.py", ["noise_loss", "adjust_learning_rate"], 1),
                                       ("sghmc", "cifar_csghmc.py", ["update_params", "adjust_learning_rate"], 0.9)]:
        net = torch.nn.Linear(3, 2, bias=False).double()
        args = types.SimpleNamespace(alpha=alpha, temperature=1 / 50, epochs=2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=1 - alpha, weight_decay=0.3)
        # T is the number of all steps, M that of cycles; an epoch has ten steps here.
        scope = {"torch": torch, "np": __import__("numpy"), "net": net, "args": args, "device_id": None, "num_batch": 10, "T": 20,
                 "M": 2, "lr_0": 0.05, "datasize": 50, "weight_decay": 0.3}
        step, rate = functions(repository / "experiments" / script, names, scope)
        x, y, noise = torch.randn(8, 3), torch.randn(8, 2), torch.randn(20, 2, 3)
        start, states, rates = net.weight.clone(), [], []
        for t in range(20):
            noisy = t % 10 >= 8
            # Their scripts sample in the last five of fifty epochs.
            epoch = 45 if noisy else 0
            net.zero_grad()
            with without_gpu():
                if name == "sgld":
                    lr = rate(optimizer, t // 10, t % 10)
                    loss = ((x @ net.weight.T - y) ** 2).mean()
                    if noisy:
                        own = torch.normal
                        torch.normal = lambda means, std: noise[t] * std
                        loss = loss + step(lr, alpha) * (args.temperature / 50) ** 0.5
                        torch.normal = own
                    loss.backward()
                    optimizer.step()
                else:
                    lr = rate(t // 10, t % 10)
                    ((x @ net.weight.T - y) ** 2).mean().backward()
                    own, own_zeros = torch.randn, torch.zeros
                    torch.randn = lambda *_: noise[t]
                    step(lr, epoch)
                    torch.randn = own
            rates.append(lr)
            states.append(net.weight.clone())
        found[name] = {"x": x, "y": y, "noise": noise, "start": start, "states": states, "rates": rates, "friction": alpha}
    return found | {"lr": 0.05, "ess": 50, "temperature": 1 / 50, "weight_decay": 0.3, "cycle": 10, "exploration": 0.8}


def vogn(repository):
    sys.path.insert(0, str(repository))
    from torchsso.optim import VOGN

    found = {}
    for name, steps, decay in [("plain", 5, 1.0), ("running_mean", 1, 0.1)]:
        net = torch.nn.Linear(3, 4, bias=False).double()
        optimizer = VOGN(net, dataset_size=100.0, lr=0.1, curv_kwargs={"ema_decay": 0.05, "damping": 0.02}, grad_ema_decay=decay,
                         warmup_kl_weighting_steps=None, num_mc_samples=1, prior_variance=0.25, init_precision=0.6)
        # Newer versions of torch expect them of every optimizer.
        optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks = {}, {}
        x, labels, noise = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0]), torch.randn(steps, 4, 3)
        start = net.weight.clone()

        def closure():
            optimizer.zero_grad()
            output = net(x)
            loss = torch.nn.functional.cross_entropy(output, labels)
            loss.backward()
            return loss, output

        means, stds = [], []
        for step in range(steps):
            with given(randn_like=[noise[step]]):
                optimizer.step(closure)
            group = optimizer.param_groups[0]
            means.append(net.weight.clone())
            stds.append(group["curv"].std[0] * group["std_scale"])
        found[name] = {"x": x, "labels": labels, "noise": noise, "start": start, "means": means, "stds": stds}
    # The prior's precision over the images is 1 / (100 · 0.25).
    return found | {"lr": 0.1, "ess": 100.0, "weight_decay": 0.04, "damping": 0.02, "precision": 0.6, "decay": 0.05,
                    "gradient_decay": 0.1}


def bayesvlm(repository):
    sys.path.insert(0, str(repository))
    from bayesvlm import hessians, vlm

    model = {"clip": vlm.CLIP(logit_scale=1.5).double(), "siglip": vlm.CLIP(logit_scale=1.5, logit_bias=-6.0).double()}
    phi, psi, p, q = torch.randn(4, 3), torch.randn(5, 2), torch.randn(3, 3), torch.randn(3, 2)
    images, texts = phi @ p.T, psi @ q.T
    scale = torch.tensor(1.5)
    found = {"inputs": {"images": phi, "texts": psi}, "projections": {"images": p, "texts": q}, "log_scale": 1.5, "bias": -6.0}
    found["hessian"] = {
        "clip": hessians.compute_hessian_analytic_InfoNCE(images, texts, scale),
        # Only the first rows have texts of their own, whose sign changes nothing.
        "siglip": hessians.compute_hessian_analytic_SigLIP(images, torch.arange(4), texts, scale, torch.tensor(-6.0)),
    }
    square = lambda rows: rows.T @ rows
    a = {"images": square(phi) / 2, "texts": square(psi) / 2}
    b = {"images": torch.tensor([4.0, 1.0, 2.5]).diag(), "texts": torch.tensor([3.0, 0.5, 1.5]).diag()}
    results = {"images": vlm.EncoderResult(images, phi), "texts": vlm.EncoderResult(texts, psi)}
    found["factors"] = {"a": a, "b": b}
    for case, precision in [("undamped", 0.0), ("damped", 3.0)]:
        for clip in model.values():
            clip.set_covariances(*[hessians._compute_covariance(a[side], b[side], torch.tensor(10.0), torch.tensor(precision))
                                   for side in ("images", "texts")])
        logits = {name: clip(results["images"], results["texts"]) for name, clip in model.items()}
        probit = vlm.ProbabilisticLogits(logits["siglip"].mean, torch.diag_embed(logits["siglip"].var)).softmax(num_samples=0)
        found[case] = {"mean": logits["clip"].mean, "variance": logits["clip"].var, "precision": precision, "count": 10.0,
                       "siglip_mean": logits["siglip"].mean, "siglip_probit": probit}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bayesian_peft", "swa_gaussian", "csgmcmc", "pytorch_sso", "bayesvlm"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    absent("gpytorch", "gpytorch.lazy", "gpytorch.distributions", "ipdb", "chainer", "chainer.backends", "chainer.backends.cuda",
           "cupy", "tqdm")
    torch.set_default_dtype(torch.float64)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, make, repository in [("blob", blob, args.bayesian_peft), ("tfb", tfb, args.bayesian_peft),
                                   ("swag", swag, args.swa_gaussian), ("csgmcmc", csgmcmc, args.csgmcmc),
                                   ("vogn", vogn, args.pytorch_sso), ("bayesvlm", bayesvlm, args.bayesvlm)]:
        torch.manual_seed(sum(name.encode()))
        with contextlib.redirect_stdout(io.StringIO()):
            golden = numbers(make(repository))
        (OUT / f"{name}.json").write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")
        print(name, (OUT / f"{name}.json").stat().st_size // 1024, "KiB")


if __name__ == "__main__":
    main()
