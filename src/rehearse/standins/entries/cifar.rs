//! The binary version of CIFAR-10 and CIFAR-100: records of label bytes and pixels `[3, 32, 32]`.

use std::path::Path;

use anyhow::Result;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::planar;

pub static CIFAR10: StandIn = StandIn { key: "cifar10", side: 32, write: write_10, overrides: none };
pub static CIFAR100: StandIn = StandIn { key: "cifar100", side: 32, write: write_100, overrides: none };

/// The number of training files of CIFAR-10.
const FILES: usize = 5;
/// The numbers of fine and coarse classes of CIFAR-100.
const FINE_AND_COARSE: (usize, usize) = (100, 20);

fn write_10(wanted: &Wanted) -> Result<()> {
    let folder = wanted.root.join("cifar-10-batches-bin");
    let batches = wanted.settings.get("batches").and_then(toml::Value::as_array);
    // Only the files that the config names are written, since the others are not read.
    let used: Vec<i64> =
        batches.map_or((1..=FILES as i64).collect(), |list| list.iter().filter_map(toml::Value::as_integer).collect());
    let mut from = 0;
    for (place, file) in used.iter().enumerate() {
        let to = wanted.train * (place + 1) / used.len();
        records(&folder.join(format!("data_batch_{file}.bin")), from..to, |i| vec![wanted.label(i) as u8])?;
        from = to;
    }
    records(&folder.join("test_batch.bin"), 0..wanted.test, |i| vec![wanted.label(i) as u8])
}

fn write_100(wanted: &Wanted) -> Result<()> {
    let folder = wanted.root.join("cifar-100-binary");
    let (fine, coarse) = FINE_AND_COARSE;
    let labels = |i: usize| {
        let label = wanted.label(i);
        vec![(label % coarse) as u8, (label % fine) as u8]
    };
    records(&folder.join("train.bin"), 0..wanted.train, labels)?;
    records(&folder.join("test.bin"), 0..wanted.test, labels)
}

fn records(file: &Path, images: std::ops::Range<usize>, labels: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let record = |i: usize| [labels(i), planar(i, 32)].concat();
    put(file, &images.flat_map(record).collect::<Vec<u8>>())
}
