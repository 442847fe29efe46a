"""Loads the authors' code for scripts/make_method_goldens.py: what it imports besides torch and does not use is replaced by
empty modules, and its random draws by given ones. Nothing of that code is in this repository.
"""

import ast
import contextlib
import importlib
import sys
import types
from pathlib import Path

import torch


class Empty(types.ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def absent(*names):
    """Stands in for modules that are imported, but not called, on the way to what is run here."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = Empty(name)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, sys.modules[name])


def package(name, folder):
    """Makes a package of a folder without running its `__init__.py`."""
    found = types.ModuleType(name)
    found.__path__ = [str(folder)]
    sys.modules[name] = found


def functions(path, names, scope):
    """Returns functions of a script that starts training when it is imported, compiled from its own source."""
    tree = ast.parse(Path(path).read_text())
    chosen = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in chosen} == set(names), path
    exec(compile(ast.Module(chosen, []), str(path), "exec"), scope)
    return [scope[name] for name in names]


@contextlib.contextmanager
def given(**draws):
    """Replaces random draws: each name takes the next of its tensors, in the shape that is asked for."""
    queues = {name: iter(tensors) for name, tensors in draws.items()}

    def fill(name):
        def filled(self, *_, **__):
            return self.copy_(next(queues[name]).view_as(self))
        return filled

    def like(name):
        def drawn(tensor, *_, **__):
            return next(queues[name]).view_as(tensor).to(tensor.dtype).clone()
        return drawn

    places = {"randn_like": (torch, like), "uniform_": (torch.Tensor, fill), "normal_": (torch.Tensor, fill)}
    earlier = {}
    try:
        for name in queues:
            owner, kind = places[name]
            earlier[name] = getattr(owner, name)
            setattr(owner, name, kind(name))
        yield
    finally:
        for name, own in earlier.items():
            setattr(places[name][0], name, own)


@contextlib.contextmanager
def without_gpu():
    """Lets `.cuda()` return the tensor itself."""
    own = torch.Tensor.cuda
    torch.Tensor.cuda = lambda self, *_, **__: self
    try:
        yield
    finally:
        torch.Tensor.cuda = own
