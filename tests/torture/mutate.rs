//! Damages to bytes.

use std::io::{Cursor, Read, Write};

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::containers::{Files, in_two_ways};

/// Bytes with one to four damages.
pub fn mutated(bytes: &[u8], random: &mut ChaCha12Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.random_range(1..5) {
        damage(&mut bytes, random);
    }
    bytes
}

/// A zip archive in which one entry is damaged, with the right checksums, so that the damage is seen by what reads the
/// entry; the archive as it is, damaged, if it is no archive.
pub fn mutated_zip(bytes: &[u8], random: &mut ChaCha12Rng) -> Vec<u8> {
    let Ok(mut archive) = ZipArchive::new(Cursor::new(bytes)) else { return mutated(bytes, random) };
    let chosen = random.random_range(0..archive.len());
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let name = entry.name().unwrap().to_string();
        let content = if at == chosen { mutated(&content, random) } else { content };
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        writer.start_file(name, options).unwrap();
        writer.write_all(&content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// An archive hidden in a container that can be read in two ways, where another reader finds the files of `shown`. A quarter
/// is damaged besides.
pub fn hidden(archive: &[u8], shown: &[u8], random: &mut ChaCha12Rng) -> Vec<u8> {
    let container = in_two_ways(&files(shown), &files(archive), random);
    if random.random_range(0..4) == 0 { mutated(&container, random) } else { container }
}

/// The files of a zip archive, in a folder of one letter.
fn files(bytes: &[u8]) -> Files {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut files = Vec::new();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let name = entry.name().unwrap().split_once('/').map_or("", |(_, inside)| inside).to_string();
        files.push((format!("a/{name}"), content));
    }
    files
}

fn damage(bytes: &mut Vec<u8>, random: &mut ChaCha12Rng) {
    if bytes.is_empty() {
        bytes.extend((0..random.random_range(0..64)).map(|_| random.random::<u8>()));
        return;
    }
    let length = bytes.len();
    let at = random.random_range(0..length);
    // Headers are short and decide most.
    let at = if random.random_range(0..2) == 0 { at % 256.min(length) } else { at };
    let end = (at + random.random_range(1..64)).min(length);
    match random.random_range(0..11) {
        0 | 1 => bytes[at] ^= 1 << random.random_range(0..8),
        2 => bytes[at] = random.random(),
        3 => bytes.truncate(at),
        4 => bytes.extend((0..random.random_range(1..64)).map(|_| random.random::<u8>())),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let part = bytes[at..end].to_vec();
            let times = [1, 2, 50][random.random_range(0..3)];
            let to = random.random_range(0..=length);
            bytes.splice(to..to, part.repeat(times));
        }
        7 => bytes[at..end].fill([0, 0xff, 0x7f, b' ', b'9'][random.random_range(0..5)]),
        8 => number(bytes, at, random),
        9 => digits(bytes, at, random),
        _ => {
            let other = random.random_range(0..length);
            let size = (end - at).min(length - other);
            bytes.copy_within(other..other + size, at.min(length - size));
        }
    }
}

/// Writes a number at the edge of its range, in either order of bytes.
fn number(bytes: &mut [u8], at: usize, random: &mut ChaCha12Rng) {
    const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX];
    let (edge, size) = (EDGES[random.random_range(0..8)], [1, 2, 4, 8][random.random_range(0..4)]);
    let number =
        if random.random_range(0..2) == 0 { edge.to_le_bytes() } else { (edge << (64 - 8 * size)).to_be_bytes() };
    bytes[at..].iter_mut().zip(&number[..size]).for_each(|(byte, value)| *byte = *value);
}

/// Replaces the first number in digits after `at` by another text.
fn digits(bytes: &mut Vec<u8>, at: usize, random: &mut ChaCha12Rng) {
    const TEXTS: [&str; 14] = [
        "0",
        "-1",
        "1e308",
        "-0",
        "NaN",
        "inf",
        "18446744073709551616",
        "9223372036854775807",
        "99999999",
        "4294967296",
        "",
        "\"x\"",
        "[[]]",
        "1e-320",
    ];
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else { return };
    let end = bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |found| start + found);
    bytes.splice(start..end, TEXTS[random.random_range(0..TEXTS.len())].bytes());
}
