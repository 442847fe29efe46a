//! VTAB-1K as image lists: a folder for each task with `train800.txt`, `val200.txt`, `train800val200.txt` and
//! `test.txt`.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "vtab", side: 224, write, overrides: none };

fn write(wanted: &Wanted) -> Result<()> {
    let folder = wanted.root.join(wanted.text("task").unwrap_or("cifar"));
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    let mut part = |name: &str, count: usize| -> Result<String> {
        let mut list = String::new();
        for i in 0..count {
            put(&folder.join(format!("images/{name}/{i:06}.jpg")), pictures.file(i)?)?;
            list += &format!("images/{name}/{i:06}.jpg {}\n", wanted.label(i));
        }
        Ok(list)
    };
    let (train, val, test) = (part("train", wanted.train)?, part("val", wanted.val)?, part("test", wanted.test)?);
    put(&folder.join("train800.txt"), train.as_bytes())?;
    put(&folder.join("val200.txt"), val.as_bytes())?;
    put(&folder.join("train800val200.txt"), (train + &val).as_bytes())?;
    put(&folder.join("test.txt"), test.as_bytes())
}
