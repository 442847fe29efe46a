//! Reads files with the labels of the images in ImageNet's val folder, in the three forms that are in circulation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::data::read::image_files::Listing;
use crate::data::read::mat::{self, Value};

/// The three forms, for messages.
pub const FORMS: &str = "ILSVRC2012_validation_ground_truth.txt (meta.mat beside it), LOC_val_solution.csv, or lines of \
                         `<image> <wnid or label>`";

/// One entry of a file of labels: the name of an image and its class.
struct Truth {
    image: String,
    class: Class,
}

enum Class {
    Wnid(String),
    /// The position among all wnids, sorted.
    Label(u32),
}

/// Returns the images of `val` with their labels, which are positions in `wnids`.
///
/// # Errors
/// Fails if the file cannot be read or has none of the three forms, or if a class is not one of `wnids`.
pub fn listing(file: &Path, val: &Path, wnids: &[String]) -> Result<Listing> {
    let place: BTreeMap<&str, u32> = wnids.iter().map(String::as_str).zip(0..).collect();
    let mut listing = Listing::default();
    for Truth { image, class } in read(file)? {
        let label = match &class {
            Class::Wnid(wnid) => place.get(wnid.as_str()).copied(),
            Class::Label(label) => Some(*label).filter(|&label| (label as usize) < wnids.len()),
        };
        let shown = match class {
            Class::Wnid(wnid) => wnid,
            Class::Label(label) => label.to_string(),
        };
        listing.labels.push(label.with_context(|| {
            format!("{}: {image} is of the class {shown}, which is none of the {} classes", file.display(), wnids.len())
        })?);
        listing.paths.push(val.join(image));
    }
    Ok(listing)
}

/// Returns all wnids that the file mentions, sorted.
///
/// # Errors
/// Fails like [`listing`], and if the file holds bare labels without wnids.
pub fn wnids(file: &Path) -> Result<Vec<String>> {
    let meta = file.with_file_name("meta.mat");
    let wnids: BTreeSet<String> = if meta.is_file() {
        by_id(&meta)?.into_values().collect()
    } else {
        let wnid = |truth: Truth| match truth.class {
            Class::Wnid(wnid) => Some(wnid),
            Class::Label(_) => None,
        };
        read(file)?.into_iter().filter_map(wnid).collect()
    };
    ensure!(
        !wnids.is_empty(),
        "{}: labels without wnids, and there is no training folder: set data.imagenet.classes",
        file.display()
    );
    Ok(wnids.into_iter().collect())
}

fn read(file: &Path) -> Result<Vec<Truth>> {
    let at = file.display();
    let text = crate::base::files::read_text(file).with_context(|| format!("{at}: cannot read"))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let Some(first) = lines.first() else { bail!("{at}: is empty") };
    let numbered = lines.iter().enumerate().map(|(i, line)| (i + 1, *line));
    if first.starts_with("ImageId,") {
        return numbered
            .skip(1)
            .map(|(number, line)| solution(line).with_context(|| format!("{at}:{number}")))
            .collect();
    }
    if first.parse::<u32>().is_ok() {
        let wnids = by_id(&file.with_file_name("meta.mat"))
            .with_context(|| format!("{at}: its numbers are ILSVRC2012_IDs, which meta.mat of the devkit explains"))?;
        return numbered
            .map(|(number, line)| devkit(number, line, &wnids).with_context(|| format!("{at}:{number}")))
            .collect();
    }
    numbered.map(|(number, line)| named(line).with_context(|| format!("{at}:{number}"))).collect()
}

/// Parses a line of Kaggle's file, such as `ILSVRC2012_val_00048981,n03995372 85 1 499 272`.
fn solution(line: &str) -> Result<Truth> {
    let parts = line.split_once(',').and_then(|(image, boxes)| Some((image, boxes.split_whitespace().next()?)));
    let (image, wnid) = parts.with_context(|| format!("`{line}` is not `<image>,<wnid> <box>`"))?;
    Ok(Truth { image: format!("{image}.JPEG"), class: Class::Wnid(wnid.to_string()) })
}

/// Parses a line of the devkit's file, such as `490`. The file has one line per image, in the order of the images.
fn devkit(number: usize, line: &str, wnids: &BTreeMap<u32, String>) -> Result<Truth> {
    let wnid = line.parse().ok().and_then(|id: u32| wnids.get(&id));
    let wnid = wnid.with_context(|| format!("`{line}` is no ILSVRC2012_ID of meta.mat"))?;
    Ok(Truth { image: format!("ILSVRC2012_val_{number:08}.JPEG"), class: Class::Wnid(wnid.clone()) })
}

/// Parses a line such as `ILSVRC2012_val_00000001.JPEG 65`. A wnid may replace the number.
fn named(line: &str) -> Result<Truth> {
    let (image, class) =
        line.rsplit_once(char::is_whitespace).with_context(|| format!("`{line}`: expected {FORMS}"))?;
    let class = class.parse().map_or_else(|_| Class::Wnid(class.to_string()), Class::Label);
    Ok(Truth { image: image.trim().to_string(), class })
}

/// Returns the wnid of each ILSVRC2012_ID from 1 to 1000. These are the classes; higher numbers are groups of classes.
fn by_id(meta: &Path) -> Result<BTreeMap<u32, String>> {
    let at = meta.display();
    let variables = mat::read(meta)?;
    let Value::Structs(synsets) = mat::variable(&variables, "synsets", meta)? else {
        bail!("{at}: synsets is no array of structs: fetch it again");
    };
    let mut wnids = BTreeMap::new();
    for synset in synsets {
        let id = synset.get("ILSVRC2012_ID").and_then(|id| id.whole().ok()?.first().copied());
        let (Some(id), Some(Value::Text(wnid))) = (id, synset.get("WNID")) else {
            bail!("{at}: a synset without ILSVRC2012_ID or WNID: fetch it again");
        };
        if (1..=1000).contains(&id) {
            wnids.insert(id, wnid.trim().to_string());
        }
    }
    Ok(wnids)
}
