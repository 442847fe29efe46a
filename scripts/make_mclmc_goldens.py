#!/usr/bin/env python3
"""Runs blackjax's microcanonical Langevin dynamics with given noise in f64, and its tuner on given energy errors, and writes what came
out to tests/fixtures/authors/mclmc.json, to which the tests of `[method.mclmc]` hold bella.

| package | what is run |
|---|---|
| blackjax 1.7.1 | `mclmc.build_kernel()`, three steps; the `predictor` of `mclmc_adaptation`, and `incremental_value_update` |

    pip install blackjax==1.7.1 jax==0.10.2
    python scripts/make_mclmc_goldens.py
"""

import ast
import inspect
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation import mclmc_adaptation
from blackjax.mcmc import integrators, mclmc
from blackjax.util import incremental_value_update

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "mclmc.json"
COLUMNS, STEPS, STEP_SIZE, LENGTH, WANTED = 5, 3, 0.3, 1.7, 5e-4


def steps(random):
    weights = jnp.array(random.standard_normal(COLUMNS))
    draws = random.standard_normal((2 * STEPS, COLUMNS))
    left = iter(draws)
    integrators.normal = lambda *_, **__: jnp.array(next(left))

    def logdensity(theta):
        # An energy that is no quadratic: sum w^2 theta^4 / 4 + theta^2 / 2.
        return -(weights**2 * theta**4 / 4 + theta**2 / 2).sum()

    theta, direction = random.standard_normal(COLUMNS), random.standard_normal(COLUMNS)
    direction /= np.linalg.norm(direction)
    value, gradient = jax.value_and_grad(logdensity)(jnp.array(theta))
    state = integrators.IntegratorState(jnp.array(theta), jnp.array(direction), value, gradient)
    kernel, found = mclmc.build_kernel(), []
    for step in range(STEPS):
        state, info = kernel(jax.random.key(step), state, logdensity, 1.0, LENGTH, STEP_SIZE)
        found.append({"theta": state.position.tolist(), "direction": state.momentum.tolist(), "error": float(info.energy_change)})
    return {"weights": weights.tolist(), "draws": draws.tolist(), "theta": theta.tolist(), "direction": direction.tolist(),
            "step_size": STEP_SIZE, "length": LENGTH, "steps": found}


def tuned(random):
    """The step sizes that follow from energy errors, and the length that follows from positions."""
    tree = ast.parse(inspect.getsource(mclmc_adaptation))
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "predictor")
    # Errors so large that no step size doubles, to which bella limits it.
    errors = np.array([0.02, -0.05, 0.2, 0.03, -0.04, 0.3, 0.1, 0.04])
    left = iter(errors)

    def kernel(**given):
        return given["state"], SimpleNamespace(energy_change=jnp.array(next(left)), nonans=jnp.array(True))

    class Params(SimpleNamespace):
        def _replace(self, **new):
            return Params(**(vars(self) | new))

    scope = {"jax": jax, "jnp": jnp, "kernel": kernel, "logdensity_fn": None, "dim": COLUMNS, "desired_energy_var": WANTED,
             "trust_in_estimate": 1.5, "decay_rate": (150 - 1.0) / (150 + 1.0), "handle_nans": mclmc_adaptation.handle_nans}
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), "predictor", "exec"), scope)
    state = SimpleNamespace()
    real = scope["handle_nans"]
    # The state is not looked at.
    scope["handle_nans"] = lambda before, after, *rest: (True, after, rest[1], rest[2]) if real else None
    params, adaptive, sizes = Params(inverse_mass_matrix=1.0, L=LENGTH, step_size=0.02), (0.0, 0.0, jnp.inf), []
    for _ in errors:
        state, params, adaptive, _ = scope["predictor"](state, params, adaptive, jax.random.key(0))
        sizes.append(float(params.step_size))
    positions, average = random.standard_normal((4, COLUMNS)), (0.0, jnp.zeros((2, COLUMNS)))
    for position, size in zip(positions, sizes[4:]):
        x = jnp.array(position)
        average = incremental_value_update(expectation=jnp.array([x, x**2]), incremental_val=average, weight=size)
    length = jnp.sqrt((average[1][1] - average[1][0] ** 2).sum())
    return {"errors": errors.tolist(), "start": 0.02, "wanted": WANTED, "sizes": sizes, "positions": positions.tolist(),
            "length": float(length)}


def main():
    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(3)
    OUT.write_text(json.dumps({"dynamics": steps(random), "tuning": tuned(random)}, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
