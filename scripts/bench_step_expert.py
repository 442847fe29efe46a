"""Seconds per training step and per prediction of Bella-SVGD as an expert of PyTorch writes it: batched by hand, eager or compiled.

One frozen tower serves all particles, whose images lie in one batch `[n * B, T, C]`; attention is PyTorch's fused one; the adapters of a
layer are stacked tensors `[n, rank, in]` and `[n, out, rank]` that take two batched products; the kernel of SVGD comes from Gram traces,
of all particles at once; one fused AdamW moves all. In bf16 the frozen weights are kept in bf16, and the adapters are f32 masters.
What the harder peer of `bella bench` is: `bench_step_reference.py` is a loop over deep copies. Weights and images are random. Prints one line of
JSON. Needs: torch, and for --compile a C++ compiler.

    python scripts/bench_step_expert.py --arch vit-b-32 --particles 5 --batch-size 8 --steps 10
    python scripts/bench_step_expert.py --arch clip-mini --particles 20 --batch-size 32 --precision bf16 --compile
    python scripts/bench_step_expert.py --arch clip-mini --particles 20 --batch-size 256 --predict
"""

import argparse
import json
import math
import resource
import statistics
import time

import torch
from bench_step_reference import ALPHA, ARCHITECTURES, CLASSES, GAMMA, LOGIT_SCALE
from clip_modules import ImageTower, randomise
from torch import nn
from torch.nn import functional as F


class Adapters(nn.Module):
    """(alpha / rank) B A of one layer, for all particles."""

    def __init__(self, n, rank, inputs, outputs):
        super().__init__()
        self.scale = ALPHA / rank
        self.a = nn.Parameter(torch.empty(n, rank, inputs))
        self.b = nn.Parameter(torch.randn(n, outputs, rank) * 1e-3)
        for particle in self.a:
            nn.init.kaiming_uniform_(particle, a=math.sqrt(5))

    def forward(self, x, y):
        """Adds the update of rows `x` `[n * B, T, in]` to the frozen product `y` `[n * B, T, out]`."""
        n = self.a.shape[0]
        thin = torch.bmm(x.reshape(n, -1, x.shape[-1]), self.a.to(x.dtype).transpose(1, 2))
        update = torch.baddbmm(y.reshape(n, -1, y.shape[-1]), thin, self.b.to(x.dtype).transpose(1, 2), alpha=self.scale)
        return update.view_as(y)


class Block(nn.Module):
    def __init__(self, frozen, shape, n, rank):
        super().__init__()
        self.frozen, self.heads = frozen, shape.heads
        self.quick = shape.activation == "quick-gelu"
        self.fc = Adapters(n, rank, shape.width, shape.mlp)
        self.proj = Adapters(n, rank, shape.mlp, shape.width)

    def norm(self, layer, x):
        return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)

    def attend(self, x):
        attention = self.frozen.attn
        rows, tokens, width = x.shape
        qkv = F.linear(self.norm(self.frozen.ln_1, x), attention.in_proj_weight, attention.in_proj_bias)
        q, k, v = qkv.view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, tokens, width)
        return x + attention.out_proj(mixed)

    def forward(self, x):
        mlp = self.frozen.mlp
        y = self.norm(self.frozen.ln_2, x)
        y = self.fc(y, mlp.c_fc(y))
        y = y * torch.sigmoid(1.702 * y) if self.quick else F.gelu(y)
        return x + self.proj(y, mlp.c_proj(y))


class Expert(nn.Module):
    """Images `[n * B, 3, S, S]`, the particles' one after the other, to logits `[n * B, C]`."""

    def __init__(self, arguments, dtype):
        super().__init__()
        image, shape = ARCHITECTURES[arguments.arch]
        self.tower = randomise(ImageTower(image, shape), arguments.seed).to(dtype)
        self.head = nn.Parameter((LOGIT_SCALE * F.normalize(torch.randn(CLASSES, shape.output), dim=-1)).to(dtype))
        self.requires_grad_(False)
        blocks = self.tower.transformer.resblocks
        self.blocks = nn.ModuleList(Block(block, shape, arguments.particles, arguments.rank) for block in blocks)
        self.size, self.dtype = image.image_size, dtype

    def forward(self, images, members=1):
        """With `members`, all of them see the same images `[B, 3, S, S]`: what is before the first adapter is computed once."""
        tower = self.tower
        x = tower.conv1(images.to(self.dtype)).flatten(2).transpose(1, 2)
        first = tower.class_embedding.expand(x.shape[0], 1, -1)
        x = torch.cat([first, x], 1) + tower.positional_embedding
        x = self.blocks[0].attend(self.blocks[0].norm(tower.ln_pre, x))
        x = self.blocks[0](x.repeat(members, 1, 1))
        for block in self.blocks[1:]:
            x = block(block.attend(x))
        features = self.blocks[0].norm(tower.ln_post, x[:, 0]) @ tower.proj
        return F.normalize(features.float(), dim=-1) @ self.head.float().T

    def adapters(self):
        return [layer for block in self.blocks for layer in (block.fc, block.proj)]


@torch.no_grad()
def svgd_update(layers):
    """SVGD's direction in place of the gradients; the distance of a layer's products B A by Gram traces, never forming them."""
    for layer in layers:
        a, b, scale = layer.a.double(), layer.b.double(), layer.scale
        n = a.shape[0]
        if n == 1:
            continue
        across_a = torch.einsum("iro,jso->ijrs", a, a)
        across_b = torch.einsum("ior,jos->ijrs", b, b)
        gram = scale**2 * (across_a * across_b).sum((2, 3))
        norms = gram.diagonal()
        distances = (norms[:, None] + norms[None, :] - 2 * gram).clamp_min(0)
        pairs = distances[torch.ones(n, n, dtype=torch.bool).triu(1)]
        two_sigma_squared = (pairs.median() / math.log(n + 1)).clamp_min(1e-12)
        kernel = torch.exp(-distances / two_sigma_squared)
        weight = (kernel - torch.eye(n)) * (-2 * scale**2 / two_sigma_squared)
        total = weight.sum(1)
        of_a = torch.einsum("i,irs,isd->ird", total, torch.einsum("ior,ios->irs", b, b), a) - torch.einsum("ij,ijrs,jsd->ird", weight, across_b, a)
        of_b = torch.einsum("i,ior,irs->ios", total, b, torch.einsum("ird,isd->irs", a, a)) - torch.einsum("ij,jor,jirs->ios", weight, b, across_a)
        drive = kernel.sum(1).float()[:, None, None]
        layer.a.grad = (drive * layer.a.grad + GAMMA / n * of_a.float()) / n
        layer.b.grad = (drive * layer.b.grad + GAMMA / n * of_b.float()) / n


def step_of(arguments, model):
    """One step on images `[n * B, 3, S, S]` and labels `[n * B]`."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.1, fused=True)

    def losses(images, labels):
        return F.cross_entropy(model(images), labels, reduction="sum") / arguments.batch_size

    forward = torch.compile(losses) if arguments.compile else losses
    update = torch.compile(svgd_update) if arguments.compile and arguments.compile_update else svgd_update

    def step(images, labels):
        optimizer.zero_grad()
        forward(images, labels).backward()
        update(model.adapters())
        optimizer.step()

    return step


def prediction_of(arguments, model):
    """Logits of every member for the same `B` images."""
    forward = torch.compile(model) if arguments.compile else model

    @torch.no_grad()
    def predict(images, labels):
        return forward(images[: arguments.batch_size], arguments.particles)

    return predict


def time_of(work):
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def measure(arguments):
    torch.manual_seed(arguments.seed)
    model = Expert(arguments, torch.bfloat16 if arguments.precision == "bf16" else torch.float32)
    work = (prediction_of if arguments.predict else step_of)(arguments, model)
    rows, samples = arguments.particles * arguments.batch_size, []
    for number in range(arguments.warmup + arguments.steps):
        images, labels = torch.randn(rows, 3, model.size, model.size), torch.randint(CLASSES, (rows,))
        sample = time_of(lambda: work(images, labels))
        if number >= arguments.warmup:
            samples.append(sample)
    return samples


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="vit-b-32")
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8, help="images per particle; of a prediction, images of every member")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10, help="timed steps or predictions")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones")
    parser.add_argument("--threads", type=int, help="default: PyTorch's choice")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--compile-update", action="store_true", help="also the update of SVGD")
    parser.add_argument("--predict", action="store_true", help="time predictions, not steps")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    samples = measure(arguments)
    report = vars(arguments) | {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "median_seconds": statistics.median(wall for wall, _ in samples),
        "seconds": [wall for wall, _ in samples],
        "processor_seconds": [processor for _, processor in samples],
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
