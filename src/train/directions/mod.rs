//! The start of low-rank factors from the inputs of their layers (EVA; Paischer et al. 2024, arXiv 2410.07170): A has the principal directions of
//! what enters a layer over training images, and B is 0. Images are seen in the first particle's order, as evaluation sees them, until
//! every direction has been found.
//!
//! Differs from PEFT: it goes over the images again and again until all directions are found, which here ends after one pass, with a warning. In
//! the last block of a vision transformer, layers after which only the class token is used see that token alone here, and so do their directions.

mod components;

use anyhow::{Context as _, Result, ensure};
use tch::{Device, Kind, Tensor, no_grad_guard};

use self::components::Components;
use super::context::{Context, Material};
use crate::base::tensor::guarded;
use crate::data::Fields;
use crate::data::batches::in_order;
use crate::data::fields::MASK;
use crate::data::order::epoch_order;
use crate::model::network::{Tap, Tape};
use crate::subspace::Directed;

/// Returns the particles before the first step, `[n, P]` in f32 on the device.
///
/// # Errors
/// Fails if there is no memory for them, or if the inputs of a layer give too few directions.
pub(super) fn start(context: &Context) -> Result<Tensor> {
    let (subspace, seed) = (context.subspace, context.experiment.seed);
    let mut theta = context.session.initial_theta(seed, context.particles())?;
    let layers = subspace.directed();
    if layers.is_empty() {
        return Ok(theta);
    }
    let directions = directions(context, &layers)?;
    for particle in 0..theta.size()[0] {
        theta.get(particle).copy_(&subspace.initial_along(seed, particle as u64, &directions)?);
    }
    // Each process has found them by itself, and another kind of GPU rounds differently.
    context.group().align(&mut theta)?;
    Ok(theta)
}

/// Returns the directions of each layer, `[r, in]` in f32 on the CPU.
fn directions(context: &Context, layers: &[Directed]) -> Result<Vec<Tensor>> {
    let (model, subspace, seed) = (context.model(), context.subspace, context.experiment.seed);
    ensure!(
        model.network.records_layers(),
        "subspace.low-rank.init = \"eva\": a module (checkpoint.kind = \"module\") does not show the inputs of its layers: use \
         \"uniform\" or \"pissa\""
    );
    let _guard = no_grad_guard();
    let Material { train, holdout, .. } = context.material;
    let order: Vec<u32> =
        epoch_order(seed, 0, 0, holdout.train.len()).iter().map(|at| holdout.train[*at as usize]).collect();
    let leaves = subspace.layout().leaves(&context.session.initial_theta(seed, 1)?, model.kind, false);
    let mut found: Vec<Components> = layers.iter().map(|layer| Components::new(layer.rank)).collect();
    let (mut images, tape) = (0, Tape::default());
    for batch in train.batches(in_order(&order, context.spec().batch_size)) {
        let batch = batch?;
        images += batch.labels.size()[0];
        guarded("start by EVA", "lower train.batch_size", || {
            let mut weights = subspace.weights(&model.base, &leaves);
            weights.record(&tape);
            let samples = model.preparation.prepare(&batch.samples.for_all());
            let _ = model.network.forward(&weights, &samples);
            let taps = tape.take();
            for (layer, components) in layers.iter().zip(&mut found) {
                // A layer that is computed in parts has one input.
                for tap in taps.iter().filter(|tap| tap.layer == layer.name && tap.from == 0) {
                    components.add(&rows(tap, &samples))?;
                }
            }
            Ok(())
        })?;
        if found.iter().all(Components::are_found) {
            break;
        }
    }
    let open = found.iter().filter(|components| !components.are_found()).count();
    match open {
        0 => tracing::info!("start by EVA: the directions of {} layers after {images} images", layers.len()),
        _ => tracing::warn!("start by EVA: the directions of {open} layers still move after all {images} images"),
    }
    let of = |(layer, components): (&Directed, &Components)| {
        let directions = components.directions().with_context(|| {
            let Directed { name, rank } = layer;
            format!("subspace.low-rank.init = \"eva\": no batch gives {name} {rank} inputs for its rank: raise train.batch_size")
        })?;
        Ok(directions.to_device(Device::Cpu))
    };
    layers.iter().zip(&found).map(of).collect()
}

/// Returns the inputs of a layer as rows `[N, in]`, without those of tokens that only fill up a text.
fn rows(tap: &Tap, samples: &Fields) -> Tensor {
    let input = &tap.input;
    let all = input.to_kind(Kind::Float).flatten(0, -2);
    match samples.find(MASK) {
        Some(mask) if mask.size()[..] == input.size()[..input.dim() - 1] => {
            all.index_select(0, &mask.flatten(0, -1).nonzero().squeeze_dim(1))
        }
        _ => all,
    }
}
