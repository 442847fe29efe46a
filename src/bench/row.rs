//! A measured case as a row of `bench.csv`, with the published figures from Table 2 of the Bella paper.

use anyhow::{Context, Result};

use crate::bench::case::Choices;
use crate::bench::measured::{Feed, Measured, Samples, median};
use crate::machine::Wait;
use crate::methods::Particles;
use crate::report::paper;
use crate::results::store::Row;
use crate::schema::Choice;

/// The columns that identify a case. A row replaces the stored one that agrees in all of them.
pub const KEYS: &[&str] = &[
    "model",
    "subspace",
    "rank",
    "blocks",
    "method",
    "particles",
    "batch_size",
    "precision",
    "device",
    "threads",
    "wait",
    "particle_chunk",
    "recompute",
    "feed",
    "prediction_images",
    "settings",
];

/// The settings that identify a case.
pub struct Label<'a> {
    pub model: String,
    pub choices: &'a Choices,
    pub feed: Feed,
    pub device: String,
    pub threads: i32,
    pub wait: Wait,
    pub prediction_images: i64,
}

impl Label<'_> {
    /// Returns the columns of [`KEYS`] as they were asked for.
    fn row(&self) -> Row {
        let choices = self.choices;
        let low_rank = choices.subspace == "low-rank";
        let mut row = Row::new();
        row.push("model", &self.model);
        row.push("subspace", &choices.subspace);
        row.push("rank", if low_rank { choices.rank.to_string() } else { String::new() });
        row.push("blocks", choices.blocks.clone().filter(|_| low_rank).unwrap_or_default());
        row.push("method", choices.method.word());
        row.push("particles", choices.particles.to_string());
        row.push("batch_size", choices.batch_size.to_string());
        row.push("precision", choices.precision.word());
        row.push("device", &self.device);
        row.push("threads", self.threads.to_string());
        row.push("wait", self.wait.word());
        row.push("particle_chunk", &choices.particle_chunk);
        row.push("recompute", choices.recompute.to_string());
        row.push("feed", self.feed.word());
        row.push("prediction_images", self.prediction_images.to_string());
        row.push("settings", choices.sets.join(" "));
        row
    }
}

/// Returns the row of a case: its measurements, or the reason why there are none.
pub fn row(label: &Label, outcome: &Result<Measured, String>) -> Row {
    let mut row = label.row();
    let empty = Measured::default();
    let (measured, status) = match outcome {
        Ok(measured) => (measured, "ok"),
        Err(why) => (&empty, why.as_str()),
    };
    row.push("status", status);
    let known = outcome.is_ok();
    let number = |value: f64| known.then_some(value);
    row.push("computed_in", &measured.precision);
    row.push_number("particles_at_once", number(measured.particle_chunk as f64));
    row.push_number("parameters_per_particle", number(measured.parameters_per_particle as f64));
    let trainable = (measured.parameters_per_particle * measured.particles) as f64;
    row.push_number("trainable_parameters", number(trainable));
    row.push_number("base_bytes", number(measured.base_bytes as f64));
    row.push_number("posterior_bytes", number(measured.posterior_bytes as f64));
    row.push_number("train_peak_memory_bytes", measured.train_peak_bytes.map(|bytes| bytes as f64));
    row.push_number("predict_peak_memory_bytes", measured.predict_peak_bytes.map(|bytes| bytes as f64));
    let rate = median(&measured.matmul_rates);
    row.push_number("matmul_flop_per_second", rate);
    let images = (measured.particles * measured.train_images) as f64;
    timing(&mut row, "step", &measured.step, Cost { images, flop: measured.step_flop, rate });
    for (part, samples) in [
        ("input", &measured.input),
        ("gradient", &measured.gradient),
        ("method", &measured.method),
        ("optimizer", &measured.optimizer),
    ] {
        row.push_number(format!("{part}_seconds"), median(&samples.wall));
        row.push_number(format!("{part}_processor_seconds"), median(&samples.processor));
    }
    let images = measured.prediction_images as f64;
    timing(&mut row, "predict", &measured.prediction, Cost { images, flop: measured.prediction_flop, rate });
    row.push("samples", measured.step.wall.len().max(measured.prediction.wall.len()).to_string());
    row
}

/// The amount of work in one repetition.
struct Cost {
    images: f64,
    flop: f64,
    /// The rate of matrix products, in operations per second.
    rate: Option<f64>,
}

/// Adds the median, smallest and largest seconds, and the images and operations per second by the median.
fn timing(row: &mut Row, what: &str, samples: &Samples, cost: Cost) {
    let seconds = median(&samples.wall);
    row.push_number(format!("{what}_seconds"), seconds);
    row.push_number(format!("{what}_seconds_min"), samples.wall.iter().copied().reduce(f64::min));
    row.push_number(format!("{what}_seconds_max"), samples.wall.iter().copied().reduce(f64::max));
    row.push_number(format!("{what}_processor_seconds"), median(&samples.processor));
    row.push_number(format!("{what}_images_per_second"), seconds.map(|seconds| cost.images / seconds));
    let achieved = seconds.filter(|_| cost.flop > 0.0).map(|seconds| cost.flop / seconds);
    row.push_number(format!("{what}_flop"), achieved.map(|_| cost.flop));
    row.push_number(format!("{what}_flop_per_second"), achieved);
    row.push_number(format!("{what}_matmul_share"), achieved.zip(cost.rate).map(|(flop, rate)| flop / rate));
}

/// Appends the figures that the paper's Table 2 gives for a case; they are empty where it gives none.
///
/// # Errors
/// Fails if the compiled-in tables break their rules, which the tests check.
pub fn push_published(row: &mut Row, choices: &Choices) -> Result<()> {
    let model = match (choices.subspace.as_str(), choices.method) {
        ("full", method) if method.entry.particles == Particles::One => "Single".to_string(),
        ("full", _) => "SVGD base".to_string(),
        _ => "SVGD Bella".to_string(),
    };
    let column = format!("{model}, n={}", choices.particles);
    let table =
        paper::tables()?.into_iter().find(|table| table.key == "bella-2").context("results/paper has Table 2")?;
    let published = |wanted: &str| {
        let cell = table.cells.iter().find(|cell| cell.row.starts_with(wanted) && cell.column == column);
        cell.and_then(|cell| cell.value)
    };
    row.push_number("paper_trainable_parameters", published("Trainable"));
    row.push_number("paper_memory_bytes", published("Memory"));
    row.push_number("paper_storage_bytes", published("Storage"));
    // The paper stores whole models, or one base with its particles.
    let bytes = |column: &str| row.get(column).and_then(|cell| cell.parse::<f64>().ok());
    let base = if choices.subspace == "full" { Some(0.0) } else { bytes("base_bytes") };
    let storage = base.zip(bytes("posterior_bytes")).map(|(base, posterior)| base + posterior);
    row.push_number("storage_bytes", storage);
    Ok(())
}

/// Returns a short row for reading: a few columns, and rounded numbers.
pub fn shown(row: &Row) -> Row {
    let mut short = Row::new();
    let number = |column: &str| row.get(column).and_then(|cell| cell.parse::<f64>().ok());
    let scaled = |column: &str, unit: f64, digits: usize| {
        number(column).map_or(String::new(), |value| format!("{:.digits$}", value / unit))
    };
    for column in ["model", "subspace", "rank", "blocks", "method"] {
        short.push(column, row.get(column).unwrap_or_default());
    }
    short.push("n", row.get("particles").unwrap_or_default());
    for column in ["batch_size", "precision"] {
        short.push(column, row.get(column).unwrap_or_default());
    }
    if row.get("feed") != Some("images") {
        short.push("feed", row.get("feed").unwrap_or_default());
    }
    if row.get("recompute") == Some("true") {
        short.push("recompute", "true");
    }
    short.push("trainable", row.get("trainable_parameters").unwrap_or_default());
    short.push("paper", row.get("paper_trainable_parameters").unwrap_or_default());
    short.push("peak GB", scaled("train_peak_memory_bytes", 1e9, 2));
    short.push("paper GB", scaled("paper_memory_bytes", 1e9, 2));
    short.push(
        "disk MB",
        scaled(if number("storage_bytes").is_some() { "storage_bytes" } else { "posterior_bytes" }, 1e6, 1),
    );
    short.push("paper MB", scaled("paper_storage_bytes", 1e6, 0));
    short.push("step s", scaled("step_seconds", 1.0, 4));
    short.push("cpu s", scaled("step_processor_seconds", 1.0, 4));
    short.push("method s", scaled("method_seconds", 1.0, 4));
    short.push("images/s", scaled("step_images_per_second", 1.0, 1));
    short.push("GFLOP/s", scaled("step_flop_per_second", 1e9, 1));
    short.push("% of matmul", scaled("step_matmul_share", 0.01, 1));
    short.push("predict images/s", scaled("predict_images_per_second", 1.0, 1));
    short.push("predict % of matmul", scaled("predict_matmul_share", 0.01, 1));
    short.push("status", row.get("status").unwrap_or_default());
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Precision;

    fn choices(subspace: &str, method: &str, particles: i64) -> Choices {
        Choices {
            subspace: subspace.into(),
            method: method.parse().unwrap(),
            particles,
            batch_size: 8,
            rank: 4,
            blocks: None,
            precision: Precision::F32,
            particle_chunk: "auto".into(),
            recompute: false,
            sets: Vec::new(),
        }
    }

    fn label(choices: &Choices) -> Label<'_> {
        Label {
            model: "vit-b-32".into(),
            choices,
            feed: Feed::Images,
            device: "cpu".into(),
            threads: 1,
            wait: Wait::Active,
            prediction_images: 4,
        }
    }

    fn measured() -> Measured {
        let samples = |wall: &[f64]| Samples { wall: wall.to_vec(), processor: wall.to_vec() };
        Measured {
            particles: 5,
            parameters_per_particle: 368_640,
            train_images: 8,
            step: samples(&[2.0, 1.0, 4.0]),
            step_flop: 3e9,
            matmul_rates: vec![2e9, 3e9, 4e9],
            ..Measured::default()
        }
    }

    #[test]
    fn rates_follow_from_the_median() {
        let choices = choices("low-rank", "svgd", 5);
        let row = row(&label(&choices), &Ok(measured()));
        for (column, value) in [
            ("trainable_parameters", "1843200"),
            ("step_seconds", "2"),
            ("step_seconds_min", "1"),
            ("step_seconds_max", "4"),
            ("step_images_per_second", "20"),
            ("step_flop_per_second", "1500000000"),
            ("step_matmul_share", "0.5"),
            ("predict_seconds", ""),
            ("status", "ok"),
        ] {
            assert_eq!(row.get(column), Some(value), "{column}");
        }
        assert!(KEYS.iter().all(|key| row.get(key).is_some()));
    }

    #[test]
    fn a_case_that_failed_is_a_row_that_says_so_with_the_same_columns() {
        let choices = choices("full", "svgd", 40);
        let label = label(&choices);
        let (good, bad) = (row(&label, &Ok(measured())), row(&label, &Err("out of memory".into())));
        let names = |row: &Row| row.cells().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&good), names(&bad));
        assert_eq!(bad.get("status"), Some("out of memory"));
        assert_eq!(bad.get("trainable_parameters"), Some(""));
    }

    #[test]
    fn published_figures_stand_beside() {
        let published = |choices: &Choices| {
            let mut row = row(&label(choices), &Ok(measured()));
            push_published(&mut row, choices).unwrap();
            ["paper_trainable_parameters", "paper_memory_bytes", "paper_storage_bytes"]
                .map(|column| row.get(column).unwrap().to_string())
        };
        let bella = published(&choices("low-rank", "svgd", 100));
        assert_eq!(bella, ["36860000", "5190000000", "572000000"]);
        let single = published(&choices("full", "map", 1));
        assert_eq!(single, ["113000000", "5050000000", "433000000"]);
        assert_eq!(published(&choices("full", "svgd", 100)), ["", "", ""]);
    }
}
