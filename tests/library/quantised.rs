//! A frozen base in fewer bits: losses, gradients of adapters and of pixels, predictions and derivatives are those of the same network
//! whose weights are the numbers that the codes mean.

use bella::base::tensor::guarded;
use bella::evaluate::attacks::{Classifier, Resolution, Target, Victim, Work};
use bella::machine::Chunk;
use bella::machine::memory::{ChunkSize, Chunker};
use bella::machine::quantised::Scheme;
use bella::methods::Objective;
use bella::model::Input;
use bella::model::network::{Graph, Parameters, quantisable};
use bella::predict::{Members, Predictor};
use tch::{Kind, Tensor};

use super::pieces::{Case, choices, near, svgd, with_threads};

/// The same case with the numbers of its quantised weights as plain ones.
fn with_plain_numbers(mut case: Case) -> Case {
    let base = &case.model.base;
    let named = base.all().iter().map(|(name, _)| (name.clone(), base.value(name).unwrap()));
    case.model.base = Parameters::new(named.collect());
    case
}

#[test]
fn everything_is_that_of_the_numbers_that_the_codes_mean() {
    for scheme in ["int8", "nf4"] {
        for dora in ["false", "true"] {
            let sets = [format!("checkpoint.quantize={scheme}"), format!("subspace.low-rank.dora={dora}")];
            let choices = choices("low-rank", svgd(), &[&sets[0], &sets[1]]);
            let (quantised, plain) = (Case::of(&choices), with_plain_numbers(Case::of(&choices)));
            assert!(quantised.model.base.has_quantised() && !plain.model.base.has_quantised());
            let (theta, batch) = (quantised.theta(), quantised.batch(20));
            assert!(theta.equal(&plain.theta()), "lengths of rows are those of the numbers");
            let [[found, expected]] = with_threads([2], || {
                [&quantised, &plain].map(|case| {
                    let step = case.likelihood(&batch, 1).losses(&theta).unwrap();
                    let members = Members::Rows { subspace: &*case.subspace, rows: &theta };
                    let predictor = Predictor::new(&case.model, members, Chunk::Auto);
                    let cut = Chunker::fixed(ChunkSize { members: 3, images: 20 }, "test", "");
                    let logits = predictor.logits(&cut, &Input::Stored(batch.samples.for_all())).unwrap();
                    let work = Work { budgets: 1, images: 20, samples: 20, kept: 0 };
                    let victim = Victim::new(&predictor, Target::MeanProbability, Resolution::Model, work).unwrap();
                    let pixels = victim.pixels(&batch.samples).unwrap();
                    [step.losses, step.gradients, logits, victim.loss(&pixels, &batch.labels).unwrap().gradient]
                })
            });
            for (what, (found, expected)) in
                ["losses", "gradients", "logits", "pixels"].iter().zip(found.iter().zip(&expected))
            {
                near(found, expected, 5e-6, &format!("{scheme}, dora = {dora}: {what}"));
            }
        }
    }
}

#[test]
fn plans_count_what_is_stored_and_what_is_made() {
    let plain = Case::of(&choices("low-rank", svgd(), &[])).model;
    let quantised = Case::of(&choices("low-rank", svgd(), &["checkpoint.quantize=nf4"])).model;
    let layers = quantisable(&*plain.network);
    let matrices: usize = layers.iter().map(|layer| plain.base.get(&format!("{layer}.weight")).unwrap().numel()).sum();
    let saved = plain.base.bytes(Kind::Float) - quantised.base.bytes(Kind::Float);
    // 4 bits and 4 bytes for each 64.
    assert_eq!(saved, matrices as u64 * 4 - matrices as u64 * 9 / 16);
    let made = quantised.need(Graph::None).fixed - plain.need(Graph::None).fixed;
    assert_eq!(made % (768 * 192 * 4), 0, "the numbers of the largest layer, once for each thread");
    assert!(made > 0);
}

#[test]
fn weights_without_memory_take_as_many_bytes() {
    let case = Case::of(&choices("low-rank", svgd(), &[]));
    let layers = quantisable(&*case.model.network);
    for scheme in [Scheme::Int8, Scheme::Nf4] {
        let sizes = case.model.base.all().iter().map(|(name, tensor)| (name.clone(), tensor.size())).collect();
        let mut sized = Parameters::without_memory(sizes, Kind::BFloat16);
        sized.lay_out_quantised(&layers, scheme).unwrap();
        let mut real = case.model.base.to(tch::Device::Cpu, Kind::BFloat16);
        real.quantise(&layers, scheme).unwrap();
        assert_eq!(sized.bytes(Kind::BFloat16), real.bytes(Kind::BFloat16));
    }
}

/// What reads the values of a quantised weight where it should ask for its numbers gets NaN.
#[test]
fn the_outline_of_a_quantised_weight_is_no_weight() {
    let base = Case::of(&choices("low-rank", svgd(), &["checkpoint.quantize=int8"])).model.base;
    let name = "blocks.0.mlp.fc.weight";
    let (outline, numbers) = (base.get(name).unwrap(), base.value(name).unwrap());
    assert_eq!(outline.size(), numbers.size());
    let all = |of: &Tensor| bool::try_from(of.isnan().all()).unwrap();
    assert!(all(outline) && !all(&numbers));
}

#[test]
fn every_weight_and_principal_parts_need_plain_weights() {
    for (subspace, sets, text) in [
        ("full", vec!["checkpoint.quantize=nf4"], "subspace.full trains the weights"),
        ("low-rank", vec!["checkpoint.quantize=nf4", "subspace.low-rank.init=pissa"], "which is quantised"),
    ] {
        let error = guarded("case", "", || {
            Case::of(&choices(subspace, svgd(), &sets));
            Ok(())
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains(text), "{error}");
    }
}
