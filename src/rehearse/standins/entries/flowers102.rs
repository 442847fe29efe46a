//! Oxford Flowers-102: `jpg/image_00001.jpg` …, `imagelabels.mat` with labels from 1, `setid.mat` with the three splits.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::mat::{Array, file};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "flowers102", side: 560, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    let (mut labels, mut splits) = (Vec::new(), Vec::new());
    for count in [wanted.train, wanted.val, wanted.test] {
        let first = labels.len() as u16 + 1;
        splits.push((first..first + count as u16).collect::<Vec<u16>>());
        labels.extend((0..count).map(|i| wanted.label(i) as u8 + 1));
    }
    for i in 0..labels.len() {
        put(&wanted.root.join(format!("jpg/image_{:05}.jpg", i + 1)), pictures.file(i)?)?;
    }
    let images = Array::Bytes("labels", vec![1, labels.len()], &labels);
    put(&wanted.root.join("imagelabels.mat"), &file(&[images]))?;
    let names = ["trnid", "valid", "tstid"];
    let arrays: Vec<Array> =
        names.iter().zip(&splits).map(|(name, images)| Array::Words(name, vec![1, images.len()], images)).collect();
    put(&wanted.root.join("setid.mat"), &file(&arrays))
}
