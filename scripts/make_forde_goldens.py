#!/usr/bin/env python3
"""Runs the authors' own gradient of FoRDE on a tiny network in f64, and writes what came out to tests/fixtures/authors/forde.json, to
which the tests of `[method.svgd]` hold bella.

| repository | commit | what is run |
|---|---|---|
| AaltoPML/FoRDE | e8f9d74 | `calculate_gradients` of `train_forde.py` with its repulsive term, for an even and an odd number of members |

    pip install jax==0.10.2
    python scripts/make_forde_goldens.py FORDE

The argument is a folder with this repository at this commit. Its functions are nested in the script's own, and are compiled from
their own source.
"""

import argparse
import ast
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "forde.json"
IMAGES, INPUTS, WIDTH, CLASSES = 5, 3, 4, 3


def nested(path, names, scope):
    """Compiles functions that stand within others, in the order of `names`."""
    tree = ast.parse(Path(path).read_text())
    for name in names:
        node = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), str(path), "exec"), scope)
    return [scope[name] for name in names]


def apply(params, state, _, inputs, __):
    x = inputs.reshape(inputs.shape[0], -1)
    return jnp.tanh(x @ params["first"].T) @ params["second"].T, state


def found(repository, members, draw):
    params = {"first": draw(members, WIDTH, INPUTS), "second": draw(members, CLASSES, WIDTH)}
    x, labels = draw(IMAGES, 1, 1, INPUTS), np.array([0, 2, 1, 1, 0])
    scope = {"jax": jax, "jnp": jnp, "n_members": members, "n_devices": 1, "batch_size": IMAGES, "height": 1, "width": 1, "channel": INPUTS,
             "eigenvectors": None, "eigenvalues": None, "eps": 1e-12, "label_smoothing": 0.0, "apply_fn": apply, "bx": jnp.array(x),
             "by": jnp.array(labels)}
    _, term, gradients = nested(repository / "train_forde.py", ["forward", "get_repulsive_term", "calculate_gradients"], scope)
    state = jnp.zeros((members, 1))
    lead = jax.tree_util.tree_map(lambda p: jnp.array(p)[None], params)
    grads, loss, repulsion, median, _ = jax.pmap(gradients, axis_name="batch")(lead, state[None])
    flat = np.concatenate([np.array(grads[part][0]).reshape(members, -1) for part in ("first", "second")], 1)
    theta = np.concatenate([params[part].reshape(members, -1) for part in ("first", "second")], 1)
    return {"theta": theta.tolist(), "x": x.reshape(IMAGES, INPUTS).tolist(), "labels": labels.tolist(), "gradients": flat.tolist(),
            "repulsion": float(repulsion[0]) * members, "median": float(median[0])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    repository = parser.parse_args().repository
    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(7)
    golden = {name: found(repository, members, lambda *shape: random.standard_normal(shape)) for name, members in
              [("even", 4), ("odd", 3)]}
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
