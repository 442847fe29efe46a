//! Seconds of one complete training step (forward, backward, SVGD, AdamW) on a checkpoint's shapes, as a JSON line a drive.
//!
//! Drives take turns, a step each, so that their ratio does not depend on what else the machine does. `scripts/bench_step.sh`
//! runs it in turn with the PyTorch loop of `scripts/bench_step_reference.py`, `scripts/bench_drives.sh` for all drives.

use std::time::Instant;

use anyhow::{Context, Result};
use bella::config::{Experiment, Tree};
use bella::data::order::{Purpose, stream};
use bella::device::DeviceChoice;
use bella::images::Batch;
use bella::methods::{Method, Parts};
use bella::session::{Session, Settings};
use bella::subspace::geometry::Geometry;
use bella::train::{Cut, Likelihood};
use clap::Parser;
use rand::Rng;
use tch::{Device, Kind, Tensor};

#[derive(Parser)]
struct Args {
    /// A TorchScript CLIP archive (scripts/make_random_vit.py makes one).
    #[arg(long)]
    checkpoint: std::path::PathBuf,
    #[arg(long, default_value = "low-rank.rank=4")]
    subspace: String,
    #[arg(long, default_value_t = 5)]
    particles: i64,
    #[arg(long, default_value_t = 8)]
    batch_size: i64,
    /// own, shared, weight, or several of them.
    #[arg(long, value_delimiter = ',', default_value = "own")]
    drives: Vec<String>,
    #[arg(long, default_value = "f32")]
    precision: String,
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    #[arg(long)]
    threads: Option<i32>,
    #[arg(long, default_value_t = 5)]
    steps: usize,
    #[arg(long, default_value_t = 2)]
    warmup: usize,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

const CLASSES: i64 = 10;

/// A method in training.
struct Runner {
    drive: String,
    method: Box<dyn Method>,
    theta: Tensor,
    seconds: Vec<f64>,
    /// On the processor, of this thread: with --threads 1 what a step costs whatever else the machine does.
    processor_seconds: Vec<f64>,
}

/// Seconds that this thread has run, where the system tells (Linux).
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse().ok()).map_or(f64::NAN, |n: f64| n * 1e-9)
}

impl Runner {
    fn new(session: &Session, drive: &str, experiment: &Experiment, particles: i64) -> Result<Runner> {
        let training = experiment.training.as_ref().context("the bench config trains")?;
        let theta = session.initial_theta(1, particles)?;
        let parts = Parts {
            theta: theta.copy(),
            seed: 1,
            optimizer: training.optimizer.spec.build(&theta),
            geometry: Geometry::new(session.subspace()?.layout()),
            clip_norm: None,
        };
        let method = training.method.spec.build(parts);
        Ok(Runner { drive: drive.into(), method, theta, seconds: Vec::new(), processor_seconds: Vec::new() })
    }

    fn step(&mut self, session: &Session, batch: &Batch) -> Result<()> {
        let (started, processor) = (Instant::now(), processor_seconds());
        let cut = Cut::WHOLE;
        let mut likelihood = Likelihood::new(&session.model, session.subspace()?, cut, batch, self.theta.size()[0]);
        let losses = self.method.step(&mut self.theta, &mut likelihood, 1.0)?.losses;
        // Reading theta waits for the device.
        let _ = losses.sum(Kind::Double).double_value(&[]) + self.theta.sum(Kind::Double).double_value(&[]);
        self.seconds.push(started.elapsed().as_secs_f64());
        self.processor_seconds.push(processor_seconds() - processor);
        Ok(())
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let experiments = args.drives.iter().map(|drive| experiment(&args, drive, folder.path()));
    let experiments: Vec<Experiment> = experiments.collect::<Result<_>>()?;
    let settings =
        Settings { device: args.device, threads: args.threads, workers: 1, precision: None, out: folder.path().into() };
    let classes = (0..CLASSES).map(|class| class.to_string()).collect();
    let device = settings.device.open()?;
    let session = Session::open(&experiments[0], settings, device, classes)?;
    let runners = args.drives.iter().zip(&experiments);
    let runners = runners.map(|(drive, experiment)| Runner::new(&session, drive, experiment, args.particles));
    let mut runners: Vec<Runner> = runners.collect::<Result<_>>()?;
    let batch = random_batch(&session, args.particles * args.batch_size)?;
    for step in 0..args.warmup + args.steps {
        // A different one first each time.
        for turn in 0..runners.len() {
            let index = (step + turn) % runners.len();
            runners[index].step(&session, &batch)?;
        }
    }
    for runner in &mut runners {
        runner.seconds.drain(..args.warmup);
        runner.processor_seconds.drain(..args.warmup);
        report(&args, &session, runner);
    }
    Ok(())
}

fn report(args: &Args, session: &Session, runner: &Runner) {
    let Runner { drive, theta, seconds, processor_seconds, .. } = runner;
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let line = serde_json::json!({
        "program": "bella",
        "drive": drive,
        "precision": args.precision,
        "particles": args.particles,
        "batch_size": args.batch_size,
        "device": bella::device::name(session.device),
        "threads": tch::get_num_threads(),
        "parameters_per_particle": theta.size()[1],
        "trainable_parameters": theta.numel(),
        "median_seconds": sorted[sorted.len() / 2],
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        // Of the process: of one drive only where it is alone.
        "peak_memory_bytes": bella::device::peak_memory_bytes(),
    });
    println!("{line}");
}

/// Bella-SVGD with a frozen zero-shot head of random rows.
fn experiment(args: &Args, drive: &str, folder: &std::path::Path) -> Result<Experiment> {
    let head = folder.join("head.safetensors");
    let output = {
        let archive = bella::checkpoint::Archive::open(&args.checkpoint)?;
        bella::backbone::recognise(archive.parameters())?.base.geometry.output
    };
    let weight = Tensor::from_slice(&random_floats((CLASSES * output) as usize)).view([CLASSES, output]);
    Tensor::write_safetensors(&[("weight", weight)], &head)?;
    let (subspace, settings) = args.subspace.split_once('.').unwrap_or((&args.subspace, ""));
    let text = format!(
        "name = \"bench\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n[head.zero-shot]\nweights = {:?}\n\
         [data.digits]\n[subspace.{subspace}]\n{settings}\n[method.svgd]\nparticles = {}\ngamma = 0.01\ndrive = {drive:?}\n\
         [optimizer.adamw]\nlr = 1e-3\nweight_decay = 0.1\n[train]\nepochs = 1\nbatch_size = {}\nprecision = {:?}\n",
        args.checkpoint.display().to_string(),
        head.display().to_string(),
        args.particles,
        args.batch_size,
        args.precision
    );
    Ok(Experiment::read(&Tree::parse("bench", &text)?)?)
}

fn random_floats(count: usize) -> Vec<f32> {
    let mut rng = stream(1, Purpose::Check, &[]);
    (0..count).map(|_| (rng.next_u32() as f32 / u32::MAX as f32 - 0.5) * 8.0).collect()
}

fn random_batch(session: &Session, images: i64) -> Result<Batch> {
    let size = session.model.preprocess.size();
    let mut rng = stream(2, Purpose::Check, &[]);
    let mut bytes = vec![0u8; (images * 3 * size * size) as usize];
    rng.fill_bytes(&mut bytes);
    let labels: Vec<i64> = (0..images).map(|_| i64::from(rng.next_u32()) % CLASSES).collect();
    let device: Device = session.device;
    let bytes = Tensor::f_from_data_size(&bytes, &[images, 3, size, size], Kind::Uint8)?.to_device(device);
    Ok(Batch { bytes, labels: Tensor::from_slice(&labels).to_device(device) })
}
