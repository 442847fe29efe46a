//! SVHN, format 2: `train_32x32.mat` and `test_32x32.mat` of `X` `[32, 32, 3, N]` and `y` from 1 to 10, where 10 is 0.

use anyhow::Result;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::mat::{Array, file};
use crate::rehearse::standins::paint::planar;

pub static STAND_IN: StandIn = StandIn { key: "svhn", side: 32, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    for (split, count) in [("train", wanted.train), ("test", wanted.test)] {
        if count == 0 {
            continue;
        }
        // Rows and columns of made-up pictures may change places.
        let pixels: Vec<u8> = (0..count).flat_map(|i| planar(i, 32)).collect();
        let labels: Vec<u8> =
            (0..count).map(|i| if wanted.label(i) == 0 { 10 } else { wanted.label(i) as u8 }).collect();
        let arrays = [Array::Bytes("X", vec![32, 32, 3, count], &pixels), Array::Bytes("y", vec![count, 1], &labels)];
        put(&wanted.root.join(format!("{split}_32x32.mat")), &file(&arrays))?;
    }
    Ok(())
}
