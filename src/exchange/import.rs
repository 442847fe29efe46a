//! A run of particles that were trained elsewhere: adapters, or fine-tuned copies of the checkpoint.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use tch::Tensor;

use super::classifying;
use super::compressed::{Compressed, compress};
use super::expected::expect_features;
use super::found::{expanded, is_adapter};
use super::incoming::{self, Adapter, Base};
use super::rows::{self, Tuned};
use super::rows::{expect_head, expect_new_layer, full_row, low_rank_config, low_rank_rows};
use super::texts::expect_texts;
use crate::base::small::Usage;
use crate::data::labels::Labels;
use crate::experiment::{Experiment, forget, over};
use crate::machine::device;
use crate::model::Loaded;
use crate::model::folder::Preprocessing;
use crate::model::head::Training;
use crate::model::network::Network;
use crate::posterior::Posterior;
use crate::results::rebuild::clear;
use crate::run::{Record, RunFolder};
use crate::schema::Tree;
use crate::session::{Session, Settings};

/// The particles to import.
pub struct Import<'a> {
    /// Folders of adapters, folders of such folders, or folders of fine-tuned models.
    pub folders: &'a [PathBuf],
    /// The rank to which fine-tuned models are compressed.
    pub rank: Option<i64>,
    /// Whether a run that exists is written again.
    pub force: bool,
}

/// The models that were read.
enum Particles {
    Adapters(Vec<Adapter>),
    Models(Vec<Tuned>),
}

impl Import<'_> {
    /// Makes a run of the particles, with the name, the seed, the checkpoint, the head and the data of a config.
    ///
    /// # Errors
    /// Fails if the config or a folder cannot be read, if the particles do not fit the checkpoint, or if a run of these
    /// files exists with other values.
    pub fn run(&self, mut tree: Tree, settings: Settings) -> Result<RunFolder> {
        for table in ["subspace", "method", "optimizer"] {
            forget(&mut tree.root, &[table]);
        }
        let mut plain = without_training(&tree)?;
        let device = settings.device.open()?;
        let labels = Labels::of(&*plain.data.dataset)?;
        let mut loaded = Loaded::open(&plain.checkpoint, &*plain.head.spec, &labels.classes, device)?;
        ensure!(
            !plain.checkpoint.kind.runs_own_code(),
            "checkpoint.kind = \"module\": adapters and models are imported for networks that bella computes itself"
        );
        let folders = expanded(self.folders)?;
        if classifying::reads_pooled(&folders, &*loaded.tower, &plain.checkpoint.path, &tree)? {
            tree = over(Tree::parse("bella import", "checkpoint.features = \"pooled\"\n")?, tree);
            plain = without_training(&tree)?;
            // One network at a time is in memory.
            drop(loaded);
            loaded = Loaded::open(&plain.checkpoint, &*plain.head.spec, &labels.classes, device)?;
        }
        let (sha256, tower) = (plain.checkpoint.sha256()?, &*loaded.tower);
        let takes_head = matches!(loaded.head.training, Training::Always | Training::WithBackbone);
        let base = Base { path: &plain.checkpoint.path, sha256, tower, classes: &labels.classes, takes_head };
        if loaded.head.texts.is_some() {
            expect_texts(&folders, &plain.checkpoint)?;
        }
        let read = read(&folders, &base, self.rank)?;
        let part = read.config(loaded.tower.network(), tree.has("train"))?;
        drop(loaded);
        let experiment = Experiment::read(&over(Tree::parse("bella import", &part)?, tree))?;
        let settings = settings.after_training(&experiment, device);
        let session = Session::open(&experiment, settings, device, labels)?;
        compare_preparation(&folders, &experiment);
        let theta = read.rows(&session, &folders)?;
        store(&experiment, &session, theta, self.force)
    }
}

/// Warns where copies ask for another preparation of images than the run's. What the checkpoint's own folder asks for is said anyway.
fn compare_preparation(folders: &[PathBuf], experiment: &Experiment) {
    let (spec, resize) = (&experiment.checkpoint, experiment.data.dataset.resize());
    for path in folders.iter().filter(|path| !is_adapter(path)) {
        let asked = Preprocessing::of(path);
        if asked != spec.usual {
            let found = spec.deviations_from(&asked, &path.display().to_string(), resize);
            found.iter().for_each(|deviation| tracing::warn!("{deviation}"));
        }
    }
}

/// Reads the experiment of a config as if it had no training.
fn without_training(tree: &Tree) -> Result<Experiment> {
    let mut plain = tree.clone();
    forget(&mut plain.root, &["train"]);
    Ok(Experiment::read(&plain)?)
}

impl Particles {
    /// Returns the tables that make an experiment of these particles, in TOML. `[train]`, which means nothing to them, is
    /// among them unless the user's config has it.
    fn config(&self, network: &dyn Network, has_train: bool) -> Result<String> {
        let (subspace, sources): (String, Vec<&str>) = match self {
            Particles::Adapters(all) => {
                (low_rank_config(all, network)?, all.iter().map(|one| one.sha256.as_str()).collect())
            }
            Particles::Models(all) => ("[subspace.full]\n".into(), all.iter().map(|one| one.sha256.as_str()).collect()),
        };
        let train = if has_train { "" } else { "[train]\nepochs = 1\nbatch_size = 64\n" };
        Ok(format!(
            "{subspace}[method.imported]\nparticles = {}\nsources = {sources:?}\n[optimizer.none]\n{train}",
            sources.len()
        ))
    }

    /// Returns the particles, read from `folders`, as rows `[n, P]` of the session's subspace.
    fn rows(&self, session: &Session, folders: &[PathBuf]) -> Result<Tensor> {
        let subspace = session.subspace()?;
        folders.iter().try_for_each(|folder| expect_features(folder, session.model.head.normalised))?;
        match self {
            Particles::Adapters(adapters) => {
                for (one, folder) in adapters.iter().zip(folders) {
                    let head = one.head.as_ref().map(<[Tensor; 2]>::each_ref);
                    let fits = expect_head(session, head).and_then(|()| expect_new_layer(session, one));
                    fits.with_context(|| folder.display().to_string())?;
                }
                low_rank_rows(adapters, subspace)
            }
            Particles::Models(models) => {
                let trains_head = subspace.layout().outputs_of_head().is_some();
                for (one, folder) in models.iter().zip(folders).filter(|_| !trains_head) {
                    let head = one.head.as_ref().map(|head| [&head.weight, &head.bias]);
                    expect_head(session, head).with_context(|| folder.display().to_string())?;
                }
                let rows = models.iter().map(|one| full_row(one, subspace.layout())).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::stack(&rows, 0))
            }
        }
    }
}

/// Writes the run.
fn store(experiment: &Experiment, session: &Session, theta: Tensor, force: bool) -> Result<RunFolder> {
    let run = RunFolder::of(&session.settings.out, experiment)?;
    if run.is_finished() && !force {
        found(&run, experiment, session, &theta)?;
        return Ok(run);
    }
    crate::base::files::create_folder(&session.settings.out)?;
    run.create(experiment)?;
    let _lock = run.lock()?;
    clear(&session.settings.out, &experiment.name, &run)?;
    record(session, experiment, &theta).write(&run)?;
    let (particles, parameters) = theta.size2()?;
    session.stored(Posterior::Points { theta }, experiment)?.write(&run.posterior(), &run.id())?;
    tracing::info!("{} of {parameters} parameters: {}", crate::base::small::particles(particles), run.path().display());
    Ok(run)
}

/// Checks that a run that exists holds these particles, so that importing them again changes nothing.
fn found(run: &RunFolder, experiment: &Experiment, session: &Session, theta: &Tensor) -> Result<()> {
    let shown = run.path().display();
    let stored = session.stored_by(run, experiment)?;
    let known = stored.posterior.theta();
    ensure!(
        known.size() == theta.size() && known.equal(&theta.to_kind(known.kind()).to_device(known.device())),
        "{shown}: a run of these files exists, and its particles have other values: write it again with --force"
    );
    tracing::info!("these particles are a run already: {shown}");
    Ok(())
}

/// Returns the record of a run that nothing was spent on.
fn record(session: &Session, experiment: &Experiment, theta: &Tensor) -> Record {
    let (particles, parameters) = (theta.size()[0], theta.size()[1]);
    Record {
        run: String::new(),
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: device::LIBTORCH_VERSION.into(),
        checkpoint_commit: experiment.checkpoint.path.commit().map(str::to_string),
        data_commit: experiment.data.commit(),
        data_contents: None,
        device: device::name(session.device),
        processes: 1,
        threads: tch::get_num_threads(),
        precision: device::precision_name(session.model.kind).into(),
        particles,
        parameters_per_particle: parameters,
        trainable_parameters: particles * parameters,
        train_samples: 0,
        validation_samples: 0,
        epochs: 0,
        steps: 0,
        wall_seconds: 0.0,
        processor_seconds: None,
        images_per_second: 0.0,
        peak_memory_bytes: None,
        planned_memory_bytes: None,
        selected_epoch: 0,
        self_check_difference: session.self_check_difference,
        overlap: Vec::new(),
    }
}

/// Reads all folders, which must be of one kind.
fn read(folders: &[PathBuf], base: &Base, rank: Option<i64>) -> Result<Particles> {
    let (adapters, models): (Vec<&PathBuf>, Vec<&PathBuf>) = folders.iter().partition(|path| is_adapter(path));
    if let (Some(adapter), Some(model)) = (adapters.first(), models.first()) {
        bail!(
            "{} is an adapter, {} is none: import adapters and whole models in separate runs",
            adapter.display(),
            model.display()
        );
    }
    if models.is_empty() {
        ensure!(rank.is_none(), Usage("--rank: adapters keep their own ranks; leave it out".into()));
        return Ok(Particles::Adapters(
            adapters.into_iter().map(|path| incoming::read(path, base)).collect::<Result<_>>()?,
        ));
    }
    let tuned = models.iter().map(|path| rows::read_tuned(path, base)).collect::<Result<Vec<_>>>()?;
    let Some(rank) = rank else { return Ok(Particles::Models(tuned)) };
    let compressed = |(path, tuned): (&&PathBuf, Tuned)| {
        let shown = path.display();
        let Compressed { adapter, lost, elsewhere } = compress(tuned, base, rank).with_context(|| shown.to_string())?;
        tracing::info!(
            "{shown}: rank {rank} leaves out {:.2} % of the squared difference to the checkpoint; {:.2} % is in parameters \
             that are no linear layers",
            100.0 * lost,
            100.0 * elsewhere
        );
        Ok(adapter)
    };
    Ok(Particles::Adapters(models.iter().zip(tuned).map(compressed).collect::<Result<_>>()?))
}
