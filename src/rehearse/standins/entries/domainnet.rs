//! DomainNet's lists: `<domain>_train.txt` and `<domain>_test.txt` of `<domain>/<class>/<image> <label>`.

use anyhow::Result;
use image::ImageFormat;

use crate::rehearse::standins::contract::{StandIn, Wanted, one, put};
use crate::rehearse::standins::paint::Pictures;

pub static STAND_IN: StandIn = StandIn { key: "domainnet", side: 320, write, overrides };

fn write(wanted: &Wanted) -> Result<()> {
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    let train = wanted.text("train").unwrap_or("real").to_string();
    let test = wanted.texts("test").unwrap_or_default();
    let mut part = |domain: &str, split: &str, count: usize| -> Result<()> {
        let mut list = String::new();
        for i in 0..count {
            let label = wanted.label(i);
            let image = format!("{domain}/{}/{domain}_{split}_{i:06}.jpg", class(wanted, label));
            put(&wanted.root.join(&image), pictures.file(i)?)?;
            list += &format!("{image} {label}\n");
        }
        put(&wanted.root.join(format!("{domain}_{split}.txt")), list.as_bytes())
    };
    part(&train, "train", wanted.train)?;
    test.iter().try_for_each(|domain| part(domain, "test", wanted.test))
}

fn class(wanted: &Wanted, label: usize) -> String {
    let given = wanted.texts("classes").and_then(|names| names.get(label).cloned());
    given.unwrap_or_else(|| format!("object_{label:03}"))
}

/// Names the classes, since the lists of few images do not contain all of them.
fn overrides(wanted: &Wanted) -> toml::Table {
    let classes: Vec<String> = (0..wanted.classes).map(|label| class(wanted, label)).collect();
    one("classes", classes)
}
