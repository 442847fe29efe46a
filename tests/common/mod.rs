//! The things that the integration tests share: the binary, a folder of its own for each test, tiny experiments, error lines.
#![allow(dead_code)] // each test file uses a part of it

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod copies;
mod program;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

use bella::data::Sizes;
use bella::experiment::Experiment;
use bella::model::{Loaded, Model};
use bella::results::store::{Table, read};
use bella::schema::Tree;
use bella::subspace::Subspace;
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

pub use program::Bella;

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file of `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    repository("tests/fixtures").join(name)
}

/// A folder of networks that were made outside of the repository (`BELLA_FOLDERS`, scripts/make_random_folders.py), if there is one.
pub fn elsewhere(part: &str) -> Option<PathBuf> {
    std::env::var_os("BELLA_FOLDERS").map(|folder| PathBuf::from(folder).join(part))
}

/// Returns the names of the folders below a folder, in their order.
pub fn names_below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().into()).collect();
    names.sort();
    names
}

/// The device of the commands that tests run: the CPU, or what `BELLA_TEST_DEVICE` says.
pub fn device() -> String {
    std::env::var("BELLA_TEST_DEVICE").unwrap_or("cpu".into())
}

/// The library that stands for libtorch's CUDA part in the commands that tests run, as an environment variable.
/// `tests/simulated-gpu/run.sh tests` names one.
pub fn preload() -> Option<(&'static str, String)> {
    Some(("LD_PRELOAD", std::env::var("BELLA_TEST_PRELOAD").ok()?))
}

/// `bella` with arguments, run in the repository.
pub fn bella(arguments: &[&str]) -> Bella {
    let mut command = Bella::new(Path::new(env!("CARGO_MANIFEST_DIR")), arguments);
    command.envs(preload());
    command
}

/// A two-particle Bella-SVGD on 40 of the embedded digits: 2 epochs of 4 steps, milliseconds each.
pub fn tiny() -> String {
    format!(
        r#"name = "tiny"
seed = 3

[checkpoint]
path = {:?}
normalize = {{ mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }}

[head.checkpoint]

[data.digits]
subset = {{ train = 40, test = 30 }}
validation = 0.2

[subspace.low-rank]
rank = 2

[method.svgd]
particles = 2
gamma = 0.01

[optimizer.adamw]
lr = 2e-3

[train]
epochs = 2
batch_size = 8
"#,
        repository("assets/vit-digits.pt")
    )
}

/// A folder for one test, removed when it ends.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    /// With [`tiny`] as `tiny.toml`.
    pub fn with_tiny() -> Place {
        let place = Place::new();
        place.write("tiny.toml", tiny().as_bytes());
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Arguments of `command` on one thread of the [`device`] with results in this folder; each of `sets` becomes `--set`.
    pub fn arguments(&self, command: &str, sets: &[&str]) -> Vec<String> {
        let fixed = [command, "--device", &device(), "--threads", "1", "--workers", "1"];
        let mut arguments: Vec<String> = fixed.map(String::from).into();
        arguments.extend(["--out".to_string(), self.path("results").display().to_string()]);
        sets.iter().for_each(|set| arguments.extend(["--set".to_string(), set.to_string()]));
        arguments
    }

    /// `bella train` on `tiny.toml`.
    pub fn train(&self, sets: &[&str]) -> Bella {
        self.configured("train", sets)
    }

    /// A command on `tiny.toml`.
    pub fn configured(&self, command: &str, sets: &[&str]) -> Bella {
        let mut command = self.command(command, sets);
        command.arg("--config").arg(self.path("tiny.toml"));
        command
    }

    /// A command without a config.
    pub fn command(&self, command: &str, sets: &[&str]) -> Bella {
        let arguments = self.arguments(command, sets);
        bella(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Folders of all runs of the experiment `tiny`, sorted.
    pub fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path("results/runs/tiny")) else { return Vec::new() };
        let mut runs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        runs
    }

    /// The folder of the only run.
    pub fn run(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// Results of the experiment `tiny`.
    pub fn results(&self) -> Table {
        bella::results::store::read(&self.path("results/tiny.csv")).unwrap()
    }
}

/// Standard error as text.
pub fn messages(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output as text.
pub fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one error line of a command that failed with `code`; no panic and no C++ trace besides it.
#[track_caller]
pub fn error_line(mut command: Bella, code: i32) -> String {
    error_in(&command.output().unwrap(), code)
}

/// The one error line of what a command printed that failed with `code`, as in [`error_line`].
#[track_caller]
pub fn error_in(output: &Output, code: i32) -> String {
    let text = messages(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error:")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    for noise in ["panicked", "RUST_BACKTRACE", "frame #", "Exception raised from"] {
        assert!(!text.contains(noise), "{noise} in {text}");
    }
    assert_eq!(text.lines().last(), Some(errors[0]), "something follows the error: {text}");
    errors[0].strip_prefix("error: ").unwrap().to_string()
}

/// Fails unless `text` has all `parts`.
#[track_caller]
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// A cell of the row of a predictive.
#[track_caller]
pub fn cell<'a>(table: &'a Table, predictive: &str, column: &str) -> &'a str {
    let index = table.index("predictive").unwrap();
    let row =
        table.rows.iter().position(|row| row[index] == predictive).unwrap_or_else(|| panic!("no row {predictive}"));
    table.get(row, column).unwrap()
}

/// The model and the subspace of a config with ten classes, or those of its texts, on the CPU in `kind`.
pub fn model(text: &str, kind: Kind) -> (Model, Box<dyn Subspace>) {
    model_of(text, kind, 10)
}

/// The same with so many classes, where the data set does not name its own.
pub fn model_of(text: &str, kind: Kind, classes: usize) -> (Model, Box<dyn Subspace>) {
    tch::set_num_threads(1);
    let experiment = Experiment::read(&Tree::parse("x.toml", text).unwrap()).unwrap();
    let own = (experiment.data.key == "jsonl").then(|| experiment.data.dataset.classes().unwrap());
    let classes = own.unwrap_or_else(|| (0..classes).map(|class| class.to_string()).collect());
    let loaded = Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, Device::Cpu).unwrap();
    let spec = &experiment.training.as_ref().unwrap().subspace.spec;
    let subspace = spec.build(loaded.tower.network(), loaded.tower.base(), &loaded.head).unwrap();
    (loaded.into_model(Device::Cpu, kind).unwrap(), subspace)
}

/// The tensors of a safetensors file.
pub fn tensors(path: &Path) -> Vec<(String, Tensor)> {
    Tensor::read_safetensors(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// One tensor of a safetensors file.
pub fn tensor(path: &Path, name: &str) -> Tensor {
    let found = tensors(path).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{}: no {name}", path.display())).1
}

/// The bytes of one tensor of a safetensors file.
pub fn tensor_bytes(path: &Path, name: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    tensors.tensor(name).unwrap().data().to_vec()
}

/// A run of three particles that learn fast enough to differ. It is trained once in a process, and each test gets a copy of its own.
pub fn trained() -> Place {
    static FILES: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
        let place = Place::with_tiny();
        done(place.train(&["method.svgd.particles=3", "optimizer.adamw.lr=2e-2"]));
        files_below(&place.path(""))
    });
    let place = Place::new();
    for (name, bytes) in FILES.iter() {
        place.write(name.to_str().unwrap(), bytes);
    }
    place
}

/// The files below a folder by their paths in it, the oldest first.
fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut folders, mut found) = (vec![folder.to_path_buf()], vec![]);
    while let Some(next) = folders.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.metadata().unwrap().modified().unwrap(), path)),
            }
        }
    }
    found.sort();
    let named = |path: PathBuf| (path.strip_prefix(folder).unwrap().to_path_buf(), std::fs::read(&path).unwrap());
    found.into_iter().map(|(_, path)| named(path)).collect()
}

/// Standard output of a command that must succeed.
#[track_caller]
pub fn done(mut command: Bella) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    printed(&output)
}

pub fn with(mut command: Bella, arguments: &[&str]) -> Bella {
    command.args(arguments);
    command
}

#[track_caller]
pub fn number(table: &Table, row: usize, column: &str) -> f64 {
    let cell = table.get(row, column).unwrap_or_else(|| panic!("no column {column}"));
    cell.parse().unwrap_or_else(|_| panic!("{column} = `{cell}`"))
}

pub fn cells<'a>(table: &'a Table, column: &str) -> Vec<&'a str> {
    (0..table.rows.len()).map(|row| table.get(row, column).unwrap()).collect()
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// CSV on standard output as a table.
pub fn table(place: &Place, csv: &str) -> Table {
    read(&place.write("printed.csv", csv.as_bytes())).unwrap()
}

/// An image of the network's size, so that nothing resizes it.
pub fn image(place: &Place, name: &str, seed: u32) -> PathBuf {
    let path = place.write(name, &[]);
    let pixel = |x: u32, y: u32| ::image::Rgb([((x * 37 + y * 91 + seed * 53) % 256) as u8; 3]);
    ::image::RgbImage::from_fn(8, 8, pixel).save(&path).unwrap();
    path
}

/// Two images in each of the first two classes.
pub fn folder(place: &Place, name: &str) -> PathBuf {
    (0..4).for_each(|i| drop(image(place, &format!("{name}/{}/{i}.png", i / 2), i)));
    place.path(name)
}

/// Trains on `tiny.toml` with a pause after two epochs. The posterior must be that of an uninterrupted run.
#[track_caller]
pub fn train_with_a_pause(place: &Place) {
    done(with(place.train(&[]), &["--until-epoch", "2"]));
    done(with(place.train(&[]), &["--resume"]));
    let whole = Place::new();
    whole.write("tiny.toml", &std::fs::read(place.path("tiny.toml")).unwrap());
    done(whole.train(&[]));
    let posterior = |of: &Place| std::fs::read(of.run().join("posterior.safetensors")).unwrap();
    assert_eq!(posterior(place), posterior(&whole), "a resumed run ends where an uninterrupted one does");
}

/// The tensors that a package computed on a fixture.
pub struct Reference(Vec<(String, Tensor)>);

impl Reference {
    /// Reads `reference.safetensors` of a folder.
    pub fn of(folder: &Path) -> Reference {
        Reference::at(&folder.join("reference.safetensors"))
    }

    /// Reads a file.
    pub fn at(file: &Path) -> Reference {
        Reference(Tensor::read_safetensors(file).unwrap())
    }

    pub fn get(&self, name: &str) -> Tensor {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("the reference has no {name}")).1.shallow_clone()
    }
}

#[track_caller]
pub fn near(found: &Tensor, expected: &Tensor, what: &str) {
    within(1e-5, found, expected, what);
}

/// Checks that the norm of the difference is at most so large a share of that of what is expected.
#[track_caller]
pub fn within(share: f64, found: &Tensor, expected: &Tensor, what: &str) {
    let difference = ((found - expected).norm() / expected.norm()).double_value(&[]);
    println!("{what} differs by {difference:.1e}");
    assert!(difference <= share, "{what}: relative difference {difference:.1e}");
}

/// Checks that no entry differs by 1e-5 of the largest one.
#[track_caller]
pub fn alike(found: &Tensor, expected: &Tensor, what: &str) {
    alike_within(found, expected, 1e-5, what);
}

/// Checks that no entry differs by this share of the largest one.
#[track_caller]
pub fn alike_within(found: &Tensor, expected: &Tensor, share: f64, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let largest = |t: &Tensor| t.to_kind(Kind::Double).abs().max().double_value(&[]);
    let difference = largest(&(found - expected)) / largest(expected).max(1e-12);
    println!("{what} differs by {difference:.1e}");
    assert!(difference < share, "{what}: {difference:.2e}");
}

/// Writes a small set of the data set `key` into a folder.
pub fn small_set(place: &Place, folder: &str, key: &str, sizes: &Sizes) {
    let settings = toml::Table::from_iter([("root".to_string(), place.path(folder).to_str().unwrap().into())]);
    bella::data::entry(key).unwrap().small(&settings).unwrap().write(sizes).unwrap();
}

/// Writes a VQA set of 16 training and 7 test questions, and returns a config for a smallest network that sees on it.
pub fn questions(place: &Place, folder: &str) -> String {
    let asked = match folder.starts_with("paligemma") {
        true => "prompt = \"<image>answer en {question}\"\nresize = \"stretch\"",
        false => "",
    };
    let sizes = Sizes { classes: 3, present: 3, train: 16, val: 0, test: 7, side: 20, corruptions: 0 };
    small_set(place, "vqa", "vqa-v2", &sizes);
    format!(
        r#"name = "tiny"
seed = 3
[checkpoint]
path = {:?}
max_tokens = 96
[head.answers]
tokens = 4
[data.vqa-v2]
root = {:?}
{asked}
[subspace.low-rank]
rank = 2
targets = ["attn.q", "attn.v", "lm_head"]
[method.svgd]
particles = 2
gamma = 0.01
[optimizer.adamw]
lr = 2e-2
[train]
epochs = 4
batch_size = 8
"#,
        fixture(folder),
        place.path("vqa")
    )
}

/// max |a − b| ≤ bound · max |b|, and b is not zero.
#[track_caller]
pub fn relatively_near(a: &Tensor, b: &Tensor, bound: f64, what: &str) {
    assert_eq!(a.size(), b.size(), "{what}");
    let (a, b) = (a.to_kind(Kind::Double), b.to_kind(Kind::Double));
    let largest = b.abs().max().double_value(&[]);
    let difference = (&a - &b).abs().max().double_value(&[]) / largest;
    println!("{what}: relative difference {difference:.1e}");
    assert!(largest > 0.0 && difference <= bound, "{what}: relative difference {difference:e}");
}
