#!/usr/bin/env python3
"""Runs the authors' samplers SMILE and pSMILE in f64 on an energy that changes from batch to batch, and writes what came out to
tests/fixtures/authors/smile.json, to which the tests of `[method.mclmc]` hold bella.

| repository | commit | what is run |
|---|---|---|
| EmanuelSommer/SMILE | 8a54636 | `SMILET` and `NOISYSMILE` of src/kernels/smile.py, by `vmap` in place of `pmap` |

In `NOISYSMILE` one line is mended: its first new state does not take over `smooth_grad`, so that the running mean of the gradients begins at 1
in every step. Here it goes on, as its name and its saving at the end of the step say.

    pip install blackjax==1.7.1 jax==0.10.2
    python scripts/make_smile_goldens.py SMILE

The argument is a folder with this repository at this commit.
"""

import argparse
import json
import sys
import types
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "smile.json"
COLUMNS, STEPS, STEP_SIZE, LARGE = 5, 20, 0.2, 15
MENDED = ("            elementwise_sd=state.elementwise_sd,\n            logdensity_grad=unnormalized_grad,\n",
          "            elementwise_sd=state.elementwise_sd,\n            smooth_grad=state.smooth_grad,\n            logdensity_grad=unnormalized_grad,\n")


def module(name, path, mend=lambda text: text):
    found = types.ModuleType(name)
    sys.modules[name] = found
    exec(compile(mend(path.read_text()), str(path), "exec"), found.__dict__)
    return found


def samplers(folder):
    # It was removed from JAX since.
    jax.tree_map = jax.tree.map
    for name in ("src", "src.kernels"):
        sys.modules[name] = types.ModuleType(name)
    kinds = types.ModuleType("src.types")
    kinds.DataSet = kinds.GradEstimator = kinds.ParamTree = kinds.PRNGKey = object
    sys.modules["src.types"] = kinds
    base = module("src.kernels.base", folder / "src/kernels/base.py")

    def compiled(self, **settings):
        self._sample_step = jax.vmap(partial(self._sample_step, **settings), in_axes=(0, 0, 0, None))

    base.Sampler._compile_sample_step = compiled

    def mend(text):
        assert text.count(MENDED[0]) == 1
        return text.replace(*MENDED)

    return module("src.kernels.smile", folder / "src/kernels/smile.py", mend)


def estimate(position, x, y):
    """The log density of a batch: -(sum w^2 theta^4 / 4 + theta^2 / 2), and its gradient."""
    def density(theta):
        return -(x**2 * theta**4 / 4 + theta**2 / 2).sum()
    return jax.value_and_grad(density)(position)


def run(sampler, start, batches):
    chain = sampler(estimate, position=jnp.array(start)[None], step_size=STEP_SIZE)
    found = []
    for batch in batches:
        chain.update_state(jax.random.split(jax.random.key(0), 1), (jnp.array(batch)[None], jnp.zeros(1)), STEP_SIZE)
        state = chain.state
        found.append({"theta": state.position[0].tolist(), "direction": state.momentum[0].tolist(), "step_size": float(state.step_size[0]),
                      "mean": float(state.energy_var_mean[0]), "deviation": float(state.energy_var_std[0])})
        if hasattr(state, "smooth_grad"):
            found[-1]["widths"] = state.elementwise_sd[0].tolist()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("smile", type=Path)
    jax.config.update("jax_enable_x64", True)
    of_authors = samplers(parser.parse_args().smile)
    random = np.random.default_rng(11)
    start, batches = random.standard_normal(COLUMNS), 1 + 0.3 * random.standard_normal((STEPS, COLUMNS))
    # One batch is so large that its step is undone.
    batches[LARGE] *= 8
    golden = {"start": start.tolist(), "batches": batches.tolist(), "step_size": STEP_SIZE,
              "smile": run(of_authors.SMILET, start, batches), "psmile": run(of_authors.NOISYSMILE, start, batches)}
    for key in ("smile", "psmile"):
        steps = golden[key]
        assert any(not any(step["direction"]) for step in steps[1:]), f"{key}: no step is undone"
        sizes = [step["step_size"] for step in steps]
        assert len(set(sizes)) > 2, f"{key}: the step size is not adapted"
        print(key, "sizes", sizes)
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
