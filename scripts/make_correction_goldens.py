#!/usr/bin/env python3
"""Corrects p-values for many comparisons with statsmodels, and writes them to tests/fixtures/corrections.json, to which the tests of
src/metrics/multiple.rs hold bella.

| package | what is run |
|---|---|
| statsmodels 0.15.0 | `multipletests` with `holm` and `fdr_bh` |
| SciPy 1.17.1 | `false_discovery_control`, which has to agree with `fdr_bh` |

    pip install statsmodels==0.15.0 scipy==1.17.1
    python scripts/make_correction_goldens.py
"""

import json
from pathlib import Path

import numpy as np
from scipy.stats import false_discovery_control
from statsmodels.stats.multitest import multipletests

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "corrections.json"


def main():
    random = np.random.default_rng(7)
    # One value, equal values, values at both ends, and many small ones.
    families = [[0.03], [0.04, 0.01, 0.01, 0.2], [1.0, 0.0002, 0.5, 1.0, 0.049], (random.random(19) ** 3).tolist()]
    golden = []
    for values in families:
        holm, rate = (multipletests(values, method=method)[1].tolist() for method in ("holm", "fdr_bh"))
        assert np.allclose(rate, false_discovery_control(values), atol=1e-15)
        golden.append({"values": values, "holm": holm, "benjamini_hochberg": rate})
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
