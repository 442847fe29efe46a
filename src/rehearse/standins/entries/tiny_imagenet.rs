//! Tiny ImageNet: `wnids.txt`, `train/<wnid>/images/…`, `val/images/…` with `val/val_annotations.txt`.

use anyhow::Result;
use image::ImageFormat;

use super::imagenet::wnids;
use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "tiny-imagenet", side: 64, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    let folder = wanted.root.join("tiny-imagenet-200");
    let wnids = wnids(wanted.classes);
    let mut pictures = Pictures::new(64, ImageFormat::Jpeg);
    for i in 0..wanted.train {
        let wnid = &wnids[wanted.label(i)];
        put(&folder.join(format!("train/{wnid}/images/{wnid}_{i}.JPEG")), pictures.file(i)?)?;
    }
    let mut annotations = String::new();
    for i in 0..wanted.test {
        put(&folder.join(format!("val/images/val_{i}.JPEG")), pictures.file(i)?)?;
        annotations += &format!("val_{i}.JPEG\t{}\t0\t0\t63\t63\n", wnids[wanted.label(i)]);
    }
    put(&folder.join("val/val_annotations.txt"), annotations.as_bytes())?;
    if let Some(words) = wanted.text("words") {
        let lines: String = wnids.iter().map(|wnid| format!("{wnid}\tmade-up {wnid}\n")).collect();
        put(&folder.join(words), lines.as_bytes())?;
    }
    put(&folder.join("wnids.txt"), (wnids.join("\n") + "\n").as_bytes())
}
