//! Images listed in a CSV file, with a path, a label and a split in each row.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "list", side: 256, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    let columns = wanted.settings.get("columns").and_then(toml::Value::as_table);
    let column = |name: &str| {
        let named = columns.and_then(|columns| columns.get(name)).and_then(toml::Value::as_str);
        named.unwrap_or(name).to_string()
    };
    let classes = wanted.texts("classes");
    let name = |label: usize| classes.as_ref().map_or(label.to_string(), |names| names[label].clone());
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    let mut rows = ["path", "label", "split", "group"].map(column).join(",") + "\n";
    for (split, count) in [("train", wanted.train), ("val", wanted.val), ("test", wanted.test)] {
        for i in 0..count {
            let file = format!("{split}/{i:06}.jpg");
            put(&wanted.root.join(&file), pictures.file(i)?)?;
            rows += &format!("{file},{},{split},group {}\n", name(wanted.label(i)), i % 2);
        }
    }
    put(&wanted.root.join(wanted.text("list").unwrap_or("list.csv")), rows.as_bytes())
}
