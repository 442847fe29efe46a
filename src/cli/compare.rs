//! `bella compare`: compares predictors with one on one test set, with paired bootstrap intervals and corrected p-values.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::report::{print_csv, table_of};
use crate::base::outside::print_drawn;
use crate::base::small::{Usage, shows_zero};
use crate::evaluate::Condition;
use crate::evaluate::comparison::{Asked, Compared, Wanted, compare_all, predictions_file};
use crate::metrics::bootstrap::RESAMPLES;
use crate::metrics::multiple::Correction;
use crate::metrics::{Average, Unit};
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};
use crate::schema::Choice;

/// Compare runs, or predictions files, with one on one test set: differences with 95 % intervals (paired bootstrap).
///
/// Where several are compared with A, their p-values are corrected for it, metric by metric. Intervals are not.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella compare low-rank-map-s1 low-rank-svgd-s1\n  \
                  bella compare map,seed=1 svgd,seed=1 --condition 'fgsm 0.02'\n  \
                  bella compare map,seed=1 svgd,seed=1 --test-set domainnet-sketch\n  \
                  bella compare map,seed=1 svgd,seed=1 ivon,seed=1 swag,seed=1 --correct benjamini-hochberg\n  \
                  bella compare a/predictions/cifar10@clean.safetensors b/predictions/cifar10@clean.safetensors")]
pub struct CompareArgs {
    /// A: a predictions file, or a run (its folder, the start of its id, settings, or `latest`), whose test set counts.
    #[arg(add = super::completions::of_runs())]
    a: String,

    /// B, as A, or several; differences are B - A.
    #[arg(required = true, add = super::completions::of_runs())]
    b: Vec<String>,

    /// Condition of the images of runs, as in the results files [default: clean].
    #[arg(long, value_name = "CONDITION")]
    condition: Option<String>,

    /// Test set of runs that have several, as in the column `set` of the results files [default: the run's own].
    #[arg(long, value_name = "NAME")]
    test_set: Option<String>,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    out: PathBuf,

    /// Average over members to compare [default: both].
    #[arg(long)]
    average: Option<Average>,

    /// Correction of the p-values for the number of B, each metric by itself.
    #[arg(long, value_name = "KEY", default_value = "holm")]
    correct: Correction,

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
    let condition = args.condition.clone().unwrap_or_else(|| Condition::Clean.to_string());
    let wanted = Wanted { out: &args.out, condition: &condition, test_set: args.test_set.as_deref() };
    let file = |named: &String| predictions_file(named, &wanted);
    let (file_a, files) = (file(&args.a)?, args.b.iter().map(file).collect::<Result<Vec<_>>>()?);
    args.check(&file_a, &files)?;
    let averages = args.average.map_or(Average::ALL.to_vec(), |average| vec![average]);
    let asked = Asked { averages, resamples: args.resamples, seed: args.seed, correction: args.correct };
    let found = compare_all(&file_a, &files, &asked)?;
    if args.csv {
        let rows: Vec<Row> = found.iter().map(|one| full_row(one, args)).collect();
        return print_csv(&table_of(&rows));
    }
    let mut table = Table::default();
    found.iter().for_each(|one| table.append(&readable_row(one, args)));
    let group_by = if files.len() > 1 { vec!["metric".to_string(), "average".to_string()] } else { vec![] };
    let spec = Spec { columns: table.columns.clone(), group_by, surface: Surface::of_stdout() };
    println!("A: {}", file_a.display());
    files.iter().for_each(|file| println!("B: {}", file.display()));
    print_drawn(&render(&table, &spec));
    println!("differences are B - A; {} paired resamples, seed {}", args.resamples, args.seed);
    if files.len() > 1 {
        println!(
            "p {}: corrected for {} comparisons by each metric; intervals are not",
            args.correct.word(),
            files.len()
        );
    }
    println!("{}", args.average.map_or_else(Average::legend, Average::legend_of_one));
    Ok(())
}

impl CompareArgs {
    /// Checks that no B comes twice, which would count as another comparison, and that options of runs are given with one.
    fn check(&self, file_a: &Path, files: &[PathBuf]) -> Result<()> {
        // A file that is not there is an error of its own, and no file twice.
        let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
        let again = (1..files.len()).find(|at| files[..*at].iter().any(|before| same(before, &files[*at])));
        if let Some(again) = again {
            let why = format!("{} comes twice: name each B once", self.b[again]);
            return Err(Usage(why).into());
        }
        let is_file = |named: &String, file: &Path| Path::new(named) == file;
        let has_run = !is_file(&self.a, file_a) || !self.b.iter().zip(files).all(|(named, file)| is_file(named, file));
        let given = [("--condition", self.condition.is_some()), ("--test-set", self.test_set.is_some())];
        match given.iter().find(|(_, given)| *given && !has_run) {
            Some((option, _)) => {
                let why = format!(
                    "{option} chooses among the predictions of runs, and all that is named are files: leave it out"
                );
                Err(Usage(why).into())
            }
            None => Ok(()),
        }
    }
}

fn full_row(Compared { predictor, difference: of, adjusted }: &Compared, args: &CompareArgs) -> Row {
    let mut row = Row::new();
    row.push("predictor", &args.b[*predictor]);
    row.push("metric", of.metric.key);
    row.push("average", of.average.suffix());
    let [low, high] = of.interval;
    let numbers = [("a", of.a), ("b", of.b), ("difference", of.difference), ("low", low), ("high", high), ("p", of.p)];
    numbers.into_iter().for_each(|(column, number)| row.push_number(column, Some(number)));
    row.push_number("p_adjusted", Some(*adjusted));
    row.push("correction", args.correct.word());
    row.push("comparisons", args.b.len().to_string());
    row.push("resamples", args.resamples.to_string());
    row.push("seed", args.seed.to_string());
    row
}

/// Formats numbers as in tables, with fractions as percent. Which B it is, and the corrected p-value, stand there where there are
/// several.
fn readable_row(Compared { predictor, difference: of, adjusted }: &Compared, args: &CompareArgs) -> Row {
    let (name, scale, digits) = match of.metric.unit {
        Unit::Fraction => (format!("{} [%]", of.metric.key), 100.0, 2),
        Unit::Nats | Unit::One => (of.metric.key.to_string(), 1.0, 4),
    };
    let number = |value: f64| format!("{:.digits$}", scale * value);
    let signed = |value: f64| signed(scale * value, digits);
    let mut row = Row::new();
    if args.b.len() > 1 {
        row.push("of", &args.b[*predictor]);
    }
    row.push("metric", name);
    row.push("average", of.average.suffix());
    row.push("A", number(of.a));
    row.push("B", number(of.b));
    row.push("difference", signed(of.difference));
    row.push("95 % interval", format!("{} to {}", signed(of.interval[0]), signed(of.interval[1])));
    row.push("p", format!("{:.4}", of.p));
    if args.b.len() > 1 {
        row.push(format!("p {}", args.correct.word()), format!("{adjusted:.4}"));
    }
    row
}

/// Formats a number with its sign, which a number that is shown as 0 does not have.
fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    if value.is_finite() && shows_zero(&text) { text[1..].to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::bootstrap::compare;
    use crate::predictions::{Predictions, Shape};

    fn args(b: &[&str]) -> CompareArgs {
        CompareArgs {
            a: "a".into(),
            b: b.iter().map(|name| name.to_string()).collect(),
            condition: None,
            test_set: None,
            out: PathBuf::new(),
            average: None,
            correct: Correction::Holm,
            resamples: 200,
            seed: 0,
            csv: true,
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(
            [0.0, -0.0, 0.00004, -0.00004, -0.0002, 1.5, f64::NAN, f64::NEG_INFINITY].map(|value| signed(value, 4)),
            ["0.0000", "0.0000", "0.0000", "0.0000", "-0.0002", "+1.5000", "NaN", "-inf"]
        );
    }

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
        let found: Vec<Compared> =
            found.into_iter().map(|difference| Compared { predictor: 0, adjusted: difference.p, difference }).collect();
        let args = super::tests::args(&["a"]);
        let readable = readable_row(&found[0], &args);
        assert!(readable.get("of").is_none() && readable.get("p holm").is_none());
        let cells = ["metric", "average", "A", "B", "difference"].map(|column| readable.get(column).unwrap());
        assert_eq!(cells, ["accuracy [%]", "lm", "50.00", "75.00", "+25.00"]);
        let full = full_row(&found[0], &args);
        let cells = ["predictor", "a", "b", "difference", "low", "resamples"].map(|column| full.get(column).unwrap());
        assert_eq!(cells, ["a", "0.5", "0.75", "0.25", "0", "200"]);
        assert!(readable_row(&found[1], &args).get("metric") == Some("nll"));
        let of_two = readable_row(&found[0], &super::tests::args(&["svgd", "ivon"]));
        assert!(of_two.get("of") == Some("svgd") && of_two.get("p holm").is_some());
    }
}
