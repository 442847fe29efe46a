//! `bella bench --estimate`: the time, memory and disk that an experiment will take, from its config alone.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tch::{Device, Kind};

use super::BenchArgs;
use super::options::cases;
use crate::base::outside::print_drawn;
use crate::base::small::{Usage, counted, particles};
use crate::bench::case::Choices;
use crate::bench::estimate::{Expected, Machine, Part, SHARE, Single};
use crate::bench::measure::matmul_rates;
use crate::experiment::{Experiment, load_without};
use crate::machine::device::compute_kind;
use crate::machine::memory::{ChunkSize, free_bytes};
use crate::machine::{Precision, device, wait};
use crate::rehearse::report::{bytes, duration};
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};

/// The images that a core decodes and resizes per second where nothing else is said (results/image-pipeline.md, a median under
/// load of 373 on two cores).
const IMAGES_PER_CORE: f64 = 187.0;

/// Prints the estimate of an experiment, or without configs that of every case.
pub fn run(args: &BenchArgs, configs: &[PathBuf]) -> Result<()> {
    if configs.is_empty() {
        return shapes(args);
    }
    if let Some(option) = args.of_a_case() {
        let why = format!(
            "--estimate CONFIG {option}: the config says it: leave {option} out; --set changes a key of the config"
        );
        return Err(Usage(why).into());
    }
    let experiment = Experiment::read(&load_without(configs, &args.sets, &args.unsets)?)?;
    let precision = experiment.training.as_ref().map_or(Precision::F32, |training| training.train.precision);
    let machine = machine(args, precision)?;
    let expected = Expected::new(&experiment, &machine)?;
    print!("{}", text(&expected, &machine, &assumed(args, &machine)));
    Ok(())
}

/// Prints a table of the cases, a row for each.
fn shapes(args: &BenchArgs) -> Result<()> {
    if args.shapes.is_empty() {
        return Err(Usage("--estimate: name a config, or shapes by --shapes".into()).into());
    }
    let measured = |precision: Precision| Ok((precision, machine(args, precision)?));
    let machines = args.precisions().into_iter().map(measured).collect::<Result<Vec<_>>>()?;
    // A rate that is given is that of every precision.
    let told = if args.rate.is_some() { &machines[..1] } else { &machines[..] };
    for (precision, machine) in told {
        let of = if told.len() > 1 { format!(" of {precision}") } else { String::new() };
        println!("rate{of}: {}", assumed(args, machine));
    }
    let (mut table, mut lengths) = (Table::default(), Vec::new());
    for (source, choices) in cases(args) {
        let (_, machine) = machines.iter().find(|(precision, _)| *precision == choices.precision).context("no rate")?;
        let single = Single::new(&source, &choices, machine)?;
        let told = single.lengths.as_ref().map(|told| format!("{}: {told}", source.name()));
        lengths.extend(told.filter(|told| !lengths.contains(told)));
        table.append(&row(&source.name(), &choices, &single, machine));
    }
    lengths.iter().for_each(|told| println!("prompts of {told}"));
    let columns = table.columns.clone();
    print_drawn(&render(&table, &Spec { columns, group_by: Vec::new(), surface: Surface::of_stdout() }));
    Ok(())
}

/// Returns a case as a row of the table.
fn row(name: &str, choices: &Choices, single: &Single, machine: &Machine) -> Row {
    let Single { kind, parameters, particles, weights_bytes, cut, memory_bytes, step, prediction, .. } = single;
    let gigabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e9);
    let seconds = |part: &Part| format!("{:.4}", part.seconds(machine));
    let fits = *memory_bytes <= machine.memory;
    let mut row = Row::new();
    row.push("model", name);
    row.push("subspace", &choices.subspace);
    row.push("method", choices.method.word());
    row.push("precision", device::precision_name(*kind));
    row.push("n", particles.to_string());
    row.push("batch_size", choices.batch_size.to_string());
    row.push("parameters", parameters.to_string());
    row.push("weights GB", gigabytes(*weights_bytes));
    row.push("memory GB", gigabytes(*memory_bytes));
    let at_once = format!("{} x {}", cut.members, cut.images);
    row.push("at once", if fits { at_once } else { "does not fit".to_string() });
    row.push("step s", seconds(step));
    row.push("step TFLOP", format!("{:.2}", step.flop / 1e12));
    row.push("predict s", seconds(prediction));
    row
}

/// Returns the machine that the command line describes; what it does not say is that of this one.
fn machine(args: &BenchArgs, precision: Precision) -> Result<Machine> {
    let settings = args.compute.settings();
    let device = settings.device.open()?;
    // A rate that is given is that of another machine, a GPU with bf16.
    let auto = if args.rate.is_some() { Kind::BFloat16 } else { compute_kind(Precision::Auto, device)? };
    let rate = match args.rate {
        Some(rate) => rate,
        None => {
            wait::announce();
            tch::set_num_threads(settings.threads.unwrap_or_else(tch::get_num_threads));
            let mut rates = matmul_rates(device, compute_kind(precision, device).context("train.precision")?)?;
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
    let Expected { network, kind, parameters, particles, members, real, test, cut, medium, .. } = expected;
    let time = |part: &Part| format!("{:>10}  {:.2e} FLOP", duration(part.seconds(machine)), part.flop);
    let mut text = format!("network: {network}\nrate: {assumed}\n");
    let kind = device::precision_name(*kind);
    text += &format!(
        "particles: {particles} x {parameters} parameters, {}, {kind}\n",
        counted(*members as usize, "member predicts", "members predict")
    );
    text += &format!(
        "{medium}: {} for training and validation ({}), {} steps in {} epochs\n",
        real.train, expected.counted, real.steps, real.epochs
    );
    if let Some(lengths) = &expected.lengths {
        text += &format!("prompts: {lengths}\n");
    }
    text += &format!("training    {}\n", time(&expected.training));
    text += &format!("validation  {}\n", time(&expected.validation));
    match (&expected.evaluation, test) {
        (Some(evaluation), Some(test)) => {
            text += &format!("evaluation  {}  ({test} test {medium})\n", time(evaluation))
        }
        _ => text += &format!("evaluation     unknown  (the data set publishes no number of test {medium})\n"),
    }
    if let Some(attack) = &expected.attack {
        text += &format!("FGSM        {}  for each budget\n", time(attack));
    }
    text += &format!("memory      {:>10}  {}\n", bytes(expected.memory_bytes), at_once(expected, cut, machine));
    text += &format!(
        "disk        {:>10}  checkpoint, posterior, resume file, predictions; without the data set\n",
        bytes(expected.disk_bytes)
    );
    text
}

/// Returns what goes through the network at once, or that nothing does.
fn at_once(expected: &Expected, cut: &ChunkSize, machine: &Machine) -> String {
    if expected.memory_bytes > machine.memory {
        return format!("does not fit into {}, not even one particle and one sample at once", bytes(machine.memory));
    }
    format!(
        "{} x {} {} at once, of {} free",
        particles(cut.members as i64),
        cut.images,
        expected.medium,
        bytes(machine.memory)
    )
}
