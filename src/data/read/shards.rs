//! The samples of tar archives as WebDataset groups them, and names of archives by braces.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::base::tar::{Kind, Tar, cut_off};

/// The largest label, in bytes: a table of JSON may tell much besides.
const LARGEST_LABEL: u64 = 1 << 20;

/// The first bytes of a file that gzip has packed.
const GZIP: &[u8] = b"\x1f\x8b";

/// The most archives that a pattern may name.
const MOST: usize = 1_000_000;

/// The endings by which the members of a sample are known, without dots.
pub struct Endings<'a> {
    pub images: &'a [String],
    pub label: &'a str,
    /// The key of the label, where it is in a table of JSON.
    pub label_key: &'a str,
}

/// The label of a sample, as its member in the archive states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// A number of JSON, or one of a member `.cls`, which packages read as the place of a class.
    Place(String),
    /// The name of a class, or the number of its place.
    Text(String),
    /// A truth value of JSON.
    Truth(bool),
    Null,
    Missing,
}

/// A sample: its image in an archive, and its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The path of the archive followed by the name of the image in it.
    pub path: PathBuf,
    pub at: u64,
    pub size: u64,
    pub label: Label,
}

/// A sample whose members are being read.
struct Open {
    key: String,
    image: Option<(String, u64, u64)>,
    label: Label,
}

/// Returns the samples of an archive, in its order. Members with neither an image nor a label are left out.
///
/// # Errors
/// Fails if the archive cannot be read or is cut off, or if a sample has two images, two labels, or a label alone.
pub fn samples(archive: &Path, endings: &Endings) -> Result<Vec<Sample>> {
    let shown = archive.display();
    let file = File::open(archive).with_context(|| format!("{shown}: cannot open"))?;
    let mut file = BufReader::new(file);
    let is_packed = file.fill_buf().with_context(|| format!("{shown}: cannot read"))?.starts_with(GZIP);
    ensure!(!is_packed, "{shown}: is packed with gzip, and images are read from their places in an archive: unpack it");
    let mut tar = Tar::new(file);
    let (mut found, mut open): (Vec<Sample>, Option<Open>) = (Vec::new(), None);
    while let Some(member) = tar.member().with_context(|| shown.to_string())? {
        let Some((key, ending)) = split(&member.name).filter(|_| member.kind == Kind::File) else { continue };
        if open.as_ref().is_none_or(|open| open.key != key) {
            found.extend(open.take().map(|open| open.closed(archive)).transpose()?.flatten());
        }
        let one = open.get_or_insert_with(|| Open { key: key.to_string(), image: None, label: Label::Missing });
        let is = |known: &str| known.eq_ignore_ascii_case(ending);
        if endings.images.iter().any(|image| is(image)) {
            if let Some((first, ..)) = &one.image {
                bail!("{shown}: the sample `{key}` has two images, {first} and {}: one sample, one image", member.name);
            }
            one.image = Some((member.name.clone(), member.at, member.size));
        } else if is(endings.label) {
            ensure!(one.label == Label::Missing, "{shown}: the sample `{key}` has two labels: take one away");
            ensure!(
                member.size <= LARGEST_LABEL,
                "{shown}: {} has {} bytes, too many for a label",
                member.name,
                member.size
            );
            let mut bytes = Vec::new();
            let at = || format!("{shown}: {}", member.name);
            tar.content(&member).read_to_end(&mut bytes).with_context(at)?;
            if (bytes.len() as u64) < member.size {
                return Err(cut_off(std::io::ErrorKind::UnexpectedEof.into()).context(shown.to_string()));
            }
            one.label = label(bytes, endings).with_context(at)?;
        }
    }
    found.extend(open.map(|open| open.closed(archive)).transpose()?.flatten());
    Ok(found)
}

impl Open {
    /// Returns the sample; `None` if it has neither an image nor a label.
    fn closed(self, archive: &Path) -> Result<Option<Sample>> {
        match self.image {
            Some((name, at, size)) => Ok(Some(Sample { path: archive.join(name), at, size, label: self.label })),
            None if self.label == Label::Missing => Ok(None),
            None => bail!(
                "{}: the sample `{}` has a label and no image beside it: add the image's ending to data.webdataset.images, or put the members \
                 of a sample one after the other",
                archive.display(),
                self.key
            ),
        }
    }
}

/// Splits the name of a member at the first dot behind its folders. Members without a dot, and those whose name begins and ends with
/// two underlines (`__meta__.json`), belong to no sample.
fn split(name: &str) -> Option<(&str, &str)> {
    let start = name.rfind('/').map_or(0, |at| at + 1);
    let dot = start + name[start..].find('.')?;
    let own = &name[start..dot];
    let is_remark = own.starts_with("__") && own.ends_with("__");
    let is_sample = !(own.is_empty() || is_remark);
    is_sample.then(|| (&name[..dot], &name[dot + 1..]))
}

/// The kind of a label's member that holds a table of JSON.
pub const JSON: &str = "json";

/// Returns the kind of content that a label's ending says.
pub fn kind(label: &str) -> String {
    label.rsplit('.').next().unwrap_or_default().to_lowercase()
}

/// Returns what the content of a label's member says.
fn label(bytes: Vec<u8>, endings: &Endings) -> Result<Label> {
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("is no text"))?;
    let (text, kind) = (text.trim(), kind(endings.label));
    if kind != JSON {
        let is_place = kind == "cls" && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        return Ok(if is_place { Label::Place(text.to_string()) } else { Label::Text(text.to_string()) });
    }
    let table: Value = serde_json::from_str(text).context("is no JSON")?;
    let key = endings.label_key;
    let value = match &table {
        Value::Object(keys) => keys.get(key).with_context(|| {
            let known: Vec<&str> = keys.keys().map(String::as_str).collect();
            format!("has no key `{key}` (data.webdataset.label_key); its keys: {}", known.join(", "))
        })?,
        value => value,
    };
    match value {
        Value::Null => Ok(Label::Null),
        Value::String(text) => Ok(Label::Text(text.clone())),
        Value::Number(number) => Ok(Label::Place(number.to_string())),
        Value::Bool(truth) => Ok(Label::Truth(*truth)),
        _ => bail!("`{key}` must be a number, a truth value or the name of a class"),
    }
}

/// Returns the names that a pattern means: `{0000..0009}` stands for numbers, `{a,b}` for one of several texts.
///
/// # Errors
/// Fails with the reason if a brace has no pair, or a range no end.
pub fn expanded(pattern: &str) -> Result<Vec<String>, String> {
    let Some(open) = pattern.find('{') else {
        let lone = pattern.contains('}');
        return if lone { Err("has a `}` without its pair".into()) } else { Ok(vec![pattern.to_string()]) };
    };
    let close = open + pattern[open..].find('}').ok_or("has a `{` without its pair")?;
    let (before, inside, after) = (&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]);
    let choices = match inside.split_once("..") {
        Some((first, last)) => range(first, last)?,
        None => inside.split(',').map(String::from).collect(),
    };
    let rest = expanded(after)?;
    if choices.len().saturating_mul(rest.len()) > MOST {
        return Err(format!("names more than {MOST} archives"));
    }
    Ok(choices.iter().flat_map(|choice| rest.iter().map(move |end| format!("{before}{choice}{end}"))).collect())
}

/// Returns the numbers from `first` to `last`, with as many digits as the longer of the two is written with if one has zeros at the start.
fn range(first: &str, last: &str) -> Result<Vec<String>, String> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>()
            .ok()
            .filter(|_| is_plain)
            .ok_or(format!("has the range {first}..{last}, which needs two numbers"))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to || to - from >= MOST as u64 {
        return Err(format!("has the range {first}..{last}: must rise, by less than {MOST}"));
    }
    let is_padded = [first, last].iter().any(|text| text.len() > 1 && text.starts_with('0'));
    let width = if is_padded { first.len().max(last.len()) } else { 0 };
    Ok((from..=to).map(|number| format!("{number:0width$}")).collect())
}
