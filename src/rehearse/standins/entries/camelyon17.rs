//! CAMELYON17-WILDS v1.0: `metadata.csv` and 96x96 patches. Center 0 is for training, 1 for validation and 2 for
//! testing; split 1 of center 0 is `id_val`.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "camelyon17", side: 96, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    let folder = wanted.root.join("camelyon17_v1.0");
    let mut pictures = Pictures::new(96, ImageFormat::Png);
    let mut table = String::from(",patient,node,x_coord,y_coord,tumor,slide,center,split\n");
    let mut row = 0;
    // Number of patches, center, split.
    for (count, center, split) in [(wanted.train, 0, 0), (wanted.val, 1, 1), (wanted.test, 2, 2), (wanted.val, 0, 1)] {
        for i in 0..count {
            let (patient, node, x, y) = (4 + center, 4, row * 96, 96);
            let slide = 10 * center + i % 2;
            let label = wanted.label(i);
            table += &format!("{row},{patient:03},{node},{x},{y},{label},{slide},{center},{split}\n");
            let stem = format!("patient_{patient:03}_node_{node}");
            let file = folder.join(format!("patches/{stem}/patch_{stem}_x_{x}_y_{y}.png"));
            put(&file, pictures.file(label + 2 * i)?)?;
            row += 1;
        }
    }
    put(&folder.join(wanted.text("metadata").unwrap_or("metadata.csv")), table.as_bytes())
}
