//! Codes, scales and numbers are those of bitsandbytes (tests/fixtures/quantised.json, written by scripts/make_quantised_goldens.py), and
//! products those with the same numbers as a plain weight.

use super::*;
use crate::base::golden::{Golden, near};

fn golden(name: &str) -> (Golden, Tensor) {
    let golden = Golden::of("quantised");
    let kind = if name == "half" { Kind::BFloat16 } else { Kind::Float };
    let weight = golden.tensor(&format!("{name}/weight")).to_kind(Kind::Float).to_kind(kind);
    (golden, weight)
}

/// Groups of 4 columns that take turns.
fn groups(outputs: i64, inputs: i64) -> Quantised {
    let codes = Tensor::randint(256, [outputs, inputs / 2], tch::kind::INT64_CPU).to_kind(Kind::Uint8);
    let [scales, zeros] = [0.0, 7.0].map(|from| Tensor::rand([outputs, 3], tch::kind::FLOAT_CPU) + from);
    let group = Tensor::arange(inputs, (Kind::Int, Device::Cpu)).remainder(3);
    Quantised::groups(Groups { codes, scales, zeros: zeros.round(), group }, Kind::Float).unwrap()
}

/// A matrix in every form, of a size that is no multiple of a block.
fn every_form() -> Vec<Quantised> {
    let weight = Tensor::randn([14, 36], tch::kind::FLOAT_CPU);
    vec![Quantised::of(&weight, Scheme::Int8).unwrap(), Quantised::of(&weight, Scheme::Nf4).unwrap(), groups(14, 36)]
}

#[test]
fn four_bits_are_those_of_bitsandbytes() {
    for name in ["whole", "part", "half"] {
        let (golden, weight) = golden(name);
        let found = Quantised::of(&weight, Scheme::Nf4).unwrap();
        let Codes::Nf4 { codes, largest } = &found.codes else { panic!("{name}") };
        let expected = golden.tensor(&format!("{name}/nf4/codes"));
        let stored = codes.reshape([-1]).narrow(0, 0, expected.size()[0]).to_kind(Kind::Double);
        assert!(stored.equal(&expected), "{name}");
        assert!(largest.to_kind(Kind::Double).equal(&golden.tensor(&format!("{name}/nf4/largest"))), "{name}");
        let numbers = golden.tensor(&format!("{name}/nf4/numbers"));
        assert!(found.numbers().to_kind(Kind::Double).equal(&numbers), "{name}");
        // What bitsandbytes has stored means the same.
        let [outputs, inputs] = found.size();
        let largest = golden.tensor(&format!("{name}/nf4/largest")).to_kind(Kind::Float);
        let read = Quantised::nf4(&expected.to_kind(Kind::Uint8), largest, [outputs, inputs], found.kind()).unwrap();
        assert!(read.numbers().to_kind(Kind::Double).equal(&numbers), "{name}");
    }
}

#[test]
fn eight_bits_are_those_of_bitsandbytes() {
    for name in ["whole", "part", "half"] {
        let (golden, weight) = golden(name);
        let found = Quantised::of(&weight.to_kind(Kind::Float), Scheme::Int8).unwrap();
        let Codes::Int8 { codes, largest } = &found.codes else { panic!("{name}") };
        assert!(codes.to_kind(Kind::Double).equal(&golden.tensor(&format!("{name}/int8/codes"))), "{name}");
        assert!(largest.to_kind(Kind::Double).equal(&golden.tensor(&format!("{name}/int8/largest"))), "{name}");
        let numbers = golden.tensor(&format!("{name}/int8/numbers"));
        near(&found.numbers().to_kind(Kind::Double), &numbers, 1e-9);
    }
}

/// Outputs, gradients and gradients of gradients.
#[test]
fn products_are_those_with_the_numbers_as_a_plain_weight() {
    tch::manual_seed(1);
    for quantised in every_form() {
        for bias in [None, Some(false), Some(true)] {
            let x = Tensor::randn([2, 5, 36], tch::kind::FLOAT_CPU).set_requires_grad(true);
            let bias = bias.map(|trained| Tensor::randn([14], tch::kind::FLOAT_CPU).set_requires_grad(trained));
            let all = |y: Tensor| {
                let first = Tensor::run_backward(&[y.square().sum(Kind::Float)], &[&x], true, true).remove(0);
                let second = Tensor::run_backward(&[first.pow_tensor_scalar(3).sum(Kind::Float)], &[&x], false, false);
                [y, first, second.into_iter().next().unwrap()]
            };
            let found = all(quantised.linear(&x, bias.as_ref()));
            let expected = all(x.linear(&quantised.numbers(), bias.as_ref()));
            for (found, expected) in found.iter().zip(&expected) {
                near(&(found / expected.abs().max()), &(expected / expected.abs().max()), 1e-6);
            }
            if let Some(bias) = bias.filter(Tensor::requires_grad) {
                let gradient =
                    |y: Tensor| Tensor::run_backward(&[y.square().sum(Kind::Float)], &[&bias], false, false).remove(0);
                let expected = gradient(x.linear(&quantised.numbers(), Some(&bias)));
                near(&(gradient(quantised.linear(&x, Some(&bias))) / &expected), &expected.ones_like(), 1e-5);
            }
        }
    }
}

#[test]
fn rows_are_those_of_the_whole_weight() {
    tch::manual_seed(2);
    let x = Tensor::randn([1, 3, 36], tch::kind::FLOAT_CPU);
    for quantised in every_form() {
        let some = quantised.rows(3, 9).rows(2, 5);
        assert_eq!(some.size(), [5, 36]);
        assert!(some.numbers().equal(&quantised.numbers().narrow(0, 5, 5)));
        near(&some.linear(&x, None), &quantised.linear(&x, None).narrow(2, 5, 5), 1e-5);
    }
}

/// A GPU makes numbers by operations of libtorch, which are tried on the CPU here.
#[test]
fn operations_of_libtorch_make_the_same_numbers() {
    tch::manual_seed(3);
    for quantised in every_form() {
        for some in [quantised.again(), quantised.rows(3, 9), quantised.rows(13, 1)] {
            let made = library::dequantised(&some.layer(), Kind::Float, true);
            assert!(made.equal(&some.numbers()), "{:?}", some.codes);
        }
    }
}

/// A weight of 20 million numbers is made in two parts.
#[test]
fn a_large_weight_is_made_a_slice_at_a_time() {
    tch::manual_seed(4);
    let codes = Tensor::randint(200, [5000, 4096], tch::kind::INT64_CPU).to_kind(Kind::Int8);
    let quantised = Quantised::int8(codes, &Tensor::rand([5000], tch::kind::FLOAT_CPU), Kind::Float).unwrap();
    assert_eq!(quantised.slice_bytes(Kind::Float), 4 << 24);
    let x = Tensor::randn([1, 2, 4096], tch::kind::FLOAT_CPU).set_requires_grad(true);
    let bias = Tensor::randn([5000], tch::kind::FLOAT_CPU);
    let both = |y: Tensor| [Tensor::run_backward(&[y.square().sum(Kind::Float)], &[&x], true, false).remove(0), y];
    let found = both(quantised.linear(&x, Some(&bias)));
    for (found, expected) in found.iter().zip(both(x.linear(&quantised.numbers(), Some(&bias)))) {
        let largest = expected.abs().max();
        near(&(found / &largest), &(expected / &largest), 1e-5);
    }
}

#[test]
fn numbers_have_the_type_that_is_asked_for() {
    for quantised in every_form() {
        let wide = quantised.numbers();
        for kind in [Kind::BFloat16, Kind::Half, Kind::Double] {
            let other = quantised.to(Device::Cpu, kind).numbers();
            assert!(other.kind() == kind && other.equal(&wide.to_kind(kind)), "{kind:?}");
        }
    }
}

#[test]
fn bytes_are_those_that_are_stored() {
    let weight = Tensor::randn([128, 256], tch::kind::FLOAT_CPU);
    for (scheme, bytes) in [(Scheme::Int8, 128 * 256 + 4 * 128), (Scheme::Nf4, 128 * 256 / 2 + 4 * 512)] {
        assert_eq!(Quantised::of(&weight, scheme).unwrap().bytes(), bytes);
        assert_eq!(Quantised::without_memory([128, 256], scheme, Kind::BFloat16).bytes(), bytes);
    }
}

#[test]
fn what_is_no_number_is_refused() {
    let weight = Tensor::from_slice(&[1.0f32, f32::NAN]).view([1, 2]);
    for scheme in [Scheme::Int8, Scheme::Nf4] {
        let error = Quantised::of(&weight, scheme).unwrap_err().to_string();
        assert!(error.contains("NaN or infinite"), "{error}");
    }
}
