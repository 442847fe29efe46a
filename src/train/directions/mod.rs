//! The start of low-rank factors from the inputs of their layers (EVA; Paischer et al. 2024, arXiv 2410.07170): A has the principal directions of
//! what enters a layer over training images, and B is 0. Images are seen in the first particle's order, as evaluation sees them, until
//! every direction has been found.
//!
//! Differs from PEFT: it goes over the images again and again until all directions are found, which here ends after one pass, with a warning. In
//! the last block of a vision transformer, layers after which only the class token is used see that token alone here, and so do their directions.

use anyhow::{Context as _, Result, anyhow, ensure};
use tch::{Device, Kind, Tensor, no_grad_guard};

use super::context::{Context, Material};
use crate::base::random::{Purpose, normal, stream};
use crate::base::tensor::{first_line, guarded, selected};
use crate::data::batches::in_order;
use crate::data::order::epoch_order;
use crate::model::network::{Tap, Tape, UNRECORDED};
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
    ensure!(
        context.model().network.records_layers(),
        "subspace.low-rank.init = \"eva\": {UNRECORDED} shows the inputs of each: use \"uniform\" or \"pissa\""
    );
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
                    let mask = tap.mask(model.network.sees_texts(&tap.layer), &samples);
                    components.add(&rows(tap, mask))?;
                }
            }
            Ok(())
        })?;
        if found.iter().all(Components::are_found) {
            break;
        }
    }
    report(&found, images);
    let of = |(layer, components): (&Directed, &Components)| {
        let directions = components.directions().with_context(|| {
            let Directed { name, rank } = layer;
            format!("subspace.low-rank.init = \"eva\": no batch gives {name} {rank} inputs for its rank: raise train.batch_size")
        })?;
        Ok(directions.to_device(Device::Cpu))
    };
    layers.iter().zip(&found).map(of).collect()
}

/// Says whether the components of all layers are found after so many images.
fn report(found: &[Components], images: i64) {
    match found.iter().filter(|components| !components.are_found()).count() {
        0 => tracing::info!("start by EVA: the directions of {} layers after {images} images", found.len()),
        open => tracing::warn!("start by EVA: the directions of {open} layers still move after all {images} images"),
    }
}

/// Returns the inputs of a layer as rows `[N, in]`, without those of tokens that only fill up a text.
fn rows(tap: &Tap, mask: Option<&Tensor>) -> Tensor {
    selected(tap.input.to_kind(Kind::Float).flatten(0, -2), mask)
}

/// The cosine with its predecessor from which on a component counts as found, PEFT's `tau`.
const FOUND: f64 = 0.99;

const ITERATIONS: usize = 4;

/// The leading principal components of rows that come in batches, as PEFT's `IncrementalPCA` finds them (after Ross et al. 2008): each batch is
/// put below the components so far, and the first singular vectors of both are the next components. The decomposition is the randomised one of
/// torch's `svd_lowrank` (Halko et al. 2011, algorithm 5.1), with twice as many vectors as components and four iterations.
struct Components {
    count: i64,
    fit: Option<Fit>,
    found: bool,
}

struct Fit {
    /// The number of rows so far, and their mean, `[d]`.
    rows: f64,
    mean: Tensor,
    /// The components, `[count, d]`, each with a positive largest entry, and their singular values, `[count]`.
    directions: Tensor,
    singular: Tensor,
}

impl Components {
    pub fn new(count: i64) -> Components {
        Components { count, fit: None, found: false }
    }

    /// Returns whether the last batch has left all components as they were. They are then final.
    pub fn are_found(&self) -> bool {
        self.found
    }

    /// Returns the components, `[count, d]`; `None` before the first batch that is large enough.
    pub fn directions(&self) -> Option<&Tensor> {
        self.fit.as_ref().map(|fit| &fit.directions)
    }

    /// Adds rows `[N, d]` in f32. Final components, and batches of fewer rows than components, change nothing.
    ///
    /// # Errors
    /// Fails if libtorch cannot decompose the rows.
    pub fn add(&mut self, rows: &Tensor) -> Result<()> {
        let count = rows.size()[0];
        if self.found || count < self.count {
            return Ok(());
        }
        let own = rows.mean_dim([0i64].as_slice(), false, Kind::Float);
        let centred = rows - &own;
        let (stacked, mean, total) = match &self.fit {
            None => (centred, own, count as f64),
            Some(Fit { rows: before, mean, directions, singular }) => {
                let total = before + count as f64;
                let shift = (mean - &own).unsqueeze(0) * (before / total * count as f64).sqrt();
                let stacked = Tensor::cat(&[directions * singular.unsqueeze(1), centred, shift], 0);
                (stacked, mean * (before / total) + own * (count as f64 / total), total)
            }
        };
        let (singular, directions) = leading(&stacked, self.count)?;
        let sign = directions.gather(1, &directions.abs().argmax(1, true), false).sign();
        let directions = directions * sign;
        if let Some(before) = &self.fit {
            let cosines = Tensor::cosine_similarity(&directions, &before.directions, 1, 1e-8);
            self.found = cosines.min().double_value(&[]) >= FOUND;
        }
        self.fit = Some(Fit { rows: total, mean, directions, singular });
        Ok(())
    }
}

/// Returns the first singular values of a matrix `[m, d]` and its right singular vectors, `[count, d]`.
fn leading(matrix: &Tensor, count: i64) -> Result<(Tensor, Tensor)> {
    let (m, d) = matrix.size2()?;
    let width = (2 * count).min(m).min(d);
    let mut rng = stream(0, Purpose::Check, &[]);
    let draws: Vec<f32> = (0..d * width).map(|_| normal(&mut rng) as f32).collect();
    let orthonormal = |t: Tensor| Tensor::linalg_qr(&t, "reduced").0;
    let mut basis = orthonormal(matrix.matmul(&Tensor::from_slice(&draws).view([d, width]).to_device(matrix.device())));
    for _ in 0..ITERATIONS {
        basis = orthonormal(matrix.matmul(&orthonormal(matrix.tr().matmul(&basis))));
    }
    let (_, singular, v) = basis.tr().matmul(matrix).f_svd(true, true).map_err(|e| anyhow!("{}", first_line(&e)))?;
    Ok((singular.narrow(0, 0, count), v.narrow(1, 0, count).tr().contiguous()))
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Rows `[N, d]` of batch number `batch`, as the script makes them.
    fn rows(batch: i64, width: i64) -> Tensor {
        let i = Tensor::arange(24, (Kind::Double, Device::Cpu)).unsqueeze(1) + (24 * batch) as f64;
        let j = Tensor::arange(width, (Kind::Double, Device::Cpu)).unsqueeze(0);
        let values: Tensor =
            (&i * 0.7 + &j * &j).sin() * (&j * -0.5).exp() + (&i * 1.3 + &j * 2.0).cos() * 0.05 + &j * 0.1;
        values.to_kind(Kind::Float)
    }

    // scripts/make_eva_goldens.py, peft 0.21.2
    const GOLDENS: [(i64, &[f64]); 2] = [
        (
            12,
            &[
                0.8525434732437134,
                0.39762645959854126,
                -0.2685054838657379,
                -0.15437714755535126,
                -0.11845214664936066,
                0.06778516620397568,
                -0.018450750038027763,
                0.0018807804444804788,
                0.011152602732181549,
                0.004098604898899794,
                0.004396318458020687,
                0.0022601305972784758,
                -0.43263813853263855,
                0.7632996439933777,
                -0.3907597064971924,
                0.2513241767883301,
                -0.011353270150721073,
                -0.05605977028608322,
                -0.08492718636989594,
                -0.05323339253664017,
                0.025518404319882393,
                -0.016841942444443703,
                -0.006751714274287224,
                0.006516111548990011,
                0.12388532608747482,
                -0.1737586110830307,
                -0.24582719802856445,
                0.4724764823913574,
                -0.04029890522360802,
                -0.36370861530303955,
                0.3434886336326599,
                0.03768954426050186,
                -0.38829490542411804,
                0.27445775270462036,
                0.15558719635009766,
                -0.4088704586029053,
            ],
        ),
        (
            8,
            &[
                0.8526437878608704,
                0.39760857820510864,
                -0.2685171961784363,
                -0.1543954610824585,
                -0.11844626069068909,
                0.06777352094650269,
                -0.018442511558532715,
                0.0019015084253624082,
                -0.43251341581344604,
                0.7636107206344604,
                -0.39127540588378906,
                0.25184008479118347,
                -0.011365181766450405,
                -0.05645368993282318,
                -0.08466794341802597,
                -0.053160615265369415,
                0.15534095466136932,
                -0.23192881047725677,
                -0.23980987071990967,
                0.6474368572235107,
                -0.23837198317050934,
                -0.345599502325058,
                0.4993859827518463,
                -0.1405288130044937,
            ],
        ),
    ];

    #[test]
    fn directions_are_those_of_peft() {
        for (width, expected) in GOLDENS {
            let mut components = Components::new(3);
            for batch in (0..4).cycle().take(40) {
                components.add(&rows(batch, width)).unwrap();
            }
            assert!(components.are_found());
            let found = Vec::<f32>::try_from(components.directions().unwrap().flatten(0, 1)).unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 2e-3, "{width}: {found} {expected}");
            }
        }
    }

    /// The components of one batch are the singular vectors of its centred rows.
    #[test]
    fn one_batch_is_decomposed() {
        let mut components = Components::new(2);
        components.add(&rows(0, 6).narrow(0, 0, 1)).unwrap();
        assert!(components.directions().is_none(), "one row has no two directions");
        components.add(&rows(0, 6)).unwrap();
        let all = rows(0, 6);
        let (_, _, v) = (&all - all.mean_dim([0i64].as_slice(), true, Kind::Float)).svd(true, true);
        let overlap = components.directions().unwrap().matmul(&v.narrow(1, 0, 2)).abs();
        assert!((overlap - Tensor::eye(2, (Kind::Float, Device::Cpu))).abs().max().double_value(&[]) < 1e-3);
    }
}
