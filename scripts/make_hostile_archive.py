"""Makes tests/fixtures/hostile.pt, a TorchScript archive that writes the file `hostile-was-here` when it is loaded.

Usage: python scripts/make_hostile_archive.py tests/fixtures/hostile.pt

Written with PyTorch 2.11. It is what `tests/archives.rs` proves that bella does not load.
"""

import sys

import torch


class Hostile(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]
        torch.save(state[0], "hostile-was-here")

    def forward(self, x):
        return x + self.weight


torch.jit.script(Hostile()).save(sys.argv[1])
