//! CIFAR-10-C and CIFAR-100-C: one `.npy` file per corruption, u8 `[50000, 32, 32, 3]`, and `labels.npy`. The files
//! have the full shape that the reader requires, but take only the space of the rows that are read; the other rows are
//! holes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::data::versions::{CORRUPTIONS, SEVERITIES};
use crate::rehearse::standins::contract::{StandIn, Wanted, put};
use crate::rehearse::standins::paint::value;

pub static CIFAR10_C: StandIn =
    StandIn { key: "cifar10-c", side: 32, write: |wanted| write(wanted, "CIFAR-10-C"), overrides };
pub static CIFAR100_C: StandIn =
    StandIn { key: "cifar100-c", side: 32, write: |wanted| write(wanted, "CIFAR-100-C"), overrides };

/// The number of images of each severity.
const IMAGES: usize = 10_000;
const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

fn write(wanted: &Wanted, folder: &str) -> Result<()> {
    let folder = wanted.root.join(folder);
    let count = SEVERITIES.len() * IMAGES;
    // The first images of each severity are read, so the labels start anew at each severity.
    let labels: Vec<u8> = (0..count).map(|i| (i % IMAGES % wanted.present) as u8).collect();
    put(&folder.join("labels.npy"), &[header(&format!("({count},)")), labels].concat())?;
    for (number, corruption) in corruptions(wanted).iter().enumerate() {
        let path = folder.join(format!("{corruption}.npy"));
        sparse(&path, wanted, number).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn sparse(path: &Path, wanted: &Wanted, corruption: usize) -> Result<()> {
    let count = SEVERITIES.len() * IMAGES;
    let header = header(&format!("({count}, 32, 32, 3)"));
    let mut file = File::create(path)?;
    file.write_all(&header)?;
    for severity in 0..SEVERITIES.len() {
        file.seek(SeekFrom::Start((header.len() + severity * IMAGES * PIXELS) as u64))?;
        let image = |i: usize| (0..PIXELS).map(move |at| value(i + corruption, at % 3, at / 3 / SIDE, at / 3 % SIDE));
        file.write_all(&(0..wanted.test.min(IMAGES)).flat_map(image).collect::<Vec<u8>>())?;
    }
    Ok(file.set_len((header.len() + count * PIXELS) as u64)?)
}

/// Returns the header that `numpy.save` writes before an array of bytes.
fn header(shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{text:117}\n").as_bytes()].concat()
}

/// Returns the first corruptions that the config names.
fn corruptions(wanted: &Wanted) -> Vec<String> {
    let all = wanted.texts("corruptions").unwrap_or_else(|| CORRUPTIONS.map(String::from).to_vec());
    all.into_iter().take(wanted.corruptions).collect()
}

/// Turns off the check of checksums, since made-up files have other ones than the published files.
fn overrides(wanted: &Wanted) -> toml::Table {
    toml::Table::from_iter([
        ("verify".to_string(), false.into()),
        ("corruptions".to_string(), corruptions(wanted).into()),
    ])
}
