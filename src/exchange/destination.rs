//! The place to which models of a run leave, the format that they leave in, and the choice of the models.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use tch::Tensor;

use crate::base::files::write_atomic;
use crate::base::small::Usage;
use crate::exchange::expected::Expected;
use crate::exchange::folder::CARD;
use crate::exchange::format::{Apart, Format, Leaves, Modules, Together};
use crate::exchange::formats::keys;
use crate::exchange::modules::Target;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::python::Places;
use crate::exchange::whole::{Form, Whole};
use crate::exchange::{Written, check, write_folder};
use crate::experiment::Overrides;
use crate::machine::Precision;
use crate::model::recognition::Package;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::session::{Computing, Opened};
use crate::subspace::updates::mean;
use crate::subspace::{Combined, Space, Subspace};

/// The format and the folder of an export.
pub struct Destination {
    pub to: &'static Format,
    /// The package that loads the models; `None` for the checkpoint's own.
    pub package: Option<Package>,
    /// The form of one file for all models.
    pub form: Form,
    pub output: PathBuf,
    /// Whether an existing folder is replaced.
    pub force: bool,
    /// The model card but for the lines that load the model, if there is to be one.
    pub card: Option<String>,
}

impl Destination {
    /// Opens a run whose models leave. Whoever loads them computes in f32, and so do the expected logits.
    ///
    /// # Errors
    /// Fails if the folder cannot be written, or as [`Opened::run`] does.
    pub fn open(&self, run: Option<&str>, overrides: &Overrides, computing: Computing) -> Result<Opened> {
        check(&self.output, self.force)?;
        Opened::run(run, &Overrides { precision: Some(Precision::F32), ..overrides.clone() }, computing)
    }

    /// Writes models, given as rows `[k, P]` of a subspace, and returns the Python that loads them.
    ///
    /// # Errors
    /// Fails if the models cannot leave in this format, or if the folder cannot be written.
    pub fn write(
        &self,
        opened: &Opened,
        subspace: &dyn Subspace,
        theta: &Tensor,
        names: Vec<String>,
    ) -> Result<String> {
        let (experiment, session) = (&opened.experiment, &opened.session);
        check_head(opened)?;
        // Those of the components are the models' where each component is one.
        let weights = opened.stored()?.posterior.weights().filter(|weights| weights.len() == names.len());
        let weights = weights.map(<[f64]>::to_vec);
        // Whoever loads them has the checkpoint, and not what was left of it.
        let relative = subspace.relative(theta)?;
        let (subspace, theta) = relative.as_ref().map_or((subspace, theta), |own| (&*own.subspace, &own.theta));
        let outgoing = Outgoing { experiment, session, subspace, theta, weights, names };
        if experiment.checkpoint.kind.runs_own_code() {
            let Some(modules) = self.to.leaves.modules().filter(|_| self.package.is_none()) else {
                bail!(
                    "{}: a module (checkpoint.kind = \"module\") leaves by --to {} alone, as its own archive: the other ways need \
                     the names or the layers of a network that bella computes itself",
                    opened.run.id(),
                    keys(|leaves| leaves.modules().is_some()).join(" or --to ")
                )
            };
            return self.as_modules(modules, &outgoing);
        }
        match &self.to.leaves {
            Leaves::Together(format) => self.together(format, &outgoing),
            Leaves::Apart(format) => self.apart(format, &outgoing),
        }
    }

    /// Writes a folder a model.
    fn apart(&self, format: &Apart, outgoing: &Outgoing) -> Result<String> {
        let session = outgoing.session;
        let target = Target::new(self.package, outgoing.checkpoint(), session.naming, &session.names)?;
        target.expect_size(outgoing)?;
        (format.check)(outgoing, &target)?;
        let python = self.python(outgoing, |places| (format.lines)(outgoing, &target, places))?;
        let expected = outgoing.expected()?;
        let write = |model: usize, folder: &Path| (format.write)(outgoing, &target, model, folder);
        let written = self.models(outgoing, &expected, &python, write)?;
        self.report(written, &format!("{} for {}: {}", self.to.key, target.package, outgoing.names.join(", ")));
        Ok(python.here)
    }

    /// Writes a module again for every model.
    fn as_modules(&self, modules: &Modules, outgoing: &Outgoing) -> Result<String> {
        let expected = outgoing.expected()?;
        let python = self.python(outgoing, |places| (modules.lines)(outgoing, &expected, &places.folder))?;
        let write = |model: usize, folder: &Path| (modules.write)(outgoing, model, folder);
        let written = self.models(outgoing, &expected, &python, write)?;
        self.report(written, &format!("modules: {}", outgoing.names.join(", ")));
        Ok(python.here)
    }

    /// Reports what was written, or that it was there already.
    fn report(&self, written: Written, what: &str) {
        let output = self.output.display();
        match written {
            Written::New => tracing::info!("{output}: {what}"),
            Written::Already => tracing::info!("{output}: holds this export already: {what}"),
        }
    }

    /// Writes every model by `write` into its folder, with what is expected of it.
    fn models(
        &self,
        outgoing: &Outgoing,
        expected: &Expected,
        python: &Python,
        write: impl Fn(usize, &Path) -> Result<()>,
    ) -> Result<Written> {
        write_folder(&self.output, self.force, |folder| {
            for model in 0..outgoing.count() {
                let own = outgoing.folder(folder, model);
                if own != folder {
                    std::fs::create_dir(&own)?;
                }
                write(model, &own)?;
                expected.write(model, &own)?;
            }
            self.write_card(python, folder)
        })
    }

    /// Writes all models as one file.
    fn together(&self, format: &Together, outgoing: &Outgoing) -> Result<String> {
        let whole = Whole::of(outgoing, self.form)?;
        let lines = |places: &Places| Ok((format.lines)(&places.folder.display().to_string(), whole.inputs()));
        let (expected, python) = (whole.expected()?, self.python(outgoing, lines)?);
        let written = write_folder(&self.output, self.force, |folder| {
            whole.write(format, &expected, folder)?;
            self.write_card(&python, folder)
        })?;
        self.report(written, &format!("{} in one file", outgoing.names.join(", ")));
        Ok(python.here)
    }

    /// Returns the lines that `lines` makes for places, here and in a card.
    fn python(&self, outgoing: &Outgoing, lines: impl Fn(&Places) -> Result<String>) -> Result<Python> {
        let here = lines(&Places::here(outgoing, &self.output))?;
        Ok(Python { here, in_card: lines(&Places::of_readers(outgoing))? })
    }

    /// Writes the model card, if there is to be one.
    fn write_card(&self, python: &Python, folder: &Path) -> Result<()> {
        let Some(card) = &self.card else { return Ok(()) };
        let text = format!("{card}{}", loading(&python.in_card));
        write_atomic(&folder.join(CARD), |file| Ok(file.write_all(text.as_bytes())?))
    }
}

/// The Python that loads an export.
struct Python {
    /// With the paths of this machine.
    here: String,
    /// For whoever reads the card beside the export.
    in_card: String,
}

/// Returns the last part of a card, with the lines that load the model.
fn loading(python: &str) -> String {
    format!("\n## Loading\n\n```python\n{python}```\n")
}

/// The choice among the models of a run.
#[derive(Clone, Copy)]
pub enum Models {
    All,
    /// The average of all particles' updates.
    Soup,
    /// One model, counted from 0.
    One(u32),
}

/// The models that leave.
pub struct Selection {
    pub models: Models,
    /// The number of draws from each Gaussian; 0 for the means.
    pub draws: Option<u32>,
}

impl Selection {
    /// Says which part of a run leaves, if it is not all of it.
    pub fn part(&self) -> Option<String> {
        match (self.models, self.draws) {
            (Models::One(draw), Some(1..)) => Some(format!("draw {draw} from the Gaussians")),
            (Models::One(particle), _) => Some(format!("particle {particle}")),
            (Models::Soup, Some(draws @ 1..)) => Some(format!("the average of {draws} draws from each Gaussian")),
            (Models::Soup, _) => Some("the average of all particles' updates".to_string()),
            (Models::All, Some(0)) => Some("the mean of each Gaussian".to_string()),
            (Models::All, Some(draws)) => Some(format!("{draws} draws from each Gaussian")),
            (Models::All, None) => None,
        }
    }

    /// Writes the models of an opened run, and returns the Python that loads them.
    ///
    /// # Errors
    /// Fails if the run does not have the models, or as [`Destination::write`] does.
    pub fn write(&self, destination: &Destination, opened: &Opened) -> Result<String> {
        let theta = self.theta(opened)?;
        let name =
            |number: usize| format!("{}-{number}", if self.draws.unwrap_or(0) > 0 { "draw" } else { "particle" });
        let count = theta.size()[0] as usize;
        let subspace = opened.session.subspace()?;
        match self.models {
            Models::Soup => {
                ensure!(
                    count > 1,
                    Usage(format!(
                        "{}: this run has one particle: there is nothing to average: leave --soup out",
                        opened.run.id()
                    ))
                );
                let weights = opened.stored()?.posterior.weights();
                let Combined { subspace, theta } = mean(subspace, &theta, weights, Space::Weights)?;
                destination.write(opened, &*subspace, &theta, vec!["soup".to_string()])
            }
            Models::One(particle) => {
                let rule = format!("--particle {particle}: the run has models 0 to {}", count - 1);
                ensure!((particle as usize) < count, Usage(rule));
                let one = theta.narrow(0, i64::from(particle), 1);
                destination.write(opened, subspace, &one, vec![name(particle as usize)])
            }
            Models::All => destination.write(opened, subspace, &theta, (0..count).map(name).collect()),
        }
    }

    /// Returns the rows that are exported.
    fn theta(&self, opened: &Opened) -> Result<Tensor> {
        let posterior = &opened.stored()?.posterior;
        let run = opened.run.id();
        match (self.draws, posterior.is_random()) {
            (None, true) if matches!(opened.experiment.predictive(), Predictive::Linearised(..)) => {
                bail!(Usage(format!(
                    "{run}: its predictions are those of a linearised model, which no weights have: --draws 0 exports the particles \
                 that it was fitted around, --draws N so many draws of weights around each"
                )))
            }
            (None | Some(1..), true) if matches!(posterior, Posterior::Dropout { .. }) => bail!(Usage(format!(
                "{run}: its members drop inputs at random, which no weights do: --draws 0 exports the particles without dropout"
            ))),
            (None, true) => bail!(Usage(format!(
                "{run}: its particles are Gaussians, and a model has one value per weight: --draws 0 exports their means, \
                 --draws N so many draws from each"
            ))),
            (Some(draws), true) if draws > 0 => {
                let draws = Draws::new(posterior, draws as usize, opened.experiment.seed)?;
                draws.rows(0..draws.count())
            }
            (Some(draws), false) if draws > 0 => {
                bail!(Usage(format!("{run}: its particles are points, without draws: leave --draws out")))
            }
            _ => Ok(posterior.theta().shallow_clone()),
        }
    }
}

/// Checks that other programs have a head like that of a run.
fn check_head(opened: &Opened) -> Result<()> {
    let head = &opened.session.model.head;
    ensure!(
        head.gaussian.is_none(),
        "{}: its head predicts a number ([head.gaussian]), which no format of exports has; its weights are in {}",
        opened.run.id(),
        opened.run.posterior().display()
    );
    ensure!(
        head.random.is_none(),
        "{}: a head of random features ([head.random-features]) does not leave bella: other programs have none",
        opened.run.id()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_leaves_is_named_as_its_file_is() {
        let part = |models, draws| Selection { models, draws }.part();
        assert_eq!(part(Models::All, None), None);
        assert_eq!(part(Models::One(2), None).as_deref(), Some("particle 2"));
        assert_eq!(part(Models::One(2), Some(0)).as_deref(), Some("particle 2"));
        assert_eq!(part(Models::One(2), Some(5)).as_deref(), Some("draw 2 from the Gaussians"));
        assert_eq!(part(Models::Soup, Some(5)).as_deref(), Some("the average of 5 draws from each Gaussian"));
    }
}
