"""Reference numbers for `[method.vbll]` (Harrison et al., ICLR 2024): the objective and its gradients by autograd, the expected
log-likelihood by Gauss-Hermite quadrature, and on a problem with two weights the optimum of the objective beside the true
posterior on a grid. src/methods/entries/vbll/tests/mod.rs has what this prints. Needs torch and numpy.

    python scripts/vbll_reference.py
"""

import itertools
import math

import numpy as np
import torch

torch.set_default_dtype(torch.float64)


def made(*shape, phase):
    """The numbers that the Rust test makes, too."""
    return torch.sin(torch.arange(math.prod(shape)) * 1.7 + phase).reshape(shape)


def regulariser(mean, log_std, columns, log_noise, prior_std, dof, scale):
    """KL of N(mean, D + Uᵀ U) from the prior, by the whole covariance, and the negative log prior of the noise."""
    n, classes, width = mean.shape
    u = columns.flatten(2)
    covariance = torch.diag_embed((2 * log_std.reshape(n, -1)).exp()) + u.transpose(1, 2) @ u
    q = torch.distributions.MultivariateNormal(mean.reshape(n, -1), covariance)
    size = classes * width
    p = torch.distributions.MultivariateNormal(torch.zeros(size), prior_std**2 * torch.eye(size))
    kl = torch.distributions.kl_divergence(q, p)
    precision = (-2 * log_noise).exp()
    return kl, (dof + classes + 1) / 2 * 2 * log_noise.sum(1) + scale / 2 * precision.sum(1)


def moments(features, mean, bias, log_std, columns, log_noise):
    """Means and variances of the logits, [n, B, C] each."""
    n, classes, width = mean.shape
    means = torch.einsum("nbd,ncd->nbc", features, mean) + bias[:, None]
    variances = torch.stack([
        features.pow(2) @ (2 * log_std[:, c]).exp()[..., None]
        + torch.einsum("nbd,nrd->nbr", features, columns[:, :, c]).pow(2).sum(-1, keepdim=True)
        for c in range(classes)
    ], -1)[:, :, 0] + (2 * log_noise).exp()[:, None]
    return means, variances


def bound(means, variances, labels):
    at = means.gather(2, labels[..., None])[..., 0]
    return (torch.logsumexp(means + variances / 2, 2) - at).mean(1)


def exact(means, variances, labels, nodes=40):
    """-E log softmax_y by quadrature over independent logits: only their own variances enter the expectation of a sum, but the
    log-sum-exp joins them; the classes are independent here (no low-rank part)."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    total = torch.zeros(means.shape[:2])
    for index in itertools.product(range(nodes), repeat=means.shape[2]):
        z = means + variances.sqrt() * torch.tensor([x[i] for i in index])
        total += math.prod(w[i] for i in index) * torch.logsumexp(z, 2)
    return (total - means.gather(2, labels[..., None])[..., 0]).mean(1)


def rust(tensor):
    return "[" + ", ".join(f"{v:.12f}" for v in tensor.detach().flatten().tolist()) + "]"


def objective():
    n, batch, classes, width, rank = 2, 4, 3, 2, 1
    leaves = dict(
        features=made(n, batch, width, phase=0.3), mean=made(n, classes, width, phase=0.9), bias=made(n, classes, phase=1.3) * 0.5,
        log_std=made(n, classes, width, phase=2.0) * 0.4 - 0.7, log_noise=made(n, classes, phase=0.1) * 0.3 - 1,
        columns=made(n, rank, classes, width, phase=0.5) * 0.6,
    )
    for leaf in leaves.values():
        leaf.requires_grad_(True)
    labels = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])
    f, mean, bias, log_std, log_noise, columns = leaves.values()
    losses = bound(*moments(f, mean, bias, log_std, columns, log_noise), labels)
    kl, noise = regulariser(mean, log_std, columns, log_noise, 0.8, 1.5, 0.7)
    (losses + (kl + noise) / 50).sum().backward()
    print("losses", rust(losses))
    print("kl", rust(kl))
    print("noise", rust(noise))
    for name, leaf in leaves.items():
        print("by", name, rust(leaf.grad))
    plain = moments(f, mean, bias, log_std, columns * 0, log_noise)
    print("bound without columns", rust(bound(*plain, labels)), "exact", rust(exact(*plain, labels)))


def optimum():
    """Two classes, one feature, six images. The grid holds bias and noise at the optimum's."""
    features = torch.tensor([0.5, -1.0, 1.5, -0.4, 1.0, -2.0])[None, :, None]
    labels = torch.tensor([[0, 1, 0, 0, 0, 1]])
    size, prior_std = 60.0, 1.0
    numbers = torch.tensor([0.1, -0.1, 0.0, 0.0, -0.5, -0.5, -1.0, -1.0], requires_grad=True)

    def loss():
        mean, bias, log_std, log_noise = numbers[0:2].view(1, 2, 1), numbers[2:4].view(1, 2), numbers[4:6].view(1, 2, 1), numbers[6:8].view(1, 2)
        none = torch.zeros(1, 0, 2, 1)
        kl, noise = regulariser(mean, log_std, none, log_noise, prior_std, 1.0, 1.0)
        return (bound(*moments(features, mean, bias, log_std, none, log_noise), labels) + (kl + noise) / size).sum()

    optimizer = torch.optim.LBFGS([numbers], max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    print("optimum", rust(numbers), "loss", float(loss().detach()))
    # ess = 60 of six images: each counts ten times.
    grid = torch.linspace(-6, 6, 241)
    w0, w1 = torch.meshgrid(grid, grid, indexing="ij")
    x, w = np.polynomial.hermite_e.hermegauss(30)
    w = w / w.sum()
    bias, noise = numbers[2:4].detach(), numbers[6:8].detach().exp()
    spread = float((noise[0] ** 2 + noise[1] ** 2).sqrt())
    log_posterior = -(w0**2 + w1**2) / (2 * prior_std**2)
    for value, label in zip(features.flatten(), labels.flatten()):
        apart = (w0 - w1) * value + bias[0] - bias[1]
        sign = 1 - 2 * float(label)
        p = sum(wi * torch.sigmoid(sign * (apart + spread * xi)) for xi, wi in zip(x, w))
        log_posterior = log_posterior + size / 6 * p.log()
    p = (log_posterior - log_posterior.max()).exp()
    p = p / p.sum()
    mean = torch.stack([(p * w0).sum(), (p * w1).sum()])
    variance = torch.stack([(p * (w0 - mean[0]) ** 2).sum(), (p * (w1 - mean[1]) ** 2).sum()])
    print("posterior mean", rust(mean), "variance", rust(variance))
    print("variance of w0 - w1", float((p * (w0 - w1 - mean[0] + mean[1]) ** 2).sum()))


objective()
optimum()
