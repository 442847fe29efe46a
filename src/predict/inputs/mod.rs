//! The input and output of `bella predict`: image files from paths, folders and lists, and records of what is predicted of them. A missing or
//! damaged file gives a record with its error, and the others continue.

mod records;

use std::io::BufRead;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;

use crate::data::Decode;
use crate::data::read::class_folders::collect as collect_images;

pub use records::{Columns, Format, Prediction, Record, Writer};

/// The argument that stands for a list of paths on standard input.
pub const LIST: &str = "-";

/// One image to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The path as given, or as found in a given folder.
    pub path: PathBuf,
    /// The reason why there is no image, if it is known before reading.
    pub problem: Option<String>,
}

/// The images to predict, and what of the folders is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    pub images: Vec<Input>,
    /// The files in folders whose extension is that of no image.
    pub skipped: Vec<PathBuf>,
}

/// Returns all images that `paths` name, in that order. A file is taken as it is. A folder gives the image files below
/// it, sorted, with known extensions, without hidden files and links to folders. `-` gives the paths in `list`: one per
/// line, skipping empty lines, or each ended by NUL if there is any NUL. A path that does not exist gives an input with
/// a problem.
///
/// # Errors
/// Fails if there is no path at all, or if `list` cannot be read.
pub fn collect(paths: &[PathBuf], list: &mut dyn BufRead) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    for path in paths {
        if path.as_os_str() == LIST {
            let mut bytes = Vec::new();
            list.read_to_end(&mut bytes).context("cannot read the list of paths on standard input")?;
            listed(&bytes).for_each(|path| add(&path, &mut inputs));
        } else {
            add(path, &mut inputs);
        }
    }
    ensure!(
        !inputs.images.is_empty(),
        "no images to predict: name files or folders, or give - and a list on standard input"
    );
    Ok(inputs)
}

/// Returns the paths in a list.
fn listed(bytes: &[u8]) -> impl Iterator<Item = PathBuf> {
    let end = if bytes.contains(&0) { 0 } else { b'\n' };
    let lines = bytes.split(move |&byte| byte == end);
    let plain = lines.map(move |line| if end == 0 { line } else { line.strip_suffix(b"\r").unwrap_or(line) });
    plain.filter(|line| !line.is_empty()).map(to_path)
}

#[cfg(unix)]
fn to_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

fn add(path: &Path, Inputs { images, skipped }: &mut Inputs) {
    let mut problem = |why: String| images.push(Input { path: path.to_path_buf(), problem: Some(why) });
    if path.is_dir() {
        let mut found = Vec::new();
        match collect_images(path, &mut found, skipped) {
            Err(error) => problem(format!("{error:#}")),
            Ok(()) if found.is_empty() => problem(format!("{}: no image files in this folder", path.display())),
            Ok(()) => images.extend(found.into_iter().map(|path| Input { path, problem: None })),
        }
    } else if path.exists() {
        images.push(Input { path: path.to_path_buf(), problem: None });
    } else {
        problem(format!("{}: no such file", path.display()));
    }
}

/// Decodes each input to `[3, height, width]` on the rayon pool of the calling thread, or returns the reason why it
/// cannot. An error in one file never stops the others.
pub fn decode(inputs: &[Input], decode: Decode) -> Vec<Result<Vec<u8>, String>> {
    let one = |input: &Input| match &input.problem {
        Some(why) => Err(why.clone()),
        None => decode.file(&input.path).map_err(|error| format!("{error:#}")),
    };
    inputs.par_iter().map(one).collect()
}

#[cfg(test)]
mod tests;
