#!/usr/bin/env python3
"""Runs the random features of SNGP's last layer and its covariance on given numbers, and writes what came out to
tests/fixtures/authors/random_features.json, to which the tests of `[head.random-features]` and of `laplace`'s variances hold bella.

| repository | commit | what is run |
|---|---|---|
| google/edward2 | ee02560 | `RandomFeatureGaussianProcess` (JAX), its normalisation and random features; `LaplaceRandomFeatureCovariance` (JAX) of two batches, exact, for the likelihoods `gaussian` and `binary_logistic` |

    pip install jax==0.10.2 flax
    python scripts/make_random_feature_goldens.py EDWARD2

The argument is a folder with this repository at this commit.
"""

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "random_features.json"
SAMPLES, WIDTH, FEATURES = 4, 5, 6
# The images that the covariance is fitted on, those that it is of, and its ridge.
FITTED, TESTED, RIDGE = 10, 3, 0.7


def module(path):
    # It imports a layer that is not used here.
    for name in ("edward2", "edward2.jax", "edward2.jax.nn", "edward2.jax.nn.dense"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["edward2.jax.nn"].dense = types.SimpleNamespace(DenseFASNGP=object, MCSigmoidDenseFA=object, MCSoftmaxDenseFA=object)
    spec = importlib.util.spec_from_file_location("random_feature", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def covariances(layers):
    """The variances of the tested images: ridge * phi' (sum w phi phi' + ridge I)^-1 phi, where w is 1, or p (1 - p)."""
    random = np.random.default_rng(2)
    fitted, tested = (jnp.array(random.standard_normal((count, FEATURES))) for count in (FITTED, TESTED))
    logits, found = jnp.array(random.standard_normal((FITTED, 1))), {}
    for likelihood in ("gaussian", "binary_logistic"):
        layer = layers.LaplaceRandomFeatureCovariance(hidden_features=FEATURES, ridge_penalty=RIDGE, likelihood=likelihood, dtype=jnp.float64)
        state = layer.init(jax.random.key(0), fitted, logits)
        for batch in (slice(0, 6), slice(6, FITTED)):
            _, state = layer.apply(state, fitted[batch], logits[batch], mutable=["laplace_covariance"])
        found[likelihood] = layer.apply(state, tested).tolist()
    return {"fitted": fitted.tolist(), "tested": tested.tolist(), "logits": logits.tolist(), "ridge": RIDGE, "variances": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("edward2", type=Path)
    layers = module(parser.parse_args().edward2 / "edward2/jax/nn/random_feature.py")
    jax.config.update("jax_enable_x64", True)
    inputs = jnp.array(np.random.default_rng(1).standard_normal((SAMPLES, WIDTH)) * 3 + 1)
    layer = layers.RandomFeatureGaussianProcess(features=3, hidden_features=FEATURES, hidden_kwargs={"seed": 4, "dtype": jnp.float64},
                                                norm_kwargs={"dtype": jnp.float64}, covmat_kwargs={"dtype": jnp.float64})
    variables = layer.init(jax.random.key(0), inputs)
    _, _, found = layer.apply(variables, inputs, return_random_features=True)
    random = variables["random_features"]["hidden_layer"]
    golden = {"inputs": inputs, "kernel": random["kernel"], "bias": random["bias"], "features": found}
    golden = {name: value.tolist() for name, value in golden.items()} | {"covariance": covariances(layers)}
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
