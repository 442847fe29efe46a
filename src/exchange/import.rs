//! A run of particles that were trained elsewhere: adapters, or fine-tuned copies of the checkpoint.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tch::Tensor;

use super::formats::peft::{CONFIG as ADAPTER_CONFIG, WEIGHTS};
use super::incoming::{self, Adapter, Base};
use super::rows::{self, Compressed, Tuned};
use super::rows::{expect_head, full_row, low_rank_config, low_rank_rows};
use crate::base::tensor_file::State;
use crate::data::labels::Labels;
use crate::experiment::{Experiment, forget, over};
use crate::machine::device;
use crate::model::Loaded;
use crate::model::folder::{Place, config_file};
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
        let without_training = |tree: &Tree| {
            let mut plain = tree.clone();
            forget(&mut plain.root, &["train"]);
            Experiment::read(&plain)
        };
        let mut plain = without_training(&tree)?;
        let device = settings.device.open()?;
        let labels = Labels::of(&*plain.data.dataset)?;
        let mut loaded = Loaded::open(&plain.checkpoint, &*plain.head.spec, &labels.classes, device)?;
        ensure!(
            !plain.checkpoint.kind.runs_own_code(),
            "checkpoint.kind = \"module\": adapters and models are imported for networks that bella computes itself"
        );
        let folders = expanded(self.folders)?;
        if let Some(layer) =
            loaded.tower.classifies_by().filter(|layer| folders.iter().any(|one| has_layer(one, layer)))
        {
            tracing::info!(
                "they hold {layer}, so that features are read as by the class for classification: checkpoint.features = \"pooled\""
            );
            tree = over(Tree::parse("bella import", "checkpoint.features = \"pooled\"\n")?, tree);
            plain = without_training(&tree)?;
            loaded = Loaded::open(&plain.checkpoint, &*plain.head.spec, &labels.classes, device)?;
        }
        let base = Base { path: &plain.checkpoint.path, sha256: plain.checkpoint.sha256()?, tower: &*loaded.tower };
        let read = read(&folders, &base, self.rank)?;
        let part = read.config(loaded.tower.network(), tree.has("train"))?;
        let experiment = Experiment::read(&over(Tree::parse("bella import", &part)?, tree))?;
        let settings = settings.after_training(&experiment, device);
        let session = Session::open(&experiment, settings, device, labels)?;
        let theta = read.rows(&session)?;
        store(&experiment, &session, theta, self.force)
    }
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

    /// Returns the particles as rows `[n, P]` of the session's subspace.
    fn rows(&self, session: &Session) -> Result<Tensor> {
        let subspace = session.subspace()?;
        match self {
            Particles::Adapters(adapters) => {
                adapters.iter().try_for_each(|one| expect_head(session, one.head.as_ref()))?;
                low_rank_rows(adapters, subspace)
            }
            Particles::Models(models) => {
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

/// Returns whether an adapter or a model holds the weight of a layer. What cannot be read is reported later.
fn has_layer(folder: &Path, layer: &str) -> bool {
    let names = match is_adapter(folder) {
        true => State::read(&folder.join(WEIGHTS)).map(|state| state.names()),
        false => Place::of(folder)
            .and_then(|place| place.unread(true))
            .map(|all| all.into_iter().map(|(name, _)| name).collect()),
    };
    let weight = format!("{layer}.weight");
    names.is_ok_and(|names: Vec<String>| names.iter().any(|name| incoming::inner(name) == weight))
}

fn is_adapter(path: &Path) -> bool {
    path.join(ADAPTER_CONFIG).exists()
}

/// Returns whether a folder holds the weights of an adapter or a model.
fn has_weights(path: &Path) -> bool {
    ["adapter_model.safetensors", "adapter_model.bin", "model.safetensors", "model.safetensors.index.json"]
        .iter()
        .any(|name| path.join(name).exists())
}

/// Returns whether a folder holds an adapter or a whole model.
fn is_particle(path: &Path) -> bool {
    is_adapter(path) || config_file(path).is_some()
}

/// Refuses a TorchScript archive or an ONNX graph, a folder with one, any other file, and a folder that is not there.
fn refuse_programs(path: &Path) -> Result<()> {
    let is_program =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|end| end == "pt" || end == "onnx");
    let inside = || std::fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()).find(is_program);
    if let Some(program) = Some(path.to_path_buf()).filter(is_program).or_else(inside) {
        bail!(
            "{}: is a program with merged weights, whose particles do not come in: import the folders that bella export --to peft or \
             --to weights writes of a publisher's folder, or open the archive itself as checkpoint.path",
            program.display()
        );
    }
    ensure!(!path.is_file(), "{}: is a file: name the folder that holds it", path.display());
    ensure!(path.is_dir(), "{}: no such folder", path.display());
    Ok(())
}

/// Returns the given folders, with the folders of adapters or models in them in the order of their numbers and names.
fn expanded(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in given {
        match path.is_dir() && is_particle(path) {
            true => all.push(path.clone()),
            false => all.extend(particles_in(path)?),
        }
    }
    let twice = all.iter().enumerate().find(|(at, path)| all[..*at].contains(path));
    ensure!(
        twice.is_none(),
        "{}: is given twice",
        twice.map_or_else(String::new, |(_, path)| path.display().to_string())
    );
    Ok(all)
}

/// Returns the folders of adapters or models in a folder, in the order of their numbers and names.
fn particles_in(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        refuse_programs(path)?;
    }
    let inner = std::fs::read_dir(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let (mut inner, others): (Vec<PathBuf>, Vec<PathBuf>) =
        inner.flatten().map(|entry| entry.path()).partition(|path| is_particle(path));
    if let Some(lacking) = others.iter().find(|path| has_weights(path)) {
        bail!(
            "{}: holds weights, but neither {ADAPTER_CONFIG} nor config.json: copy the whole folder there, or move it elsewhere",
            lacking.display()
        );
    }
    if inner.is_empty() {
        refuse_programs(path)?;
        bail!(
            "{}: holds neither an adapter ({ADAPTER_CONFIG}) nor a model (model.safetensors), nor folders of these",
            path.display()
        );
    }
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let digits: String = name.chars().rev().take_while(char::is_ascii_digit).collect();
        let number = digits.chars().rev().collect::<String>().parse::<u64>().unwrap_or(0);
        (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string(), number)
    };
    inner.sort_by_key(number);
    Ok(inner)
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
        ensure!(rank.is_none(), "--rank: adapters keep their own ranks; leave it out");
        return Ok(Particles::Adapters(
            adapters.into_iter().map(|path| incoming::read(path, base)).collect::<Result<_>>()?,
        ));
    }
    let tuned = models.iter().map(|path| rows::read_tuned(path, base)).collect::<Result<Vec<_>>>()?;
    let Some(rank) = rank else { return Ok(Particles::Models(tuned)) };
    let compress = |(path, tuned): (&&PathBuf, Tuned)| {
        let shown = path.display();
        let Compressed { adapter, lost, elsewhere } =
            rows::compress(tuned, base, rank).with_context(|| shown.to_string())?;
        tracing::info!(
            "{shown}: rank {rank} leaves out {:.2} % of the squared difference to the checkpoint; {:.2} % is in parameters \
             that are no linear layers",
            100.0 * lost,
            100.0 * elsewhere
        );
        Ok(adapter)
    };
    Ok(Particles::Adapters(models.iter().zip(tuned).map(compress).collect::<Result<_>>()?))
}
