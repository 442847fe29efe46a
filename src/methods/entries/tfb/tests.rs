use super::*;
use crate::base::golden::{Golden, near};
use crate::subspace::{Layout, Shape};

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

/// Factors and deviations of the authors' code, which computes them in f32. Its singular values fall, here they rise, and the
/// sign of a singular vector is free.
#[test]
fn factors_and_deviations_are_those_of_the_authors_code() {
    let golden = Golden::of_authors("tfb");
    let mut layout = Layout::default();
    layout.push("w.a", &[2, 3]);
    layout.push("w.b", &[4, 2]);
    layout.close_block("w", 0, Shape::LowRank { rank: 2, inputs: 3, outputs: 4, scale: 2.0 });
    let start = Tensor::cat(&["start/a", "start/b"].map(|name| golden.tensor(name).view([1, -1])), 1);
    let Spectral { theta, singular_values, is_a } = spectral(&layout, &start);
    let std = unit(&singular_values, &is_a) * golden.number("spread");
    let a = |of: &Tensor| of.narrow(1, 0, 6).view([2, 3]).flip([0]);
    near(&a(&std), &golden.tensor("std"), 1e-6);
    near(&a(&theta).abs(), &golden.tensor("a").abs(), 1e-5);
    near(&theta.narrow(1, 6, 8).view([4, 2]).flip([1]).abs(), &golden.tensor("b").abs(), 1e-5);
}
