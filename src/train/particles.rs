//! The particles in training, with their method, and how far they are trained: everything that a resumed run needs.
//!
//! Their exponential moving average over the steps is by the rules of timm's `ModelEmaV3`. It is of columns, so that of a low-rank
//! update its factors are averaged and not their product, as timm's would be with an adapter of PEFT.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use super::context::Context;
use super::progress::{ADVICE, EpochRow, Progress};
use super::scaling::{LossScale, NotFinite, Watched};
use crate::base::keeper::Keeper;
use crate::base::tensor::host_f64;
use crate::experiment::Ema;
use crate::machine::parallel::ProcessGroup;
use crate::methods::{Method, Objective, Parts, Step};
use crate::posterior::Posterior;
use crate::subspace::geometry::WeightSpace;

/// Everything that steps and epochs change.
pub(super) struct Particles {
    /// The particles, `[n, P]` in f32.
    pub theta: Tensor,
    /// The average of theta that predicts in its place, if there is one.
    pub average: Option<Average>,
    /// The scale of the losses, where the compute type needs one.
    pub scale: Option<LossScale>,
    pub method: Box<dyn Method>,
    pub progress: Progress,
}

impl Particles {
    /// Keeps everything that the next step starts from, but for the scale of the loss and the progress.
    ///
    /// # Errors
    /// Fails if something is missing where it is restored, or has another shape.
    pub fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("theta", &mut self.theta)?;
        if let Some(average) = &mut self.average {
            average.keep(keeper)?;
        }
        self.method.keep(keeper)
    }

    /// Takes the particles `theta: [n, P]` before the first step.
    ///
    /// # Errors
    /// Fails if the learning rates of columns are none of this network's.
    pub fn at_start(context: &Context, theta: Tensor) -> Result<Particles> {
        let (training, seed) = (context.training, context.experiment.seed);
        let factors = context.rate_factors()?;
        let method = training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed,
            optimizer: training.optimizer.spec.build(&theta, factors.as_ref()),
            geometry: WeightSpace::new(context.subspace.layout()),
            clip_norm: training.train.clip_norm,
        });
        let progress = Progress::new(context.particles(), method.diagnostics().len(), context.session.device);
        let average = training.train.ema.as_ref().map(|ema| Average::new(ema, &theta));
        let scale = LossScale::of(context.model().kind);
        Ok(Particles { theta, average, scale, method, progress })
    }

    /// Takes a step on the batch of an objective; `None` if it is skipped since gradients in f16 were not finite.
    ///
    /// # Errors
    /// Fails if the method does, or if no step can be finite.
    pub fn step(&mut self, objective: &mut dyn Objective, factor: f64) -> Result<Option<Step>> {
        let Particles { theta, average, scale, method, progress } = self;
        let step = match scale {
            None => Some(method.step(theta, objective, factor)?),
            Some(scale) => match method.step(theta, &mut Watched { objective }, factor) {
                Ok(step) => {
                    scale.advance();
                    Some(step)
                }
                Err(error) if error.is::<NotFinite>() => {
                    scale.skip(progress.steps + 1)?;
                    None
                }
                Err(error) => return Err(error),
            },
        };
        match &step {
            Some(step) => progress.add(step),
            None => progress.skip(),
        }
        if let Some(average) = average {
            average.update(theta, progress.steps);
        }
        Ok(step)
    }

    /// Returns the factor of the losses on the way back.
    pub fn magnified(&self) -> f64 {
        self.scale.as_ref().map_or(1.0, |scale| scale.factor)
    }

    /// Makes theta, and its average, the same in all processes.
    ///
    /// # Errors
    /// Fails if a process cannot be reached.
    pub fn align(&mut self, group: &ProcessGroup) -> Result<()> {
        group.align(&mut self.theta)?;
        self.average.as_mut().map_or(Ok(()), |average| group.align(&mut average.theta))
    }

    /// Returns the posterior at theta, or at its average.
    pub fn posterior(&self) -> Posterior {
        self.method.posterior(self.average.as_ref().map_or(&self.theta, |average| &average.theta))
    }

    /// Checks that theta is finite, since a loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// Fails with the first particle that has a NaN or infinite parameter.
    pub fn check_finite(&self) -> Result<()> {
        let finite = host_f64(&self.theta.isfinite().all_dim(1, false).to_kind(Kind::Double))?;
        match finite.iter().position(|ok| *ok == 0.0) {
            Some(particle) => bail!(
                "particle {particle} has parameters that are not finite after step {}: {ADVICE}",
                self.progress.steps
            ),
            None => Ok(()),
        }
    }

    /// Returns the warnings of the method about the epochs so far, of which `row` is the last.
    pub fn warnings(&self, row: &EpochRow) -> Vec<String> {
        let all = self.progress.rows.iter().chain([row]);
        let epochs: Vec<&[(String, f64)]> = all.map(|row| &row.diagnostics[..]).collect();
        self.method.warnings(&epochs)
    }
}

const NAME: &str = "ema";

/// The average of theta so far.
pub(super) struct Average {
    ema: Ema,
    /// The average, `[n, P]` in f32.
    pub theta: Tensor,
}

impl Average {
    /// Starts with the particles before the first step.
    pub fn new(ema: &Ema, theta: &Tensor) -> Average {
        Average { ema: ema.clone(), theta: theta.copy() }
    }

    /// Takes in theta after step number `step`, from 1.
    pub fn update(&mut self, theta: &Tensor, step: usize) {
        let _ = self.theta.lerp_(theta, 1.0 - self.ema.decay_at(step));
    }

    pub fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor(NAME, &mut self.theta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Reader, Tree};

    fn ema(keys: &str) -> Result<Ema, String> {
        let sets: Vec<String> = keys.split_whitespace().map(|key| format!("ema.{key}")).collect();
        let tree = Tree::load(&[], &sets, &[]).map_err(|problems| problems.to_string())?;
        let root = Reader::root(&tree);
        let ema = root.table_if_given("ema", Ema::read);
        root.close(ema).map(|ema| ema.expect("a table")).map_err(|problems| problems.to_string())
    }

    // scripts/make_ema_goldens.py, timm 1.0.31
    const GOLDENS: [(&str, [f64; 6]); 4] = [
        (
            "decay=0.9",
            [1.75, 1.725000023841858, 1.752500057220459, 1.627250075340271, 1.7145251035690308, 1.7930725812911987],
        ),
        ("decay=0.9 update_after_step=2", [1.75, 1.5, 2.0, 1.850000023841858, 1.915000081062317, 1.97350013256073]),
        (
            "decay=0.9999 use_warmup=true",
            [1.75, 1.5925098657608032, 1.7884106636047363, 1.2771046161651611, 1.695328950881958, 1.9390263557434082],
        ),
        (
            "decay=0.6 use_warmup=true warmup_gamma=2.0 warmup_power=0.75 update_after_step=1",
            [1.75, 1.5, 1.8688939809799194, 1.0549447536468506, 1.781769037246704, 2.096850633621216],
        ),
    ];

    #[test]
    fn averages_are_those_of_timm() {
        for (keys, expected) in GOLDENS {
            let theta =
                |step: usize| Tensor::from_slice(&[0.0, 1.0].map(|own| ((step * step * 7 % 11) as f32) / 4.0 - own));
            let mut average = Average::new(&ema(keys).unwrap(), &theta(0));
            for (step, expected) in (1..).zip(expected) {
                average.update(&theta(step), step);
                let found = [0, 1].map(|column| average.theta.double_value(&[column]));
                assert!(
                    (found[0] - expected).abs() < 1e-6 && (found[0] - found[1] - 1.0).abs() < 1e-6,
                    "{keys}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_a_run_saves_is_read_again() {
        for (keys, _) in GOLDENS {
            let saved = ema(keys).unwrap();
            let table: toml::Table = toml::from_str(&toml::to_string(&saved).unwrap()).unwrap();
            let again: Vec<String> = table.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(ema(&again.join(" ")).unwrap(), saved);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (keys, expected) in [
            ("decay=1.0", "decay"),
            ("decay=-0.1", "decay"),
            ("use_warmup=true", "decay"),
            ("decay=0.9 warmup_power=0.75", "without use_warmup"),
            ("decay=0.9 min_decay=0.1", "min_decay"),
        ] {
            let error = ema(keys).unwrap_err();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
