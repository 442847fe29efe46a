#!/usr/bin/env python3
"""Numbers of laplace-torch that tests/library/laplace/small.rs compares bella's Laplace approximations with.

    pip install torch laplace-torch && python scripts/compare_laplace.py

Two small networks in f64, whose weights and data are sines, so that the test can make them as well: an MLP, and one that
applies its first layer to each of several tokens. Printed for each structure of the curvature: the log evidence at prior
precision 0.7, and the covariance V of the linearised logits at two inputs.
Also where labels are drawn.
"""

import torch
from laplace import Laplace
from laplace.curvature import CurvlinopsEF, CurvlinopsGGN
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
IN, HIDDEN, CLASSES, DATA, TOKENS = 5, 6, 3, 12, 4


def sines(offset, *shape):
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + offset).reshape(shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(IN, HIDDEN)
        self.last = torch.nn.Linear(HIDDEN, CLASSES)
        for offset, parameter in enumerate(self.parameters()):
            parameter.data = sines(offset, *parameter.shape)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        if hidden.dim() == 3:
            hidden = hidden.mean(1)
        return self.last(hidden)


def show(name, x, test, drawn=False, **options):
    # The curvature of drawn labels is that of gradients for these labels: laplace-torch's "empirical Fisher" of them. The labels
    # are given, so that both programs take the same ones.
    y = (2 * torch.arange(DATA) // 3) % CLASSES if drawn else torch.arange(DATA) % CLASSES
    if drawn:
        options["backend"] = CurvlinopsEF
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    fitted = Laplace(Net(), "classification", prior_precision=0.7, **options)
    fitted.fit(loader)
    evidence = fitted.log_marginal_likelihood().item()
    # The linearised predictive's Gaussian.
    _, variance = fitted._glm_predictive_distribution(test)
    row = ", ".join(f"{value:.10f}" for value in variance.flatten().tolist())
    print(f"{name}: evidence {evidence:.10f}\n  V [{row}]")


class Reduced(CurvlinopsGGN):
    """Kronecker factors that count each image, not each token, as one sample."""

    def kron(self, x, y, N, **options):
        return super().kron(x, y, N, kfac_approx="reduce", **options)


def show_maximum(structure, x):
    """The prior precision with the largest evidence, and that evidence."""
    fitted = Laplace(Net(), "classification", prior_precision=0.7, subset_of_weights="all", hessian_structure=structure)
    fitted.fit(DataLoader(TensorDataset(x, torch.arange(DATA) % CLASSES), batch_size=5))
    fitted.optimize_prior_precision(method="marglik", n_steps=6000, lr=0.05)
    print(f"maximum {structure}: {fitted.prior_precision.item():.8f}, {fitted.log_marginal_likelihood().item():.10f}")


def main():
    x, test = 2 * sines(0.5, DATA, IN), 2 * sines(0.9, 2, IN)
    for structure in ["full", "diag", "kron"]:
        show_maximum(structure, x)
    show("mlp last-layer full", x, test, subset_of_weights="last_layer", hessian_structure="full")
    for structure in ["full", "diag", "kron"]:
        show(f"mlp {structure}", x, test, subset_of_weights="all", hessian_structure=structure)
    show("mlp last-layer kron", x, test, subset_of_weights="last_layer", hessian_structure="kron")
    show("mlp last-layer diag", x, test, subset_of_weights="last_layer", hessian_structure="diag")
    for structure in ["full", "diag", "kron"]:
        show(f"mlp {structure}, drawn labels", x, test, True, subset_of_weights="all", hessian_structure=structure)
    show("mlp last-layer kron, drawn labels", x, test, True, subset_of_weights="last_layer", hessian_structure="kron")
    x, test = 2 * sines(0.5, DATA, TOKENS, IN), 2 * sines(0.9, 2, TOKENS, IN)
    for structure in ["full", "kron"]:
        show(f"tokens {structure}", x, test, subset_of_weights="all", hessian_structure=structure)
    show("tokens kron, reduced", x, test, subset_of_weights="all", hessian_structure="kron", backend=Reduced)


if __name__ == "__main__":
    main()
