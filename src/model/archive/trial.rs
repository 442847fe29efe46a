//! The trial of an archive that is not known: libtorch loads it, and runs its forward, first in a process of its own with limits
//! of time and memory. Code that is known to only compute can still divide integers by zero, which ends the process, or run
//! for ever. What came through is remembered by the hash of the archive in the user's cache folder.
//!
//! The process is this program again, so there is a trial only where this program runs [`crate::cli::run`] on its own command
//! line, or where [`child::start_by`] names another program that does; and only on Linux, whose limits it needs.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tch::{Device, IValue, Tensor};

use super::clean;
use crate::base::files::{create_folder, write_atomic};
use crate::machine::memory_file::MemoryFile;
use crate::machine::{child, memory};

/// The environment variable that makes a process try the archive that is its standard input. It holds the bytes that the
/// process may take, the number of its threads and the method.
const ASKED_BY: &str = "BELLA_TRIES_ARCHIVE";

/// The environment variable with the seconds that a trial may take.
const SECONDS: &str = "BELLA_TRIAL_SECONDS";

/// The seconds that a trial may take where the environment says nothing.
const USUAL_SECONDS: u64 = 60;

/// The version in the names of the cache's files. It changes whenever trials find more.
const VERSION: u32 = 1;

/// The memory that a trial may take beside a multiple of the archive's size, if the machine has it.
const USUAL_BYTES: u64 = 8 << 30;
const LEAST_BYTES: u64 = 1 << 30;

/// The exit codes of a trial that ended by itself: an error of libtorch, which this process will see, too, and no memory.
const FAILED: i32 = 3;
const NO_MEMORY: i32 = 4;

/// The largest number of bytes that are read of what a trial says.
const SAID: u64 = 1 << 16;

/// What is tried of an archive.
pub struct Call<'a> {
    /// The method that is called; `None` if the archive is only loaded.
    pub method: Option<&'a str>,
    pub inputs: &'a [IValue],
}

impl Call<'_> {
    /// Returns what calls have in common that are tried once: the method, and types and shapes of inputs without the number of
    /// samples, and of token ids without their length.
    pub fn key(&self) -> String {
        let Some(method) = self.method else { return "load".into() };
        let inputs = self.inputs.iter().map(|input| match input {
            IValue::Tensor(tensor) if tensor.is_floating_point() => {
                format!(" {:?}{:?}", tensor.kind(), tensor.size().get(1..).unwrap_or_default())
            }
            IValue::Tensor(tensor) => format!(" {:?} of {} axes", tensor.kind(), tensor.dim()),
            _ => " other".into(),
        });
        format!("{method}{}", inputs.collect::<String>())
    }
}

/// Tries a call of an archive, which was written as `file`, unless this was done before; then adds it to `known`.
///
/// # Errors
/// Fails if the trial was ended by a signal or by a limit. That libtorch refuses the call is no failure.
pub fn run(file: &MemoryFile, call: &Call, known: &mut BTreeSet<String>) -> Result<()> {
    let Some(program) = child::named_program() else { return Ok(()) };
    let record = record(&clean::hash(file)?);
    let text = record.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    known.extend(text.lines().map(str::to_string));
    if known.contains(&call.key()) || call.method.is_none() && !known.is_empty() {
        return Ok(());
    }
    if let Some(what) = in_child(program, file, call)? {
        bail!(
            "{} {what} when it was tried in a process of its own: it is not loaded; --trust loads it without a trial, if you know \
             where it comes from",
            call.method.map_or("its loading".to_string(), |method| format!("its own {method}"))
        );
    }
    known.insert(call.key());
    if let Some(path) = record {
        remember(&path, known);
    }
    Ok(())
}

/// Returns the file with the calls that an archive of this hash has come through.
fn record(hash: &str) -> Option<PathBuf> {
    Some(crate::base::small::folder()?.join("archives").join(format!("v{VERSION}-{hash}.txt")))
}

/// Stores the calls. If the folder cannot be written to, the next run tries them again.
fn remember(path: &Path, known: &BTreeSet<String>) {
    let lines: String = known.iter().map(|call| format!("{call}\n")).collect();
    let folder = path.parent().unwrap_or(path);
    let written = create_folder(folder).and_then(|()| write_atomic(path, |file| Ok(file.write_all(lines.as_bytes())?)));
    if let Err(error) = written {
        tracing::debug!("the trial of an archive is not remembered: {error:#}");
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn in_child(_: &Path, _: &MemoryFile, _: &Call) -> Result<Option<String>> {
    Ok(None)
}

/// Makes a call in a process of its own. It gets the archive as standard input and the tensors as standard output, whose
/// files it can open again, and says on its standard error what went wrong. Returns what it did if it did not come through.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn in_child(program: &Path, file: &MemoryFile, call: &Call) -> Result<Option<String>> {
    let (inputs, said) = (MemoryFile::new()?, MemoryFile::new()?);
    let tensors = call.inputs.iter().enumerate().filter_map(|(index, input)| match input {
        IValue::Tensor(tensor) => Some((index.to_string(), tensor.to_device(Device::Cpu).contiguous())),
        _ => None,
    });
    Tensor::write_safetensors(&tensors.collect::<Vec<_>>(), inputs.path())?;
    let size = file.file().metadata()?.len();
    let most =
        (USUAL_BYTES + 4 * size).min(memory::free_bytes(Device::Cpu).unwrap_or(u64::MAX)).max(LEAST_BYTES + 2 * size);
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL_SECONDS);
    let asked = format!("{most} {} {}", tch::get_num_threads(), call.method.unwrap_or_default());
    let mut command = Command::new(program);
    command.env(ASKED_BY, asked).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::from(file.file().try_clone()?)).stdout(Stdio::from(inputs.file().try_clone()?));
    command.stderr(Stdio::from(said.file().try_clone()?));
    child::end_with_parent(&mut command, libc::SIGKILL);
    let Some(status) = waited(command, Duration::from_secs(seconds))? else {
        return Ok(Some(format!("did not return within {seconds} s (set {SECONDS} to allow it longer)")));
    };
    let text = String::from_utf8_lossy(&said.start(SAID)?).into_owned();
    tracing::debug!("the trial of an archive ended with {status}: {}", text.trim());
    Ok(judged(status, most, &text))
}

/// Runs a command to its end; `None` if it had to be ended.
fn waited(mut command: Command, limit: Duration) -> Result<Option<ExitStatus>> {
    let mut child = command.spawn().context("cannot start a process for the trial of an archive")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns what a trial that may take `most` bytes did if it did not come through.
fn judged(status: ExitStatus, most: u64, said: &str) -> Option<String> {
    if let Some(signal) = child::ending_signal(status) {
        let full = if said.contains("has overflowed its stack") { " after its stack was full" } else { "" };
        return Some(format!("ended by {signal}{full}"));
    }
    match status.code() {
        Some(0 | FAILED) => None,
        Some(NO_MEMORY) => Some(format!("asked for more than {:.1} GiB of memory", memory::gib(most))),
        _ => Some(format!("ended with {status} ({})", child::last_words(said.lines()))),
    }
}

/// Tries an archive if the environment asks for it, as another process of this program does, and returns the exit code.
pub fn answer() -> Option<u8> {
    let asked = std::env::var(ASKED_BY).ok()?;
    let mut words = asked.splitn(3, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (Some(most), Some(threads)) = (number(), number()) else { return Some(FAILED as u8) };
    let method = words.next().filter(|method| !method.is_empty());
    match answered(most, threads, method) {
        Ok(()) => Some(0),
        Err(error) => {
            let text = format!("{error:#}");
            eprintln!("error: {text}");
            let no_memory =
                ["can't allocate memory", "bad_alloc", "not enough memory"].iter().any(|sign| text.contains(sign));
            Some(if no_memory { NO_MEMORY } else { FAILED } as u8)
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn answered(_: u64, _: u64, _: Option<&str>) -> Result<()> {
    bail!("archives are not tried on this system")
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn answered(most: u64, threads: u64, method: Option<&str>) -> Result<()> {
    child::limit_this_process(most)?;
    tch::set_num_threads(threads.clamp(1, 1024) as i32);
    let mut inputs = Tensor::read_safetensors("/proc/self/fd/1")?;
    inputs.sort_by_key(|(name, _)| name.parse::<usize>().unwrap_or(usize::MAX));
    let inputs: Vec<IValue> = inputs.into_iter().map(|(_, tensor)| IValue::Tensor(tensor)).collect();
    let module = clean::load(Path::new("/proc/self/fd/0"), Device::Cpu)?;
    if let Some(method) = method {
        let _guard = tch::no_grad_guard();
        clean::call(&module, method, &inputs)?;
    }
    Ok(())
}
