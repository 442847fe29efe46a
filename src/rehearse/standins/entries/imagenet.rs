//! ImageNet (ILSVRC 2012): `train/<wnid>/…JPEG` and `val/<wnid>/…JPEG`.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "imagenet", side: 430, write, overrides };

/// The WordNet numbers and names of the thousand classes, in the order of their labels.
const NAMES: &str = include_str!("../../../../assets/imagenet_names.txt");

fn write(wanted: &Wanted) -> Result<()> {
    let wnids = classes(wanted);
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    for (folder, count) in [("train", wanted.train), ("val", wanted.test)] {
        for i in 0..count {
            let wnid = &wnids[wanted.label(i)];
            put(&wanted.root.join(format!("{folder}/{wnid}/{wnid}_{i}.JPEG")), pictures.file(i)?)?;
        }
    }
    let words = wnids.iter().map(|wnid| format!("{wnid} made-up {wnid}\n")).collect::<String>();
    wanted.text("words").map_or(Ok(()), |file| put(&wanted.root.join(file), words.as_bytes()))
}

/// Returns the configured classes, or else the first of all.
fn classes(wanted: &Wanted) -> Vec<String> {
    wanted.texts("classes").unwrap_or_else(|| wnids(wanted.classes))
}

/// Returns the first `count` WordNet numbers.
pub fn wnids(count: usize) -> Vec<String> {
    NAMES.lines().filter_map(|line| line.split('\t').next()).take(count).map(str::to_string).collect()
}

/// Names the classes, since few images do not show all of them. Labels are given by the class folders.
fn overrides(wanted: &Wanted) -> toml::Table {
    toml::Table::from_iter([("classes".to_string(), classes(wanted).into())])
}
