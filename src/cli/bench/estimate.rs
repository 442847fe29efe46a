//! `bella bench --estimate`: the time, memory and disk that an experiment will take, from its config alone.

use anyhow::{Context, Result};
use tch::{Device, Kind};

use super::BenchArgs;
use crate::bench::estimate::{Expected, Machine, Part, SHARE};
use crate::bench::rate::matmul_rates;
use crate::experiment::{Experiment, load_config};
use crate::machine::device::compute_kind;
use crate::machine::memory::{Cut, free_bytes};
use crate::machine::{Precision, device};
use crate::rehearse::report::{bytes, duration};

/// The images that a core decodes and resizes per second where nothing else is said (results/image-pipeline.md, a median under
/// load of 373 on two cores).
const IMAGES_PER_CORE: f64 = 187.0;

pub fn run(args: &BenchArgs) -> Result<()> {
    let experiment = Experiment::read(&load_config(&args.estimate, &args.sets)?)?;
    let machine = machine(args, &experiment)?;
    let expected = Expected::new(&experiment, &machine)?;
    print!("{}", text(&expected, &machine, &assumed(args, &machine)));
    Ok(())
}

/// Returns the machine that the command line describes; what it does not say is that of this one.
fn machine(args: &BenchArgs, experiment: &Experiment) -> Result<Machine> {
    let settings = args.compute.settings();
    let device = settings.device.open()?;
    let precision = experiment.training.as_ref().map_or(Precision::F32, |training| training.train.precision);
    // A rate that is given is that of another machine, a GPU with bf16.
    let auto = if args.rate.is_some() { Kind::BFloat16 } else { compute_kind(Precision::Auto, device)? };
    let rate = match args.rate {
        Some(rate) => rate,
        None => {
            tch::set_num_threads(settings.threads.unwrap_or_else(tch::get_num_threads));
            let mut rates = matmul_rates(device, compute_kind(precision, device)?)?;
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        }
    };
    let given = args.compute.memory.map(|gib| (gib * f64::from(1 << 30)) as u64);
    let memory = given.or_else(|| free_bytes(device)).context("--memory: say how much is free")?;
    let image_rate = args.image_rate.unwrap_or(IMAGES_PER_CORE * settings.workers as f64);
    Ok(Machine { rate, image_rate, memory, auto })
}

/// Returns a line that tells what the estimate takes for granted.
fn assumed(args: &BenchArgs, machine: &Machine) -> String {
    let source = if args.rate.is_some() { "given" } else { "measured here" };
    let threads = args.compute.threads.unwrap_or_else(tch::get_num_threads);
    let place = match args.rate {
        Some(_) => String::new(),
        None => format!(" ({}, {threads} threads)", device::name(args.compute.device.open().unwrap_or(Device::Cpu))),
    };
    let images = if args.image_rate.is_some() { "given" } else { "assumed for these workers" };
    format!(
        "{:.3e} FLOP/s of matrix products, {source}{place}, of which a step reaches {SHARE}; {:.0} images/s decoded, {images}",
        machine.rate, machine.image_rate
    )
}

fn text(expected: &Expected, machine: &Machine, assumed: &str) -> String {
    let Expected { network, kind, parameters, particles, members, real, test, cut, .. } = expected;
    let time = |part: &Part| format!("{:>10}  {:.2e} FLOP", duration(part.seconds(machine)), part.flop);
    let mut text = format!("network: {network}\nrate: {assumed}\n");
    let kind = device::precision_name(*kind);
    text += &format!("particles: {particles} x {parameters} parameters, {members} members predict, {kind}\n");
    text += &format!(
        "images: {} for training and validation, {} steps in {} epochs\n",
        real.train, real.steps, real.epochs
    );
    text += &format!("training    {}\n", time(&expected.training));
    text += &format!("validation  {}\n", time(&expected.validation));
    match (&expected.evaluation, &expected.attack, test) {
        (Some(evaluation), Some(attack), Some(test)) => {
            text += &format!("evaluation  {}  ({test} test images)\n", time(evaluation));
            text += &format!("FGSM        {}  for each budget\n", time(attack));
        }
        _ => text += "evaluation     unknown  (the data set publishes no number of test images)\n",
    }
    text += &format!("memory      {:>10}  {}\n", bytes(expected.memory_bytes), at_once(expected, cut, machine));
    text += &format!(
        "disk        {:>10}  checkpoint, posterior, resume file, predictions; without the data set\n",
        bytes(expected.disk_bytes)
    );
    text
}

/// Returns what goes through the network at once, or that nothing does.
fn at_once(expected: &Expected, cut: &Cut, machine: &Machine) -> String {
    if expected.memory_bytes > machine.memory {
        return format!("does not fit into {}, not even one particle and one image at once", bytes(machine.memory));
    }
    format!("{} particles x {} images at once, of {} free", cut.members, cut.images, bytes(machine.memory))
}
