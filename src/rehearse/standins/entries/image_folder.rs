//! Image files in one folder per class, inside one folder per split.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, one, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "image-folder", side: 256, write, overrides };

fn write(wanted: &Wanted) -> Result<()> {
    let names = classes(wanted);
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    for (split, count) in [("train", wanted.train), ("val", wanted.val), ("test", wanted.test)] {
        let folder = wanted.root.join(wanted.text(split).unwrap_or(split));
        for i in 0..count {
            put(&folder.join(&names[wanted.label(i)]).join(format!("{i:06}.jpg")), pictures.file(i)?)?;
        }
    }
    Ok(())
}

/// Returns the configured class names, or made-up ones.
pub fn classes(wanted: &Wanted) -> Vec<String> {
    wanted.texts("classes").unwrap_or_else(|| (0..wanted.classes).map(|label| format!("class_{label:03}")).collect())
}

fn overrides(wanted: &Wanted) -> toml::Table {
    one("classes", classes(wanted))
}
