"""Seconds of predicting with n members in plain PyTorch: a loop over models whose updates are merged into their weights.

Weights and images are random. Prints one line of JSON. Needs: torch.

    python scripts/bench_prediction_reference.py --arch clip-mini --members 20 --images 256
"""

import argparse
import copy
import json
import statistics
import time

import torch
from bench_step_reference import ARCHITECTURES, ZeroShotClassifier, synchronize
from clip_modules import ImageTower, randomise


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="clip-mini")
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--images", type=int, default=256, help="images a prediction")
    parser.add_argument("--steps", type=int, default=5, help="timed predictions")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    image, shape = ARCHITECTURES[arguments.arch]
    # A merged model is a plain one: W_0 + s B A is a matrix like any other.
    base = ZeroShotClassifier(randomise(ImageTower(image, shape), 0), shape.output).eval().requires_grad_(False)
    models = [copy.deepcopy(base).to(device) for _ in range(arguments.members)]
    images = torch.randn(arguments.images, 3, image.image_size, image.image_size, device=device)
    seconds, processor_seconds = [], []
    with torch.inference_mode():
        for step in range(arguments.warmup + arguments.steps):
            synchronize(device)
            start, processor = time.perf_counter(), time.process_time()
            torch.stack([model(images) for model in models])
            synchronize(device)
            if step >= arguments.warmup:
                seconds.append(time.perf_counter() - start)
                processor_seconds.append(time.process_time() - processor)
    median = statistics.median(seconds)
    report = vars(arguments) | {
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "images_per_second": arguments.images / median,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
