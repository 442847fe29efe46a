//! `bella bench`: the cost of training and prediction on this machine, case by case.

mod estimate;
mod options;
mod process;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::base::files::create_folder;
use crate::base::outside::print_drawn;
use crate::base::small::Usage;
use crate::bench::case::{Choices, Source};
use crate::bench::measured::Feed;
use crate::bench::row::{self, KEYS, Label};
use crate::machine::{Precision, wait};
use crate::results::store::{Row, Table, upsert_row};
use crate::results::table::{Spec, Surface, render};
pub use options::BenchArgs;
use options::cases;
use process::{Outcome, alone, child, joined};

pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(configs) = &args.estimate {
        return estimate::run(args, configs);
    }
    if args.steps == 0 && args.predictions == 0 {
        return Err(Usage("--steps 0 --predictions 0: nothing to measure".into()).into());
    }
    let cases = cases(args);
    for (source, choices) in &cases {
        check(args, source, choices)?;
    }
    if args.alone {
        return alone(args, &cases);
    }
    create_folder(args.compute.out())?;
    let device = crate::machine::device::name(args.compute.device.open()?);
    let mut outcomes: Vec<Option<Outcome>> = cases.iter().map(|_| None).collect();
    let mut rows = Rows { args, device, shown: Table::default(), failed: 0 };
    for round in 1..=args.rounds {
        for ((source, choices), outcome) in cases.iter().zip(&mut outcomes) {
            let what =
                format!("{} {} {} n = {}", source.name(), choices.subspace, choices.method.word(), choices.particles);
            tracing::info!("round {round} of {}: {what}, {}", args.rounds, choices.precision);
            let found = joined(outcome.take(), child(args, source, choices)?);
            // Written at once: whoever ends the command keeps the cases that are done.
            match round == args.rounds {
                true => rows.add(source, choices, found)?,
                false => *outcome = Some(found),
            }
        }
    }
    rows.finish(cases.len())
}

/// Finds mistakes in the settings before anything is measured.
fn check(args: &BenchArgs, source: &Source, choices: &Choices) -> Result<()> {
    if matches!(args.feed, Feed::Gradients) && choices.method.variant.asks_for_mixing {
        let why = format!(
            "--feed gradients: {} needs more than given gradients (mixed ones, or logits); leave it out of --methods",
            choices.method.word()
        );
        return Err(Usage(why).into());
    }
    if let Source::Published(published) = source {
        let why = format!("--shapes {}: its costs can be estimated, and not measured: add --estimate", published.key);
        return Err(Usage(why).into());
    }
    let experiment = choices.experiment(source)?;
    if let Some(training) = &experiment.training {
        let kind = crate::machine::device::compute_kind(training.train.precision, args.compute.device.open()?);
        if let Err(error) = kind.map(drop) {
            return Err(Usage(format!("{error:#}")).into());
        }
        if training.train.precision == Precision::F64 {
            return Err(Usage("--precisions f64: is there to check formulas; measure f32 or bf16".into()).into());
        }
    }
    Ok(())
}

/// One row per case, written to `bench.csv` and printed at the end.
struct Rows<'a> {
    args: &'a BenchArgs,
    device: String,
    shown: Table,
    failed: usize,
}

impl Rows<'_> {
    fn path(&self) -> PathBuf {
        self.args.compute.out().join("bench.csv")
    }

    fn add(&mut self, source: &Source, choices: &Choices, outcome: Outcome) -> Result<()> {
        let args = self.args;
        let label = Label {
            model: source.name(),
            choices,
            feed: args.feed,
            device: self.device.clone(),
            threads: args.compute.threads.unwrap_or_else(tch::get_num_threads),
            wait: wait::of_environment(),
            prediction_images: args.prediction_images,
        };
        let mut row: Row = row::row(&label, &outcome);
        if args.table2 {
            row::push_published(&mut row, choices)?;
        }
        // A case that does not fit in memory is a result; any other error is a failure.
        self.failed += outcome.is_err_and(|why| !why.contains("memory")) as usize;
        upsert_row(&self.path(), &row, KEYS)?;
        self.shown.append(&row::shown(&row));
        Ok(())
    }

    fn finish(self, cases: usize) -> Result<()> {
        let columns = self.shown.columns.clone();
        print_drawn(&render(&self.shown, &Spec { columns, group_by: Vec::new(), surface: Surface::of_stdout() }));
        tracing::info!("all columns: {}", self.path().display());
        if self.failed > 0 {
            bail!("{} of {cases} cases failed: see the column status", self.failed);
        }
        Ok(())
    }
}
