//! The door for methods and posteriors: a sampler that is registered here, whose posterior is a bank of draws, goes through
//! training, an interruption, evaluation, attacks, scoring, the soup and the report like every other method.

mod common;

use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, bail};
use bella::base::keeper::Keeper;
use bella::base::random::{At, Noise, Purpose};
use bella::base::tensor_file::State;
use bella::methods::{
    Entry, Evaluation, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, register,
};
use bella::posterior::Posterior;
use bella::results::store::read;
use bella::schema::settings;
use common::{Place, cell};
use tch::Tensor;

/// Stochastic-gradient Langevin dynamics (Welling and Teh 2011) that keeps theta after every step.
static LANGEVIN: Entry = Entry {
    key: "langevin",
    about: "Langevin dynamics that keeps every step",
    paper: "",
    update: Update::Own,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "langevin", sets: &["lr=0.01"], asks_for_mixing: false }],
    names: &[("low-rank", "Low-rank Langevin")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read(reader)),
};

/// Steps after which training fails, once; below 0 for never.
static FAILS_AFTER: AtomicI64 = AtomicI64::new(-1);

settings! {
    struct Spec {
        /// Number of chains.
        particles: i64 = 1, in 1..=8;
        /// Step size.
        lr: f64, in above(0.0);
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        let noise = Noise::new(parts.seed, Purpose::Noise);
        Box::new(Langevin { lr: self.lr, noise, start: parts.theta, kept: Vec::new() })
    }
}

struct Langevin {
    lr: f64,
    noise: Noise,
    start: Tensor,
    /// `[n, P]` after each step.
    kept: Vec<Tensor>,
}

impl Method for Langevin {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, _: f64) -> Result<Step> {
        let step = self.kept.len() as i64;
        if FAILS_AFTER.compare_exchange(step, -1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            bail!("interrupted by the test");
        }
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        *theta -= gradients * self.lr;
        *theta += self.noise.draw(At { step, sample: 0, part: 0 }, theta) * (self.lr * 1e-4).sqrt();
        self.kept.push(theta.copy());
        Ok(Step { losses, diagnostics: None })
    }

    fn posterior(&self, _: &Tensor) -> Posterior {
        // The second half: the first is burn-in.
        Posterior::Bank { draws: Tensor::cat(&self.kept[self.kept.len() / 2..], 0), weights: None }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        let mut steps = self.kept.len() as i64;
        keeper.count("langevin.steps", &mut steps)?;
        if keeper.restores() {
            self.kept = (0..steps).map(|_| self.start.empty_like()).collect();
        }
        let mut states = self.kept.iter_mut().enumerate();
        states.try_for_each(|(step, state)| keeper.tensor(&format!("langevin.kept.{step}"), state))
    }
}

/// Runs a command of `bella` in this process, where the method is registered.
#[track_caller]
fn run(place: &Place, arguments: &[&str], code: u8) {
    let out = place.path("results");
    let common = ["--out", out.to_str().unwrap()];
    let found = bella::cli::run(["bella"].iter().chain(arguments).chain(&common).map(Into::into));
    // The command keeps panics out of its output; this test's own must be seen.
    let _ = std::panic::take_hook();
    // An exit code can only be compared as text.
    assert_eq!(format!("{found:?}"), format!("{:?}", ExitCode::from(code)), "{arguments:?}");
}

fn config(place: &Place) -> String {
    let text = common::tiny()
        .replace("[method.svgd]\nparticles = 2\ngamma = 0.01", "[method.langevin]\nlr = 0.05\nparticles = 2");
    let text = text.replace("[optimizer.adamw]\nlr = 2e-3", "[optimizer.none]");
    let path = place.write("langevin.toml", text.as_bytes());
    path.to_str().unwrap().to_string()
}

#[test]
fn a_registered_sampler_goes_all_the_way() {
    register(&LANGEVIN);
    let (whole, stopped) = (Place::new(), Place::new());
    let train = |place: &Place, code| {
        let config = config(place);
        run(
            place,
            &[
                "train",
                "--config",
                &config,
                "--threads",
                "1",
                "--device",
                "cpu",
                "-s",
                "train.save_minutes=1e-9",
                "-s",
                "train.select=last-epoch",
            ],
            code,
        );
    };
    train(&whole, 0);
    FAILS_AFTER.store(5, Ordering::SeqCst);
    train(&stopped, 1);
    assert!(stopped.run().join("resume.safetensors").is_file());
    train(&stopped, 0);
    let draws = |place: &Place| State::read(&place.run().join("posterior.safetensors")).unwrap().get("draws").unwrap();
    assert_eq!(draws(&whole).size()[0], 8, "2 epochs of 4 steps, of which the second half is kept, of 2 particles");
    assert!(draws(&whole).equal(&draws(&stopped)), "the resumed run has other draws");

    let id = stopped.run().file_name().unwrap().to_str().unwrap().to_string();
    let computed = ["--threads", "1", "--device", "cpu"];
    run(&stopped, &[&["eval", &id, "--attack", "fgsm", "--epsilon", "0.01"], &computed[..]].concat(), 0);
    run(&stopped, &[&["soup", &id], &computed[..]].concat(), 0);
    run(&stopped, &[&["eval", &id, "--draws", "3"], &computed[..]].concat(), 2);
    let table = read(&stopped.path("results/tiny.csv")).unwrap();
    assert_eq!(cell(&table, "", "method"), "langevin");
    assert_eq!(cell(&table, "", "members"), "8");
    let predictions = stopped.run().join("predictions/digits@clean.safetensors");
    assert_eq!(
        format!("{:?}", bella::cli::run(["bella", "score", predictions.to_str().unwrap()].map(Into::into))),
        format!("{:?}", ExitCode::SUCCESS)
    );
    let (results, page) = (stopped.path("results"), stopped.path("page.html"));
    let report = ["bella", "report", results.to_str().unwrap(), "--html", page.to_str().unwrap()];
    assert_eq!(format!("{:?}", bella::cli::run(report.map(Into::into))), format!("{:?}", ExitCode::SUCCESS));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Low-rank Langevin"), "the report does not know the method's name");
}
