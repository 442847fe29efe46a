#!/usr/bin/env python3
"""Golden numbers of scores of features for foreign samples, by pytorch-ood and OpenOOD.

    python scripts/make_ood_goldens.py PYTORCH-OOD OPENOOD > tests/fixtures/authors/ood.json

PYTORCH-OOD is a checkout of https://github.com/kkirchheim/pytorch-ood (commit d04767360a382d2ea1678d5a571cae66b73e5206, Apache-2.0), OPENOOD
one of https://github.com/Jingkang50/OpenOOD (commit 3c35632ee91b54b09d1f085d04f94744cece7d0b, MIT). They ran with torch 2.11.0, torchmetrics
1.9.0, scikit-learn 1.9.1 and faiss-cpu 1.15.1. The features are made up; networks are the identity before the classifier. OpenOOD computes in
f32, pytorch-ood here in f64, except for its ViM, which ends in f32.
"""
import importlib
import json
import sys
import types
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(sys.argv[1]) / "src"))
from pytorch_ood.detector import ASH, KNN, RMD, EnergyBased, Mahalanobis, ReAct, ViM  # noqa: E402
from pytorch_ood.utils import OODMetrics  # noqa: E402

torch.set_default_dtype(torch.float64)
torch.Tensor.cuda = lambda self: self
# OpenOOD's packages import much more than their files need, so that the files are loaded past them.
for package in ("openood", "openood.utils", "openood.postprocessors", "openood.networks", "openood.evaluators"):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [str(Path(sys.argv[2], *package.split(".")))]
CLASSES, WIDTH, FITTED, SCORED = 4, 12, 160, 24


def named(**values):
    return types.SimpleNamespace(**values)


class Network(torch.nn.Module):
    """The identity before a linear classifier."""

    def __init__(self, weight, bias):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, CLASSES)
        self.fc.weight.data, self.fc.bias.data = weight.float(), bias.float()

    def forward(self, data, return_feature=False):
        return (self.fc(data.float()), data.float()) if return_feature else self.fc(data.float())

    def get_fc(self):
        return self.fc.weight.detach().numpy(), self.fc.bias.detach().numpy()

    def get_fc_layer(self):
        return self.fc


def config(**values):
    of = named(postprocessor_args=named(**values), postprocessor_sweep={})
    return named(postprocessor=of, dataset=named(name="cifar10"))


def of_openood(name, kind, network, features, labels, scored, **settings):
    """Returns OpenOOD's score of features; it is higher for samples from inside."""
    module = importlib.import_module(f"openood.postprocessors.{name}_postprocessor")
    processor = getattr(module, kind)(config(**settings))
    processor.num_classes = CLASSES
    loader = [{"data": features, "label": labels}]
    processor.setup(network, {"train": loader, "val": loader}, None)
    with torch.no_grad():
        return (-processor.postprocess(network, scored)[1].double()).tolist()


def measures():
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.beta(2, 4, 90), rng.beta(4, 2, 70)]).round(2)
    labels = np.concatenate([np.zeros(90, int), -np.ones(70, int)])
    by = OODMetrics().update(torch.tensor(scores), torch.tensor(labels)).compute()
    auroc, _, _, fpr = importlib.import_module("openood.evaluators.metrics").auc_and_fpr_recall(-scores, labels, 0.95)
    return {"inside": scores[:90].tolist(), "outside": scores[90:].tolist(),
            "pytorch-ood": [by["AUROC"], by["FPR95TPR"]], "openood": [float(auroc), float(fpr)]}


def main():
    # What OpenOOD prints is no part of the golden.
    output, sys.stdout = sys.stdout, sys.stderr
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    labels = torch.arange(FITTED) % CLASSES
    mixing = torch.eye(WIDTH) + 0.3 * normal(WIDTH, WIDTH)
    centres, weight, bias = 2 * normal(CLASSES, WIDTH), normal(CLASSES, WIDTH), normal(CLASSES)
    of = (centres[labels] + normal(FITTED, WIDTH) @ mixing + 0.5).float().double()
    scored = torch.cat([centres[torch.arange(SCORED // 2) % CLASSES] + normal(SCORED // 2, WIDTH) @ mixing + 0.5,
                        3 * normal(SCORED // 2, WIDTH)]).float().double()
    weight, bias = weight.float().double(), bias.float().double()
    fc = torch.nn.Linear(WIDTH, CLASSES)
    fc.weight.data, fc.bias.data = weight, bias

    def same(x):
        return x

    def column(x):
        return x.view(len(x), WIDTH, 1, 1).clone()

    unit = torch.nn.functional.normalize
    most = float(np.quantile(of.numpy(), 0.9))
    by_pytorch = {
        "mahalanobis": Mahalanobis(same).fit_features(of, labels).predict_features(scored),
        "relative-mahalanobis": RMD(same).fit_features(of, labels).predict_features(scored),
        "knn-1": KNN(same).fit_features(unit(of), labels).predict_features(unit(scored)).squeeze(1),
        "vim": ViM(same, WIDTH // 2, weight, bias).fit_features(of, labels).predict_features(scored),
        "react": ReAct(same, fc, most).predict(scored),
        "ash": ASH(column, lambda x: fc(x.flatten(1)), "ash-s", 0.65).predict(scored),
        "energy": EnergyBased.score(fc(scored)),
    }
    network, arguments = Network(weight, bias), (of, labels, scored)
    react = importlib.import_module("openood.networks.react_net").ReactNet(network)
    by_openood = {
        "knn": of_openood("knn", "KNNPostprocessor", network, *arguments, K=50),
        "mahalanobis": of_openood("mds", "MDSPostprocessor", network, *arguments),
        "relative-mahalanobis": of_openood("rmds", "RMDSPostprocessor", network, *arguments),
        "vim": of_openood("vim", "VIMPostprocessor", network, *arguments, dim=WIDTH // 2),
        "react": of_openood("react", "ReactPostprocessor", react, *arguments, percentile=90),
    }
    json.dump({
        "features": of.tolist(), "labels": labels.tolist(), "scored": scored.tolist(), "weight": weight.tolist(),
        "bias": bias.tolist(), "pytorch-ood": {key: value.detach().double().tolist() for key, value in by_pytorch.items()},
        "openood": by_openood, "measures": measures(),
    }, output)


if __name__ == "__main__":
    main()
