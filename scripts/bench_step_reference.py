"""Seconds per training step of Bella-SVGD in plain PyTorch: a loop over deep copies of one model with LoRA hooked in.

Every particle is a whole copy of the frozen image tower with its own adapters, AdamW, and forward and backward pass;
the SVGD update loops over tensors and pairs of particles. With --batched, one frozen tower serves all particles: torch.func
maps it over stacked adapters, one AdamW moves them, and the update works on all pairs at once. Weights and images are random:
they do not change the time. Instead of a CLIP tower, --huggingface takes a folder with a DINOv2 network; its class token is the feature;
--module takes a TorchScript archive of any classifier of images, of which every particle trains all weights, its statistics fixed.
Prints one line of JSON. Needs: torch; transformers for --huggingface.

    python scripts/bench_step_reference.py --arch vit-b-32 --particles 5 --batch-size 8 --steps 10
    python scripts/bench_step_reference.py --huggingface dinov2-base --image-size 224 --particles 5 --batch-size 8 --steps 10
    python scripts/bench_step_reference.py --module resnet20-cifar10.pt --image-size 32 --particles 5 --batch-size 32 --steps 10
"""

import argparse
import copy
import json
import math
import resource
import statistics
import sys
import time

import torch
from clip_modules import ImageShape, ImageTower, TowerShape, randomise
from torch import nn
from torch.nn import functional as F

ARCHITECTURES = {
    "vit-b-32": (ImageShape(224, 32), TowerShape(768, 12, 12, 3072, 512)),
    "clip-mini": (ImageShape(32, 8), TowerShape(192, 6, 3, 768, 512, activation="gelu")),
}
CLASSES = 10
LOGIT_SCALE = 100.0
ALPHA = 16
GAMMA = 0.01


class LoraLinear(nn.Module):
    """A frozen linear layer plus (alpha / rank) B A; B starts at zero."""

    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.scale = ALPHA / rank
        self.lora_a = nn.Parameter(torch.empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        return self.linear(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


class ZeroShotClassifier(nn.Module):
    """Image tower and frozen text head; features are L2-normalised."""

    def __init__(self, tower, features):
        super().__init__()
        self.tower = tower
        head = torch.randn(CLASSES, features)
        self.register_buffer("head", LOGIT_SCALE * F.normalize(head, dim=-1))

    def forward(self, images):
        return F.linear(F.normalize(self.tower(images), dim=-1), self.head)


class HuggingFaceTower(nn.Module):
    """The image tower of a folder: images to the final class token."""

    def __init__(self, folder):
        super().__init__()
        from transformers import AutoModel

        self.network = AutoModel.from_pretrained(folder)
        self.width = self.network.config.hidden_size

    def forward(self, images):
        return self.network(images).last_hidden_state[:, 0]


def add_lora(model, rank):
    """Freeze the model and adapt both MLP layers of every block."""
    model.requires_grad_(False)
    layers = [module for module in model.modules() if {"c_fc", "fc1"} & set(dict(module.named_children()))]
    for mlp in layers:
        for name in ("c_fc", "c_proj", "fc1", "fc2"):
            if hasattr(mlp, name):
                setattr(mlp, name, LoraLinear(getattr(mlp, name), rank))
    return model


def trainable(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@torch.no_grad()
def svgd_update(particles):
    """Replace each gradient by the SVGD direction; RBF kernel and median bandwidth of each tensor on its own.

    No value is read back to Python, so the loop also suits a GPU.
    """
    n = len(particles)
    for tensors in zip(*particles):
        gradients = [tensor.grad for tensor in tensors]
        pairs = [(i, j) for i in range(n) for j in range(i)]
        distances = {(i, j): (tensors[i] - tensors[j]).square().sum() for i, j in pairs}
        if pairs:
            two_sigma_squared = torch.stack(list(distances.values())).median() / math.log(n + 1)
            two_sigma_squared = two_sigma_squared.clamp_min(1e-12)  # B starts equal
        directions = []
        for i in range(n):
            direction = gradients[i].clone()
            for j in range(n):
                if i == j:
                    continue
                kernel = torch.exp(-distances[max(i, j), min(i, j)] / two_sigma_squared)
                direction += kernel * gradients[i]
                direction -= (GAMMA / n) * kernel * 2 / two_sigma_squared * (tensors[i] - tensors[j])
            directions.append(direction / n)
        for tensor, direction in zip(tensors, directions):
            tensor.grad.copy_(direction)


def train_step(models, optimizers, batches, use_svgd):
    """One step of all particles, each on its own batch."""
    for model, optimizer, (images, labels) in zip(models, optimizers, batches):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
    if use_svgd:
        svgd_update([trainable(model) for model in models])
    for optimizer in optimizers:
        optimizer.step()


@torch.no_grad()
def svgd_update_batched(stacked):
    """`svgd_update` on tensors `[n, ...]` of all particles."""
    for tensor in stacked:
        n = tensor.shape[0]
        if n == 1:
            continue
        theta, gradient = tensor.flatten(1), tensor.grad.flatten(1)
        distances = torch.cdist(theta, theta, compute_mode="donot_use_mm_for_euclid_dist").square()
        pairs = distances[torch.ones(n, n, dtype=torch.bool, device=theta.device).tril(-1).nonzero(as_tuple=True)]
        two_sigma_squared = (pairs.median() / math.log(n + 1)).clamp_min(1e-12)
        kernel = torch.exp(-distances / two_sigma_squared)
        others = kernel - torch.eye(n, device=theta.device)
        repulsion = others.sum(1, keepdim=True) * theta - others @ theta
        direction = kernel.sum(1, keepdim=True) * gradient - (GAMMA / n) * 2 / two_sigma_squared * repulsion
        tensor.grad.copy_((direction / n).view_as(tensor))


def batched_step(model, stacked, optimizer, batches, use_svgd):
    """`train_step` with all particles in one forward and one backward pass."""
    optimizer.zero_grad()

    def losses(adapters, images, labels):
        return F.cross_entropy(torch.func.functional_call(model, adapters, (images,)), labels)

    images, labels = (torch.stack(column) for column in zip(*batches))
    torch.func.vmap(losses)(stacked, images, labels).sum().backward()
    if use_svgd:
        svgd_update_batched(list(stacked.values()))
    optimizer.step()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="vit-b-32")
    parser.add_argument("--huggingface", help="a folder with a DINOv2 network, instead of --arch")
    parser.add_argument("--module", help="a TorchScript archive of a classifier of images, instead of --arch")
    parser.add_argument("--image-size", type=int, default=224, help="pixels, for --huggingface and --module")
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8, help="images per particle")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones")
    parser.add_argument("--threads", type=int, help="default: PyTorch's choice")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: the forward pass under autocast")
    parser.add_argument("--batched", action="store_true", help="all particles in one pass, instead of the loop")
    parser.add_argument("--seed", type=int, default=0)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--no-svgd", action="store_true", help="train an ensemble: no interaction of particles")
    mode.add_argument("--update-only", action="store_true", help="time the SVGD update alone")
    arguments = parser.parse_args()
    if arguments.huggingface and arguments.module:
        parser.error("--huggingface and --module are two networks")
    if arguments.update_only and (arguments.huggingface or arguments.module):
        parser.error("--update-only takes its shapes from --arch")
    if arguments.module and (arguments.batched or arguments.precision != "f32"):
        parser.error("--module: an archive is measured one particle after the other, in f32")
    for name, least in {"particles": 1, "batch_size": 1, "rank": 1, "steps": 1, "warmup": 0, "threads": 1}.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            parser.error(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    return arguments


def build_adapters(arguments, device):
    """Adapters alone, with gradients: enough for the update, and a hundred towers would not fit."""
    shape = ARCHITECTURES[arguments.arch][1]
    layers = [(shape.width, shape.mlp), (shape.mlp, shape.width)] * shape.blocks
    particles = []
    for _ in range(arguments.particles):
        tensors = []
        for inputs, outputs in layers:
            a = torch.empty(arguments.rank, inputs, device=device)
            nn.init.kaiming_uniform_(a, a=math.sqrt(5))
            tensors += [a, torch.randn(outputs, arguments.rank, device=device) * 0.01]
        for tensor in tensors:
            tensor.requires_grad_(True).grad = torch.randn_like(tensor) * 1e-3
        particles.append(tensors)
    return particles


def build_particles(arguments, device):
    """Deep copies of one frozen base; the adapters of each are drawn anew. Of an archive, every weight is trained."""
    if arguments.module:
        models = [torch.jit.load(arguments.module, map_location=device).eval() for _ in range(arguments.particles)]
        return models, optimizers_of(models)
    if arguments.huggingface:
        tower = HuggingFaceTower(arguments.huggingface)
        base = ZeroShotClassifier(tower, tower.width)
    else:
        image, shape = ARCHITECTURES[arguments.arch]
        tower = randomise(ImageTower(image, shape), arguments.seed)
        base = ZeroShotClassifier(tower, tower.proj.shape[1])
    models = [add_lora(copy.deepcopy(base), arguments.rank).to(device) for _ in range(arguments.particles)]
    return models, optimizers_of(models)


def optimizers_of(models):
    return [torch.optim.AdamW(trainable(model), lr=1e-3, weight_decay=0.1) for model in models]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_of(work, device):
    """Wall seconds, and seconds of all threads on the processor."""
    synchronize(device)
    start, processor = time.perf_counter(), time.process_time()
    work()
    synchronize(device)
    return time.perf_counter() - start, time.process_time() - processor


def measure_update(arguments, device):
    particles = build_adapters(arguments, device)
    steps = arguments.warmup + arguments.steps
    samples = [time_of(lambda: svgd_update(particles), device) for _ in range(steps)]
    return samples[arguments.warmup :], particles


def build_batched(arguments, device):
    """One frozen tower, and the adapters of all particles stacked."""
    models, _ = build_particles(arguments, torch.device("cpu"))
    model, names = models[0].to(device), [name for name, tensor in models[0].named_parameters() if tensor.requires_grad]
    adapters = [dict(particle.named_parameters()) for particle in models]
    stacked = {name: torch.stack([each[name].detach().to(device) for each in adapters]).requires_grad_(True) for name in names}
    return model, stacked, torch.optim.AdamW(stacked.values(), lr=1e-3, weight_decay=0.1)


def steps_of(arguments, device):
    """A function that runs one step on given batches, and the trained tensors."""
    use_svgd = not arguments.no_svgd
    if arguments.batched:
        model, stacked, optimizer = build_batched(arguments, device)
        return lambda batches: batched_step(model, stacked, optimizer, batches, use_svgd), [list(stacked.values())]
    models, optimizers = build_particles(arguments, device)
    return lambda batches: train_step(models, optimizers, batches, use_svgd), [trainable(model) for model in models]


def measure_steps(arguments, device):
    given = arguments.huggingface or arguments.module
    size = arguments.image_size if given else ARCHITECTURES[arguments.arch][0].image_size
    step, particles = steps_of(arguments, device)
    samples = []
    for number in range(arguments.warmup + arguments.steps):
        batches = []
        for _ in range(arguments.particles):
            images = torch.randn(arguments.batch_size, 3, size, size, device=device)
            batches.append((images, torch.randint(CLASSES, (arguments.batch_size,), device=device)))
        with torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bf16"):
            sample = time_of(lambda: step(batches), device)
        if number >= arguments.warmup:
            samples.append(sample)
    return samples, particles


def measure(arguments):
    torch.manual_seed(arguments.seed)
    run = measure_update if arguments.update_only else measure_steps
    samples, particles = run(arguments, torch.device(arguments.device))
    return samples, sum(parameter.numel() for particle in particles for parameter in particle)


def main():
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    samples, parameters = measure(arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = vars(arguments) | {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "trainable_parameters": parameters,
        "median_seconds": statistics.median(wall for wall, _ in samples),
        "seconds": [wall for wall, _ in samples],
        "processor_seconds": [processor for _, processor in samples],
        "peak_device_bytes": torch.cuda.max_memory_allocated() if arguments.device.startswith("cuda") else None,
        "peak_rss_bytes": peak if sys.platform == "darwin" else peak * 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
