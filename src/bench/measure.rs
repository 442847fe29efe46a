//! Measures one case: complete training steps split into their parts, predictions, memory, and the rate of matrix
//! products for comparison.

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor, no_grad};

use crate::base::tensor::guarded;
use crate::bench::case::{Choices, Measurable, Source};
use crate::bench::measured::{Clock, Measured, Plan};
use crate::bench::step::{Setup, random_batch};
use crate::machine::linear_kernels::linear;
use crate::machine::memory::{self, free_bytes, gib};
use crate::model::Input;
use crate::predict::{Members, Predictor};
use crate::train::chunks::posterior_bytes;

/// Measures one case on a device.
///
/// # Errors
/// Fails if the case does not fit into memory or cannot be computed.
pub fn measure(source: &Source, choices: &Choices, plan: Plan, device: Device) -> Result<Measured> {
    let experiment = choices.experiment(source)?;
    let Some(training) = &experiment.training else { bail!("the bench config trains") };
    let Measurable { model, base_bytes } = source.model(&experiment, device)?;
    let base = model.base.to(Device::Cpu, Kind::Float);
    let subspace = training.subspace.spec.build(&*model.network, &base, &model.head)?;
    drop(base);
    let (layout, particles) = (subspace.layout(), training.method.spec.particles());
    expect_room(particles, layout.parameters(), device)?;
    let rows: Vec<Tensor> = (0..particles as u64).map(|p| subspace.initial(1, p)).collect::<Result<_>>()?;
    let mut theta = Tensor::stack(&rows, 0).to_kind(Kind::Float).to_device(device);
    drop(rows);

    let mut found = Measured {
        precision: crate::machine::device::precision_name(model.kind).to_string(),
        device: crate::machine::device::name(device),
        threads: tch::get_num_threads(),
        particles,
        parameters_per_particle: layout.parameters(),
        base_bytes,
        posterior_bytes: posterior_bytes(training, layout),
        train_images: training.train.batch_size as i64,
        prediction_images: plan.prediction_images,
        ..Measured::default()
    };
    let setup = Setup { model: &model, subspace: &*subspace, training, plan, particles };
    setup.run(&mut theta, &mut found)?;
    found.matmul_rates.extend(matmul_rates(device, model.kind)?);
    Ok(found)
}

/// Checks the memory for theta, its gradients and two moments. They are held at once, however the step is split.
fn expect_room(particles: i64, parameters: i64, device: Device) -> Result<()> {
    const MATRICES: u64 = 4;
    let needed = MATRICES * (particles * parameters) as u64 * Kind::Float.elt_size_in_bytes() as u64;
    match free_bytes(device) {
        Some(free) if needed > free => bail!(
            "out of memory: particles, gradients and moments alone take {:.1} GiB, {:.1} are free",
            gib(needed),
            gib(free)
        ),
        _ => Ok(()),
    }
}

impl Setup<'_> {
    /// Trains and predicts as the plan says.
    fn run(&self, theta: &mut Tensor, found: &mut Measured) -> Result<()> {
        let device = self.model.device;
        if self.plan.steps > 0 {
            memory::restart_peak(device);
            guarded("training step", "lower --batch-size, or set --particle-chunk or --recompute", || {
                self.train(theta, found)
            })?;
            found.train_peak_bytes = memory::peak_bytes(device);
            // Only now: the memory that it takes is no part of the peak.
            found.matmul_rates.extend(matmul_rates(device, self.model.kind)?);
        }
        if self.plan.predictions > 0 {
            memory::restart_peak(device);
            guarded("prediction", "lower --prediction-images, or set --particle-chunk", || self.predict(theta, found))?;
            found.predict_peak_bytes = memory::peak_bytes(device);
        }
        Ok(())
    }

    fn predict(&self, theta: &Tensor, found: &mut Measured) -> Result<()> {
        let images = self.plan.prediction_images;
        let members = Members::Rows { subspace: self.subspace, rows: theta };
        let predictor = Predictor::new(self.model, members, self.training.train.particle_chunk);
        let chunker = predictor.plan(images as usize, images as usize)?;
        let batch = random_batch(self.model, images)?;
        for prediction in 0..self.plan.warmup + self.plan.predictions {
            let clock = Clock::start(self.model.device);
            drop(predictor.logits(&chunker, &Input::Stored(batch.samples.for_all()))?);
            let elapsed = clock.stop();
            if prediction >= self.plan.warmup {
                found.prediction.push(elapsed);
            }
        }
        found.prediction_flop = self.work(images, false, None).map_or(0.0, |work| work.forward);
        Ok(())
    }
}

/// The number of products that are timed.
const PRODUCTS: usize = 5;

/// Returns the rates of square products `x Wᵀ`, computed as in the layers of the network, in floating-point operations
/// per second, one per product.
///
/// # Errors
/// Fails if libtorch fails.
pub fn matmul_rates(device: Device, kind: Kind) -> Result<Vec<f64>> {
    let side: i64 = if device == Device::Cpu { 1536 } else { 8192 };
    guarded("matrix product", "free memory", || {
        let x = Tensor::f_randn([side, side], (Kind::Float, device))?.to_kind(kind);
        let (x, weight) = (x.unsqueeze(0), x.tr().contiguous());
        let work = 2.0 * (side as f64).powi(3);
        no_grad(|| {
            // The first product also initialises libraries, so it is not timed.
            drop(linear(&x, &weight, None));
            let rate = |_| {
                let clock = Clock::start(device);
                drop(linear(&x, &weight, None));
                Ok(work / clock.stop().wall)
            };
            (0..PRODUCTS).map(rate).collect()
        })
    })
}
