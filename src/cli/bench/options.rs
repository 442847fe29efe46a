//! The options of `bella bench`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, Command, FromArgMatches};

use crate::bench::case::{BenchMethod, Choices, Source};
use crate::bench::measured::{Feed, Plan};
use crate::cli::options::ComputeArgs;
use crate::machine::Precision;
use crate::model::described::Published;
use crate::model::families::shapes;

/// Measure parameters, memory, disk, seconds and FLOP/s of training and prediction (bench.csv in the results folder).
///
/// Every combination of the lists is a case, measured in its own process on random images. A training step is complete:
/// forward pass, backward pass, method, optimizer. FLOP/s are counted from shapes, without recomputation and without
/// the mixing of svgd-weight, and compared with the rate of matrix products on this machine, measured in the same
/// process and precision.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella bench --particles 5,20,100 --batch-size 8 --precisions auto\n  \
    bella bench --checkpoint ViT-B-32.pt --blocks 6-11 --feed prefix\n  \
    bella bench --shapes clip-mini --subspaces low-rank,full --methods svgd,ivon --rounds 3\n  bella bench --table2\n  \
    bella bench --estimate configs/camelyon17.toml --rate 6e13 --image-rate 3000 --memory 40\n  \
    bella bench --estimate --shapes llama-7b,llava-1.5-7b --particles 1,2,5 --rate 4e14 --memory 80")]
pub struct BenchArgs {
    #[arg(long, value_delimiter = ',', conflicts_with = "checkpoint", value_parser = shape, help = shapes_help())]
    pub shapes: Vec<Source<'static>>,

    /// Folder, file of weights or TorchScript archive of a network of images to measure instead of a shape; a module that
    /// computes by its own code needs `--set checkpoint.kind=module` and `--set checkpoint.image_size=32`.
    #[arg(long, value_name = "FILE | FOLDER")]
    pub checkpoint: Option<PathBuf>,

    /// Subspaces to measure.
    #[arg(long, value_delimiter = ',', default_value = "low-rank")]
    pub subspaces: Vec<String>,

    /// Methods to measure.
    #[arg(long, value_delimiter = ',', default_value = "svgd")]
    pub methods: Vec<BenchMethod>,

    /// Numbers of particles (map has one).
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "5", value_parser = clap::value_parser!(i64).range(1..=100_000))]
    pub particles: Vec<i64>,

    /// Number types to compute in [default: f32, and auto for --estimate].
    #[arg(long, value_delimiter = ',')]
    pub precisions: Vec<Precision>,

    /// Images per particle and training step.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub batch_size: i64,

    /// Rank of the low-rank update.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub rank: i64,

    /// Blocks that get low-rank updates, such as 6-11.
    #[arg(long, value_name = "RANGES")]
    pub blocks: Option<String>,

    /// Source of the images that a step starts from.
    #[arg(long, default_value = "images", conflicts_with = "estimate")]
    pub feed: Feed,

    /// Particles per forward pass: a number, 0 for all, or auto.
    #[arg(long, value_name = "N", default_value = "auto")]
    pub particle_chunk: String,

    /// Compute activations again in the backward pass instead of keeping them.
    #[arg(long)]
    pub recompute: bool,

    /// Another setting of the config: `--set train.accumulate=2`.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,

    /// Leave out a key that a config of --estimate sets.
    #[arg(long = "unset", value_name = "KEY", requires = "estimate", add = crate::cli::completions::of_unset_keys())]
    pub unsets: Vec<String>,

    /// Timed training steps per round; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "estimate")]
    pub steps: usize,

    /// Timed predictions per round; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "estimate")]
    pub predictions: usize,

    /// Images per prediction.
    #[arg(long, value_name = "N", default_value_t = 32, conflicts_with = "estimate", value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub prediction_images: i64,

    /// Steps and predictions before the timing starts.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "estimate")]
    pub warmup: usize,

    /// Rounds over all cases; cases take turns within a round.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "estimate", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,

    /// Measure the cells of Bella's Table 2 (n = 3, 5, 20, 40, 100; base and Bella) and add the published figures.
    #[arg(long, conflicts_with_all = ["subspaces", "methods", "particles"])]
    pub table2: bool,

    /// Measure nothing: print the time, memory and disk to expect of an experiment, from its config (several merge), or without
    /// one those of every case of --shapes.
    #[arg(long, value_name = "CONFIG", num_args = 0.., conflicts_with_all = ["checkpoint", "table2"])]
    pub estimate: Option<Vec<PathBuf>>,

    /// Rate of large matrix products on the machine that --estimate is for, in FLOP/s: 6e13 [default: measured here].
    #[arg(long, value_name = "FLOP/S", requires = "estimate", value_parser = positive)]
    pub rate: Option<f64>,

    /// Images decoded per second on the machine that --estimate is for [default: 187 for each worker].
    #[arg(long, value_name = "N", requires = "estimate", value_parser = positive)]
    pub image_rate: Option<f64>,

    #[command(flatten)]
    pub compute: ComputeArgs,

    /// Measure the only case in this process and print the result.
    #[arg(long, hide = true)]
    pub alone: bool,
}

fn positive(text: &str) -> Result<f64> {
    let value: f64 = text.trim().parse().context("is no number")?;
    ensure!(value > 0.0 && value.is_finite(), "must be above 0");
    Ok(value)
}

/// Returns the keys of the shapes of networks of images, which can be measured.
fn measured() -> String {
    shapes().map(|shape| shape.key).collect::<Vec<_>>().join(", ")
}

fn shapes_help() -> String {
    let others = Published::keys().join(", ");
    format!(
        "Published shapes with random weights: {}; for --estimate alone also {others} [default: vit-b-32]",
        measured()
    )
}

fn shape(text: &str) -> Result<Source<'static>> {
    let found = shapes().find(|shape| shape.key == text).map(Source::Shape);
    let found = found.or_else(|| Published::of_key(text).map(Source::Published));
    found.with_context(|| format!("unknown shape `{text}`; known: {}, {}", measured(), Published::keys().join(", ")))
}

impl BenchArgs {
    /// Returns the first option of a case that differs from its default, which a config says instead.
    pub fn of_a_case(&self) -> Option<&'static str> {
        let none = BenchArgs::augment_args(Command::new("bench")).get_matches_from(["bench"]);
        let usual = BenchArgs::from_arg_matches(&none).expect("every option has a default");
        let words = |args: &BenchArgs| args.methods.iter().map(|method| method.word()).collect::<Vec<_>>();
        let given = [
            ("--shapes", !self.shapes.is_empty()),
            ("--subspaces", self.subspaces != usual.subspaces),
            ("--methods", words(self) != words(&usual)),
            ("--particles", self.particles != usual.particles),
            ("--precisions", self.precisions != usual.precisions),
            ("--batch-size", self.batch_size != usual.batch_size),
            ("--rank", self.rank != usual.rank),
            ("--blocks", self.blocks != usual.blocks),
            ("--particle-chunk", self.particle_chunk != usual.particle_chunk),
            ("--recompute", self.recompute != usual.recompute),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Returns what is measured or estimated: a checkpoint, or shapes.
    pub fn sources(&self) -> Vec<Source<'_>> {
        match &self.checkpoint {
            Some(path) => vec![Source::Checkpoint(path)],
            None if self.shapes.is_empty() => vec![Source::Shape(shapes().next().unwrap())],
            None => self.shapes.clone(),
        }
    }

    /// Returns the types to compute in.
    pub fn precisions(&self) -> Vec<Precision> {
        let usual = if self.estimate.is_some() { Precision::Auto } else { Precision::F32 };
        if self.precisions.is_empty() { vec![usual] } else { self.precisions.clone() }
    }

    /// Returns how often each thing is measured.
    pub fn plan(&self) -> Plan {
        Plan {
            steps: self.steps,
            predictions: self.predictions,
            warmup: self.warmup,
            prediction_images: self.prediction_images,
            feed: self.feed,
        }
    }
}

/// Returns all combinations of the lists.
pub fn cases(args: &BenchArgs) -> Vec<(Source<'_>, Choices)> {
    let mut cases = Vec::new();
    for source in args.sources() {
        for precision in args.precisions() {
            for (subspace, method, particles) in combinations(args) {
                let choices = Choices {
                    subspace,
                    method,
                    particles,
                    batch_size: args.batch_size,
                    rank: args.rank,
                    blocks: args.blocks.clone(),
                    precision,
                    particle_chunk: args.particle_chunk.clone(),
                    recompute: args.recompute,
                    sets: args.sets.clone(),
                };
                cases.push((source, choices));
            }
        }
    }
    cases
}

/// Returns the subspace, method and number of particles of each case.
fn combinations(args: &BenchArgs) -> Vec<(String, BenchMethod, i64)> {
    if args.table2 {
        let named = |word: &'static str| BenchMethod::all().into_iter().filter(move |method| method.word() == word);
        let of = |subspace: &'static str, word: &'static str, counts: &'static [i64]| {
            named(word).flat_map(move |method| counts.iter().map(move |n| (subspace.to_string(), method, *n)))
        };
        let counts = &[3, 5, 20, 40, 100];
        return of("full", "map", &[1])
            .chain(of("full", "svgd", counts))
            .chain(of("low-rank", "svgd", counts))
            .collect();
    }
    let mut all: Vec<(String, BenchMethod, i64)> = Vec::new();
    for subspace in &args.subspaces {
        for method in &args.methods {
            for particles in &args.particles {
                let case = (subspace.clone(), *method, method.particles(*particles));
                if !all.iter().any(|known| (&known.0, known.1.word(), known.2) == (&case.0, case.1.word(), case.2)) {
                    all.push(case);
                }
            }
        }
    }
    all
}
