//! The settings of training-free Bayesianization, and the bisection for the spread of its Gaussians.

use anyhow::{Result, ensure};

/// The settings of a fit after training: Gaussians whose spread is as large as a tolerance on unlabelled images allows.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The largest relative change of the anchors' NLL.
    pub tolerance: f64,
    /// The largest number of anchor images.
    pub anchors: usize,
    pub search: Search,
    /// The number of draws per particle.
    pub samples: usize,
}

/// The spreads β that are tried.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub smallest: f64,
    pub largest: f64,
    /// The number of halvings.
    pub halvings: usize,
}

/// A spread that keeps the tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub spread: f64,
    /// The change at this spread.
    pub change: f64,
}

impl Search {
    /// Returns the largest spread tried whose `change` is at most `tolerance`: the largest of all if it keeps it, else by
    /// bisection between one that does and one that does not.
    ///
    /// # Errors
    /// Fails if `change` fails, or if the smallest spread changes too much already.
    pub fn run(&self, tolerance: f64, mut change: impl FnMut(f64) -> Result<f64>) -> Result<Found> {
        let &Search { smallest, largest, halvings } = self;
        let mut beyond = largest;
        let most = change(largest)?;
        if most <= tolerance {
            return Ok(Found { spread: largest, change: most });
        }
        let mut kept = Found { spread: smallest, change: change(smallest)? };
        ensure!(
            kept.change <= tolerance,
            "method.tfb: the smallest spread {smallest} changes the NLL by {:.3e}, more than tolerance = {tolerance} already: raise \
             method.tfb.tolerance or lower method.tfb.smallest",
            kept.change
        );
        for _ in 0..halvings {
            let spread = (kept.spread + beyond) / 2.0;
            let change = change(spread)?;
            // NaN is not within the tolerance.
            if change <= tolerance {
                kept = Found { spread, change };
            } else {
                beyond = spread;
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::Golden;
    use tch::{Kind, Tensor};

    const SEARCH: Search = Search { smallest: 0.001, largest: 0.2, halvings: 10 };

    /// ```python
    /// def change(b): return 3.0 * b**2 + 0.1 * b
    /// low, high = 0.001, 0.2
    /// for _ in range(10):
    ///     middle = (low + high) / 2
    ///     if change(middle) <= 0.01: low = middle
    ///     else: high = middle
    /// print(low, change(low))  # 0.043365234375 0.009978154094696046
    /// ```
    #[test]
    fn equals_a_bisection_in_python() {
        let found = SEARCH.run(0.01, |b| Ok(3.0 * b * b + 0.1 * b)).unwrap();
        assert!(
            (found.spread - 0.043365234375).abs() < 1e-15 && (found.change - 0.009978154094696046).abs() < 1e-15,
            "{found:?}"
        );
    }

    /// Whatever the curve, also one that is not monotone or not a number somewhere.
    #[test]
    fn what_is_kept_never_exceeds_the_tolerance() {
        for seed in 0..200 {
            let curve = |b: f64| match (seed as f64 * 7.3 + b * 900.0).sin() {
                wave if wave > 0.95 => f64::NAN,
                wave => (b / (0.02 + 0.001 * seed as f64)).powi(2) * 0.01 * (1.0 + 0.8 * wave),
            };
            let mut tried = Vec::new();
            let run = SEARCH.run(0.01, |b| {
                tried.push(b);
                Ok(curve(b))
            });
            let Ok(found) = run else { continue };
            assert!(found.change <= 0.01 && found.change == curve(found.spread) && tried.contains(&found.spread));
        }
    }

    #[test]
    fn both_ends() {
        let all = SEARCH.run(0.01, |_| Ok(0.01)).unwrap();
        assert_eq!(all, Found { spread: 0.2, change: 0.01 });
        let error = SEARCH.run(0.01, |_| Ok(0.02)).unwrap_err().to_string();
        assert!(error.contains("method.tfb.tolerance") && error.contains("0.001"), "{error}");
    }

    /// The search of the authors, `TFBLoRA.fit` (tests/fixtures/authors/tfb.json), on anchors whose logits move with the spread, with
    /// the defaults of their parser and with the settings of their scripts. It divides the change by the number of anchors, so that
    /// its tolerance is ours over that number, and keeps the end of the last interval that is beyond it; here the other end is kept.
    #[test]
    fn the_bisection_of_the_authors_code_ends_in_the_same_interval() {
        let golden = Golden::of_authors("tfb");
        let anchors = golden.tensor("anchors");
        let predicted = anchors.argmax(-1, true);
        let nll = |logits: &Tensor| {
            let mean = logits.softmax(-1, Kind::Double).mean_dim([0i64].as_slice(), false, Kind::Double);
            -(mean.gather(1, &predicted, false) + 1e-12).log().mean(Kind::Double).double_value(&[])
        };
        let reference = nll(&anchors.unsqueeze(0));
        for case in ["parser", "scripts"] {
            let number = |name: &str| golden.number(&format!("{case}/{name}"));
            let moves = golden.tensor(&format!("{case}/moves"));
            let change = |spread: f64| Ok((nll(&(&anchors + &moves * spread)) - reference).abs() / reference);
            let (largest, halvings) = (number("largest"), number("halvings") as usize);
            let tolerance = number("ratio") * anchors.size()[0] as f64;
            let found = Search { smallest: 0.001, largest, halvings }.run(tolerance, change).unwrap();
            let width = (largest - 0.001) / 2f64.powi(halvings as i32);
            assert!((number("found") - found.spread - width).abs() < 1e-12, "{case}: {found:?}");
            assert!(found.spread > 0.001 && found.spread + 1.5 * width < largest, "{case}: both ends moved: {found:?}");
        }
    }
}
