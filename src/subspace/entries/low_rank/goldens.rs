use serde_json::Value;
use tch::{Kind, Tensor};

use super::particles::{Layer, LowRankSubspace};
use super::start::{Factors, Start, row_norms};
use crate::model::network::Parameters;
use crate::subspace::{Subspace, uniform};

const INPUTS: i64 = 7;
const OUTPUTS: i64 = 5;
const RANK: i64 = 2;
const SCALE: f64 = 1.5;
const RATE: f64 = 0.02;

/// The values of `wave` in scripts/make_dora_goldens.py.
fn wave(shape: &[i64], phase: f64) -> Tensor {
    (Tensor::arange(shape.iter().product::<i64>(), tch::kind::DOUBLE_CPU) * 0.7 + phase).sin().view(shape)
}

fn golden(case: &str, key: &str, shape: &[i64]) -> Tensor {
    let all: Value = serde_json::from_str(include_str!("../../../../tests/fixtures/authors/dora.json")).unwrap();
    let found = key.split('.').fold(&all[case], |value, part| &value[part]);
    fn flat(value: &Value, into: &mut Vec<f64>) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| flat(one, into)),
            one => into.push(one.as_f64().unwrap()),
        }
    }
    let mut values = Vec::new();
    flat(found, &mut values);
    Tensor::from_slice(&values).view(shape)
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor, bound: f64) {
    let difference = ((found - expected).norm() / expected.norm()).double_value(&[]);
    assert!(difference < bound, "{difference:.1e}: {found} is not {expected}");
}

/// The layer of the script, with its frozen weights in f64.
struct Setting {
    subspace: LowRankSubspace,
    base: Parameters,
}

impl Setting {
    fn new(pissa: bool, dora: bool) -> Setting {
        let weight = wave(&[OUTPUTS, INPUTS], 0.3);
        let base = vec![("w.weight".into(), weight.copy()), ("w.bias".into(), wave(&[OUTPUTS], 1.3))];
        let layer = Layer {
            name: "w".into(),
            rank: RANK,
            inputs: INPUTS,
            outputs: OUTPUTS,
            scale: SCALE,
            given: pissa.then(|| Factors::principal(&weight, RANK, SCALE).unwrap()),
            magnitude: dora.then(|| row_norms(&weight)),
        };
        let start = if pissa { Start::Given } else { Start::Uniform { gain: None } };
        Setting { subspace: LowRankSubspace::new(vec![layer], Vec::new(), start, None), base: Parameters::new(base) }
    }

    /// Starts of two particles.
    fn starts(&self) -> Tensor {
        let rows: Vec<Tensor> = (0..2).map(|i| self.subspace.initial(1, i).unwrap()).collect();
        Tensor::stack(&rows, 0).to_kind(Kind::Double)
    }

    /// Outputs `[n, 4, out]` and the gradients of Σ (y − t)² with respect to theta, `[n, P]`.
    fn outputs(&self, theta: &Tensor) -> (Tensor, Tensor) {
        let layout = self.subspace.layout();
        let leaves = layout.leaves(theta, Kind::Double, true);
        let weights = self.subspace.weights(&self.base, &leaves);
        let y = weights.linear("w").forward(&wave(&[1, 1, 4, INPUTS], 0.9)).squeeze_dim(1);
        let loss = (&y - wave(&[1, 4, OUTPUTS], 2.1)).square().sum(Kind::Double);
        let gradients = Tensor::run_backward(&[loss], &leaves.iter().collect::<Vec<_>>(), false, false);
        let rows = theta.zeros_like();
        layout.gather(&gradients, &rows);
        (y.detach(), rows)
    }

    fn after_steps(&self, theta: &Tensor) -> Tensor {
        (0..3).fold(theta.shallow_clone(), |theta, _| &theta - self.outputs(&theta).1 * RATE)
    }
}

// scripts/make_dora_goldens.py, peft 0.21.2
#[test]
fn dora_is_that_of_peft() {
    let setting = Setting::new(false, true);
    let a = wave(&[RANK * INPUTS], 0.1);
    let b = wave(&[OUTPUTS * RANK], 0.5) * 0.3;
    let m = wave(&[OUTPUTS], 0.2) * 0.5 + 2.0;
    let first = Tensor::cat(&[a, b, m], 0);
    // The other particle of the batch is another one.
    let theta = Tensor::stack(&[&(&first * 0.7), &first], 0);
    let (y, gradients) = setting.outputs(&theta);
    near(&y.get(1), &golden("dora", "start", &[4, OUTPUTS]), 1e-12);
    for (name, start, count) in [("a", 0, 14), ("b", 14, 10), ("m", 24, 5)] {
        let expected = golden("dora", &format!("gradients.{name}"), &[count]);
        near(&gradients.get(1).narrow(0, start, count), &expected, 1e-12);
    }
    let end = setting.after_steps(&theta);
    near(&setting.outputs(&end).0.get(1), &golden("dora", "end", &[4, OUTPUTS]), 1e-11);
    near(&end.get(1).narrow(0, 24, 5), &golden("dora", "m", &[OUTPUTS]), 1e-12);
    // One particle alone gives the same, and its weight is the layer's.
    let alone = setting.outputs(&theta.narrow(0, 1, 1)).0;
    near(&alone.get(0), &y.get(1), 1e-14);
    let leaves = setting.subspace.layout().leaves(&theta, Kind::Double, false);
    let weight = setting.subspace.weights(&setting.base, &leaves).of_particle("w.weight", 1).unwrap();
    near(&(wave(&[4, INPUTS], 0.9).matmul(&weight.tr()) + wave(&[OUTPUTS], 1.3)), &y.get(1), 1e-12);
}

/// PEFT's `lora_dropout` with given masks: three steps of gradient descent, as `mc-dropout` takes them, whose masks are factors of the
/// columns of A, and whose gradient at θ ∘ f is times f.
#[test]
fn dropped_inputs_are_dropped_columns_as_in_peft() {
    let setting = Setting::new(false, false);
    let masks = golden("dropout", "masks", &[3, INPUTS]) / (1.0 - golden("dropout", "rate", &[1]).double_value(&[0]));
    let mut theta = Tensor::cat(&[wave(&[RANK * INPUTS], 0.1), wave(&[OUTPUTS * RANK], 0.5) * 0.3], 0).unsqueeze(0);
    let outputs = golden("dropout", "outputs", &[3, 4, OUTPUTS]);
    for step in 0..3 {
        let factors = theta.ones_like();
        factors.narrow(1, 0, RANK * INPUTS).view([RANK, INPUTS]).copy_(&masks.get(step));
        let (y, gradients) = setting.outputs(&(&theta * &factors));
        near(&y.get(0), &outputs.get(step), 1e-12);
        theta -= gradients * factors * RATE;
    }
    for (name, start, count) in [("a", 0, RANK * INPUTS), ("b", RANK * INPUTS, OUTPUTS * RANK)] {
        near(&theta.get(0).narrow(0, start, count), &golden("dropout", name, &[count]), 1e-12);
    }
}

// scripts/make_dora_goldens.py, peft 0.21.2, which starts PiSSA in f32
#[test]
fn pissa_starts_and_trains_as_in_peft() {
    for (case, dora) in [("pissa", false), ("both", true)] {
        let setting = Setting::new(true, dora);
        let theta = setting.starts();
        let a = theta.get(0).narrow(0, 0, RANK * INPUTS).view([RANK, INPUTS]);
        let b = theta.get(0).narrow(0, RANK * INPUTS, OUTPUTS * RANK).view([OUTPUTS, RANK]);
        near(&(b.matmul(&a) * SCALE), &golden(case, "product", &[OUTPUTS, INPUTS]), 1e-5);
        let (y, _) = setting.outputs(&theta);
        near(&y.get(0), &golden(case, "start", &[4, OUTPUTS]), 1e-5);
        let end = setting.after_steps(&theta);
        let ends = setting.outputs(&end).0;
        near(&ends.get(0), &golden(case, "end", &[4, OUTPUTS]), 1e-5);
        // The other particle begins as the same network, and goes another way.
        near(&y.get(1), &y.get(0), 1e-6);
        assert!(((ends.get(1) - ends.get(0)).norm() / ends.get(0).norm()).double_value(&[]) > 1e-3);
    }
}

/// Particles of a start that moves the base leave as updates of the checkpoint itself, of twice the rank.
#[test]
fn pissa_leaves_relative_to_the_checkpoint() {
    for dora in [false, true] {
        let setting = Setting::new(true, dora);
        let theta = setting.after_steps(&setting.starts());
        let own = setting.subspace.relative(&theta).unwrap().unwrap();
        assert_eq!(own.subspace.layout().columns[0].shape, [2 * RANK, INPUTS]);
        let leaves = own.subspace.layout().leaves(&own.theta, Kind::Double, false);
        let weights = own.subspace.weights(&setting.base, &leaves);
        let y = weights.linear("w").forward(&wave(&[1, 1, 4, INPUTS], 0.9)).squeeze_dim(1);
        near(&y, &setting.outputs(&theta).0, 1e-6);
    }
    assert!(
        Setting::new(false, true).subspace.relative(&Tensor::zeros([1, 29], tch::kind::DOUBLE_CPU)).unwrap().is_none()
    );
}

/// torch: nn.init.kaiming_uniform_(A, a=5 ** .5) has the bound 1/√in, nn.init.xavier_uniform_(A, gain=10) has
/// 10 √(6 / (rank + in)). Without a gain the draws are those of earlier versions.
#[test]
fn the_gain_scales_the_start_of_a_alone() {
    let start = |gain: Option<f64>| {
        let (rank, inputs, outputs, scale) = (2, 50, 30, 1.0);
        let layer = Layer { name: "layer".into(), rank, inputs, outputs, scale, given: None, magnitude: None };
        let subspace = LowRankSubspace::new(vec![layer], Vec::new(), Start::Uniform { gain }, None);
        let theta = subspace.initial(3, 1).unwrap();
        assert_eq!(theta.narrow(0, 100, 60).abs().max().double_value(&[]), 0.0, "B starts at 0");
        theta.narrow(0, 0, 100)
    };
    let usual = start(None);
    assert!(usual.equal(&Tensor::from_slice(&uniform(3, 1, 0, 100, 1.0 / 50f64.sqrt()))));
    let bound = 10.0 * (6.0f64 / 52.0).sqrt();
    let ratio = bound * 50f64.sqrt();
    assert!(start(Some(10.0)).allclose(&(usual * ratio), 1e-5, 1e-6, false));
    let largest = start(Some(10.0)).abs().max().double_value(&[]);
    assert!((0.9..=1.0).contains(&(largest / bound)), "{largest} of {bound}");
}

/// Over 40 draws of A `[8, 768]` of scripts/make_cheap_ensemble_goldens.py: the standard deviation, the fourth moment, the largest entry.
#[test]
fn starts_have_the_statistics_of_lora_ensemble() {
    let golden = crate::base::golden::Golden::of_authors("cheap_ensembles");
    let ways = [
        ("normal", Start::Normal { std: 0.03 }),
        ("normal-default", Start::Normal { std: 0.02 }),
        ("kaiming", Start::Uniform { gain: None }),
        ("xavier", Start::Uniform { gain: Some(10.0) }),
    ];
    for (name, start) in ways {
        let (rank, inputs, outputs, scale) = (8, 768, 1, 1.0);
        let layer = Layer { name: "layer".into(), rank, inputs, outputs, scale, given: None, magnitude: None };
        let subspace = LowRankSubspace::new(vec![layer], Vec::new(), start, None);
        let draws: Vec<Tensor> =
            (0..40).map(|particle| subspace.initial(3, particle).unwrap().narrow(0, 0, rank * inputs)).collect();
        let all = Tensor::stack(&draws, 0).to_kind(Kind::Double);
        let of = |key: &str| golden.number(&format!("starts/{name}/{key}"));
        let alike = |found: f64, expected: f64, share: f64| {
            assert!((found / expected - 1.0).abs() < share, "{name}: {found} is not {expected}");
        };
        alike(all.std(true).double_value(&[]), of("std"), 0.01);
        alike(all.square().square().mean(Kind::Double).double_value(&[]), of("fourth"), 0.05);
        alike(all.abs().max().double_value(&[]), of("largest"), if name.starts_with("normal") { 0.25 } else { 0.01 });
    }
}
