//! Corrupted image files in the layout of ImageNet-C: `<corruption>/<severity>/<class>/…`.

use anyhow::Result;
use image::ImageFormat;

use super::image_folder::classes;
use crate::data::versions::{CORRUPTIONS, SEVERITIES};
use crate::rehearse::standins::contract::{StandIn, Wanted, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "image-folder-c", side: 224, write, overrides };

fn write(wanted: &Wanted) -> Result<()> {
    let names = classes(wanted);
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    for corruption in corruptions(wanted) {
        for severity in SEVERITIES {
            for i in 0..wanted.test {
                let class = &names[wanted.label(i)];
                let file = wanted.root.join(format!("{corruption}/{severity}/{class}/{i:06}.jpg"));
                put(&file, pictures.file(i + usize::from(severity))?)?;
            }
        }
    }
    Ok(())
}

/// Returns the first corruptions that the config names, or else the first of all.
fn corruptions(wanted: &Wanted) -> Vec<String> {
    let all = wanted.texts("corruptions").unwrap_or_else(|| CORRUPTIONS.map(String::from).to_vec());
    all.into_iter().take(wanted.corruptions).collect()
}

fn overrides(wanted: &Wanted) -> toml::Table {
    toml::Table::from_iter([
        ("corruptions".to_string(), corruptions(wanted).into()),
        ("classes".to_string(), classes(wanted).into()),
    ])
}
