"""The moments of a cosine between Gaussian embeddings: in closed form from whole covariance matrices, and by sampling.

    python scripts/bayesvlm_reference.py

prints the golden numbers of src/laplace/cosine.rs, and by how much the exact cosine's moments, from ten million draws, differ.
"""

import torch

torch.manual_seed(0)
D, W = 3, 2
P = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.25, 1.5]], dtype=torch.float64)
Q = torch.tensor([[0.5, -1.0], [1.5, 0.75], [1.0, 0.5]], dtype=torch.float64)
phi = torch.tensor([[1.0, 2.0], [-0.5, 1.0]], dtype=torch.float64)
psi = torch.tensor([[2.0, 0.5], [1.0, 1.5]], dtype=torch.float64)
A_P = torch.tensor([[4.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
B_P = torch.tensor([[5.0, 1.0, 0.5], [1.0, 4.0, -1.0], [0.5, -1.0, 6.0]], dtype=torch.float64)
A_Q = torch.tensor([[3.0, -1.0], [-1.0, 5.0]], dtype=torch.float64)
B_Q = torch.tensor([[6.0, 0.0, 1.0], [0.0, 3.0, 0.5], [1.0, 0.5, 4.0]], dtype=torch.float64)
PRECISION, SCALE, BIAS = 7.0, 10.0, -1.0


def posterior(a, b):
    """The covariance of a weight [D, W], by rows, whose precision is B ⊗ A + λ."""
    return torch.linalg.inv(torch.kron(b, a) + PRECISION * torch.eye(D * W, dtype=torch.float64))


def covariance(sigma, x):
    """That of W x."""
    jacobian = torch.kron(torch.eye(D, dtype=torch.float64), x.unsqueeze(0))
    return jacobian @ sigma @ jacobian.T


def closed_form(mu_g, s_g, mu_h, s_h):
    norms = (mu_g @ mu_g + s_g.trace()) * (mu_h @ mu_h + s_h.trace())
    variance = (mu_h @ s_g @ mu_h + mu_g @ s_h @ mu_g + (s_g @ s_h).trace()) / norms
    return mu_g @ mu_h / norms.sqrt(), variance


def sampled(mu_g, s_g, mu_h, s_h, draws=10_000_000):
    draw = lambda mu, s: mu + torch.randn(draws, D, dtype=torch.float64) @ torch.linalg.cholesky(s).T
    g, h = draw(mu_g, s_g), draw(mu_h, s_h)
    dot = (g * h).sum(1)
    cosine = torch.nn.functional.cosine_similarity(g, h)
    return (dot.mean(), dot.var()), (cosine.mean(), cosine.var())


s_P, s_Q = posterior(A_P, B_P), posterior(A_Q, B_Q)
means, variances = torch.empty(2, 2, dtype=torch.float64), torch.empty(2, 2, dtype=torch.float64)
for i in range(2):
    for c in range(2):
        one = (P @ phi[i], covariance(s_P, phi[i]), Q @ psi[c], covariance(s_Q, psi[c]))
        means[i, c], variances[i, c] = closed_form(*one)
        (dot_mean, dot_var), (cos_mean, cos_var) = sampled(*one)
        mu_g, s_g, mu_h, s_h = one
        exact = mu_h @ s_g @ mu_h + mu_g @ s_h @ mu_g + (s_g @ s_h).trace()
        print(f"image {i}, text {c}: gᵀh mean {mu_g @ mu_h:.4f} / {dot_mean:.4f}, variance {exact:.4f} / {dot_var:.4f};",
              f"cosine mean {means[i, c]:.4f} / {cos_mean:.4f}, variance {variances[i, c]:.4f} / {cos_var:.4f}")
print("means of the logits", (SCALE * means + BIAS).flatten().tolist())
print("variances of the logits", (SCALE**2 * variances).flatten().tolist())
