//! STL-10, binary layout: pixels `[N, 3, column, row]` and labels from 1 to 10.

use anyhow::Result;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::value;

pub static STAND_IN: StandIn = StandIn { key: "stl10", side: 96, write, overrides: none };

const SIDE: usize = 96;
/// The classes in the order of their labels: STL-10's name, and CIFAR-10's name for the same class.
const CLASSES: [(&str, &str); 10] = [
    ("airplane", "airplane"),
    ("bird", "bird"),
    ("car", "automobile"),
    ("cat", "cat"),
    ("deer", "deer"),
    ("dog", "dog"),
    ("horse", "horse"),
    ("monkey", ""),
    ("ship", "ship"),
    ("truck", "truck"),
];

fn write(wanted: &Wanted) -> Result<()> {
    let names = wanted.texts("classes").unwrap_or_default();
    let own = wanted.text("labels") == Some("stl10");
    // The published label of each class used, in the order of the set's own labels.
    let published: Vec<u8> = names
        .iter()
        .filter_map(|name| CLASSES.iter().position(|(stl, cifar)| if own { stl == name } else { cifar == name }))
        .map(|place| place as u8 + 1)
        .collect();
    let folder = wanted.root.join("stl10_binary");
    for (split, count) in [("train", wanted.train), ("test", wanted.test)] {
        let labels: Vec<u8> = (0..count).map(|i| published[wanted.label(i) % published.len()]).collect();
        let pixels: Vec<u8> = (0..count).flat_map(column_by_column).collect();
        put(&folder.join(format!("{split}_X.bin")), &pixels)?;
        put(&folder.join(format!("{split}_y.bin")), &labels)?;
    }
    Ok(())
}

fn column_by_column(seed: usize) -> impl Iterator<Item = u8> {
    let place = |at: usize| (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
    (0..3 * SIDE * SIDE).map(place).map(move |(channel, column, row)| value(seed, channel, row, column))
}
