//! `bella compare`: compares two predictors on one test set, with paired bootstrap intervals.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::report::{print_csv, table_of};
use crate::base::outside::print_drawn;
use crate::evaluate::comparison::{compare_files, predictions_file};
use crate::metrics::bootstrap::{Difference, RESAMPLES};
use crate::metrics::{Average, Unit};
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};

/// Compare two runs, or two predictions files, on one test set: differences with 95 % intervals (paired bootstrap).
#[derive(Args)]
#[command(after_help = "Examples:\n  bella compare low-rank-map-s1 low-rank-svgd-s1\n  \
                  bella compare map,seed=1 svgd,seed=1 --condition 'fgsm 0.02'\n  \
                  bella compare a/predictions/cifar10@clean.safetensors b/predictions/cifar10@clean.safetensors")]
pub struct CompareArgs {
    /// A: a predictions file, or a run (its folder, the start of its id, settings, or `latest`), whose test set counts.
    #[arg(add = super::completions::of_runs())]
    a: String,

    /// B, as A; differences are B - A.
    #[arg(add = super::completions::of_runs())]
    b: String,

    /// Condition of the images of runs, as in the results files.
    #[arg(long, value_name = "CONDITION", default_value = "clean")]
    condition: String,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    out: PathBuf,

    /// Average over members to compare [default: both].
    #[arg(long)]
    average: Option<Average>,

    /// Number of resamples.
    #[arg(long, value_name = "N", default_value_t = RESAMPLES, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    resamples: u32,

    /// Seed of the resamples.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Print CSV (fractions, all digits) instead of a table.
    #[arg(long)]
    csv: bool,
}

pub fn run(args: &CompareArgs) -> Result<()> {
    let file = |named: &str| predictions_file(named, &args.out, &args.condition);
    let (file_a, file_b) = (file(&args.a)?, file(&args.b)?);
    let averages = args.average.map_or(Average::ALL.to_vec(), |average| vec![average]);
    let differences = compare_files([&file_a, &file_b], &averages, (args.resamples, args.seed))?;
    if args.csv {
        let rows: Vec<Row> = differences.iter().map(|difference| full_row(difference, args)).collect();
        return print_csv(&table_of(&rows));
    }
    let mut table = Table::default();
    differences.iter().for_each(|difference| table.append(&readable_row(difference)));
    let spec = Spec { columns: table.columns.clone(), group_by: vec![], surface: Surface::of_stdout() };
    println!("A: {}\nB: {}", file_a.display(), file_b.display());
    print_drawn(&render(&table, &spec));
    println!("differences are B - A; {} paired resamples, seed {}", args.resamples, args.seed);
    println!("{}", Average::legend());
    Ok(())
}

fn full_row(of: &Difference, args: &CompareArgs) -> Row {
    let mut row = Row::new();
    row.push("metric", of.metric.key);
    row.push("average", of.average.suffix());
    let [low, high] = of.interval;
    let numbers = [("a", of.a), ("b", of.b), ("difference", of.difference), ("low", low), ("high", high), ("p", of.p)];
    numbers.into_iter().for_each(|(column, number)| row.push_number(column, Some(number)));
    row.push("resamples", args.resamples.to_string());
    row.push("seed", args.seed.to_string());
    row
}

/// Formats numbers as in tables, with fractions as percent.
fn readable_row(of: &Difference) -> Row {
    let (name, scale, digits) = match of.metric.unit {
        Unit::Fraction => (format!("{} [%]", of.metric.key), 100.0, 2),
        Unit::Nats | Unit::One => (of.metric.key.to_string(), 1.0, 4),
    };
    let number = |value: f64| format!("{:.digits$}", scale * value);
    let signed = |value: f64| format!("{:+.digits$}", scale * value);
    let mut row = Row::new();
    row.push("metric", name);
    row.push("average", of.average.suffix());
    row.push("A", number(of.a));
    row.push("B", number(of.b));
    row.push("difference", signed(of.difference));
    row.push("95 % interval", format!("{} to {}", signed(of.interval[0]), signed(of.interval[1])));
    row.push("p", format!("{:.4}", of.p));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::bootstrap::compare;
    use crate::predictions::{Predictions, Shape};

    // B is right on one of four samples more than A, with the same confidences.
    #[test]
    fn rows_show_percent_and_keep_fractions() {
        let shape = Shape { members: 1, samples: 4, classes: 2 };
        let predictions = |signs: [f32; 4]| {
            let logits = signs.into_iter().flat_map(|sign| [sign, 0.0]).collect();
            Predictions::new(shape, logits, vec![0; 4]).unwrap()
        };
        let (a, b) = (predictions([1.0, 1.0, -1.0, -1.0]), predictions([1.0, 1.0, 1.0, -1.0]));
        let found = compare(&a, &b, &[Average::Logit], 200, 0).unwrap();
        let readable = readable_row(&found[0]);
        let cells = ["metric", "average", "A", "B", "difference"].map(|column| readable.get(column).unwrap());
        assert_eq!(cells, ["accuracy [%]", "lm", "50.00", "75.00", "+25.00"]);
        let file = std::path::PathBuf::new();
        let file = file.display().to_string();
        let (condition, out) = ("clean".into(), PathBuf::new());
        let args =
            CompareArgs { a: file.clone(), b: file, condition, out, average: None, resamples: 200, seed: 0, csv: true };
        let full = full_row(&found[0], &args);
        let cells = ["a", "b", "difference", "low", "resamples"].map(|column| full.get(column).unwrap());
        assert_eq!(cells, ["0.5", "0.75", "0.25", "0", "200"]);
        assert!(readable_row(&found[1]).get("metric") == Some("nll"));
    }
}
